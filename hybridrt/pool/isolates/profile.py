"""The books of isolated calls: a profile whose kind is known and stays."""

from __future__ import annotations

from hybridrt.observe.functions import Profile
from hybridrt.values import Kind

__all__ = ["IsolateProfile"]


class IsolateProfile(Profile):
    """What is known about one function in isolates.

    Its calls wait for another interpreter. What their threads look like from outside says nothing about
    the function, so no kind is concluded from it.
    """

    __slots__ = ()

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
