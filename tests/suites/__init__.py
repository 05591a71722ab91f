"""Other projects' test suites, run without hybridrt and with it; see `python -m tests.suites --help`."""
