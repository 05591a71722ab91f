"""Tests of `examples/rag.py`; what needs the extra `rag` is skipped without it."""
