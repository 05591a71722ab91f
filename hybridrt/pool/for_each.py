"""A loop that goes on past errors: code of the user's that raises for one call must not lose the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["for_each"]

T = TypeVar("T")


def for_each(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Do something for each item, whatever it has raised for the one before; raise the first error then."""
    first: BaseException | None = None
    for item in items:
        try:
            act(item)
        except BaseException as error:
            if first is None:
                first = error
    if first is not None:
        try:
            raise first
        finally:
            del first
