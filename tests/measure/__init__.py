"""What is measured of the host, of threads and of the loop."""
