"""Look at running calls from outside, decide, and apply what was decided."""
