"""A line on standard error that says what a trial does, and goes away; nothing where the output is not a
terminal."""

from __future__ import annotations

import sys

__all__ = ["ProgressLine"]


class ProgressLine:
    """Shows one text after the other within a `with` block, if standard error is a terminal."""

    def __init__(self) -> None:
        # None: a program without a console.
        self._stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def say(self, text: str) -> None:
        """Show a text in place of the last one."""
        self._write(f"trial: {text} ...")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
