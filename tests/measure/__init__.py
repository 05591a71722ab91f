"""What is measured of the host and of threads."""
