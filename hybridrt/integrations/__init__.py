"""Other packages, one in each file; none is imported unless the program has imported it."""
