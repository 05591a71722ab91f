"""A module that ends the program that imports it, as some read their command line, but in isolates only."""

from __future__ import annotations

from hybridrt.isolates.child import inside

if inside():
    raise SystemExit(2)


def work() -> None:
    """Nothing."""
