"""The test suite; a package so that its plugins (`tests.race`, `tests.traces`) have one name everywhere."""
