"""The control law as a pure function: policies and the verdict on a running call."""
