"""Tests of offloaded generators, batches and pipes."""
