"""The command line, and `hybridrt.trial` which it runs."""
