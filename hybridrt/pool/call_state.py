"""The states of a call, and what its events say of it."""

from __future__ import annotations

from contextvars import Context
from enum import IntEnum
from typing import NamedTuple

from hybridrt.placements import Placement

__all__ = ["ASSIGNED", "CANCELLED", "DONE", "QUEUED", "RUNNING", "CallState", "Submission"]


class CallState(IntEnum):
    """Where a call is; `Call` has the order of the states."""

    QUEUED = 0
    ASSIGNED = 1
    RUNNING = 2
    DONE = 3
    CANCELLED = 4


QUEUED: int = CallState.QUEUED
ASSIGNED: int = CallState.ASSIGNED
RUNNING: int = CallState.RUNNING
DONE: int = CallState.DONE
CANCELLED: int = CallState.CANCELLED


class Submission(NamedTuple):
    """What all events of a call say of it."""

    id: int
    context: Context
    place: Placement
