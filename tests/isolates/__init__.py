"""Calls in other interpreters."""
