"""Functions that tests make tools of; at the top level of a module, so that an isolate finds them."""

from __future__ import annotations

import enum
import os
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from hybridrt import tool

__all__ = ["Colour", "Place", "Point", "count_letters", "everything", "process_id"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Place(BaseModel):
    title: str
    point: Point


def everything(
    text: str,
    number: Annotated[int, Field(ge=1, description="Said by the hint.")],
    colour: Colour,
    place: Place,
    order: Literal["up", "down"] = "up",
    names: list[str] | None = None,
    *,
    title: str = "none",
) -> str:
    """Show what may be described.

    It has a second paragraph.

    Args:
        text (str): Some text
            on two lines.
        number: Said by the docstring.
        title: A parameter named like a keyword of JSON schema.

    Returns:
        Nothing that the model is told of here.
    """
    return f"{text} {number} {colour.name} {place.point.x} {order} {names} {title}"


@tool(pure=True, where="isolate")
def process_id(text: str) -> tuple[int, float]:
    """Return where it runs and what CPU time it has used by then."""
    begun = time.thread_time()
    sum(range(100_000))
    return os.getpid(), time.thread_time() - begun


@tool
def count_letters(text: str) -> int:
    """Count letters."""
    return len(text)
