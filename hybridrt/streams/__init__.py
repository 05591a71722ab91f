"""Offloaded generators: a generator function becomes an async iterator whose steps run off the loop."""
