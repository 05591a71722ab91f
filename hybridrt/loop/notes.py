"""Notes on errors of the user's."""

from __future__ import annotations

from contextlib import suppress

__all__ = ["add_note"]


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an error, unless its class takes none, as one that is a frozen dataclass."""
    with suppress(Exception):
        error.add_note(text)
