"""The runtime, `run`, and the tools for tests."""
