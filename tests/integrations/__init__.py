"""What one outside package each has to do with the runtime."""
