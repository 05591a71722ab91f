"""Batched functions: calls of several callers run together, as one call of a function of a list."""
