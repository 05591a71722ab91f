"""One thing measured once: the host, a thread's CPU clock, the lateness of a timer on the loop."""
