"""Benchmarks: one question per file, every candidate in a fresh process.

`python -m benchmarks` lists them. Needs a checkout: the wheel does not carry this package.
"""
