"""The books of isolated calls: a profile whose kind is known and stays."""

from __future__ import annotations

from typing import Any

from hybridrt.observe.functions import Profile
from hybridrt.values import Kind

__all__ = ["IsolateProfile"]

_LAST = 8
"""Calls of which about two thirds of the usual time are made. Not measured."""


class IsolateProfile(Profile):
    """What is known about one function in isolates.

    Its calls wait for another interpreter. What their threads look like from outside says nothing about
    the function, so no kind is concluded from it.
    """

    __slots__ = ("usual_ns",)

    usual_ns: int
    """What the last calls took in their isolates, the way there and the start of one left out."""

    def __init__(self, key: Any, name: str) -> None:
        super().__init__(key, name)
        self.usual_ns = 0

    def took(self, wall_ns: int) -> None:
        """Take in what a call took in its isolate; from any thread, because one may get lost."""
        usual = self.usual_ns
        self.usual_ns = usual + (wall_ns - usual) // _LAST if usual else wall_ns

    @property
    def kind(self) -> Kind:
        """Return that of calls that wait."""
        return Kind.WAITING

    @kind.setter
    def kind(self, concluded: Kind) -> None:
        pass

    @property
    def leaves_gil(self) -> bool:
        """Return True: the calls run without this interpreter's GIL."""
        return True
