"""How calls, workers and pools show their state in a debugger; read without the lock."""

from __future__ import annotations

from typing import Any

from hybridrt.pool.call_state import QUEUED, CallState
from hybridrt.pool.permit import Permit

__all__ = ["show_call", "show_pool", "show_worker"]


def show_call(call: Any) -> str:
    """Return the `repr` of a call: its function, its state and its permit."""
    profile = getattr(call, "profile", None)
    name = "without a function" if profile is None else profile.name
    state = CallState(getattr(call, "state", QUEUED)).name
    permit = Permit(getattr(call, "permit", Permit.NONE)).name
    return f"<{type(call).__name__} {name}, {state}, permit {permit}>"


def show_worker(worker: Any) -> str:
    """Return the `repr` of a worker: its thread, and what it does."""
    name = getattr(getattr(worker, "thread", None), "name", "without a thread")
    call = worker.call  # read once: the worker ends calls without the lock
    if call is None:
        does = f"calls to begin: {len(worker.batch)}" if worker.serving else "parked"
    else:
        does = f"runs {call!r}, {len(worker.batch)} to come"
    return f"<{type(worker).__name__} {name}, {does}>"


def show_pool(pool: Any) -> str:
    """Return the `repr` of a pool: its calls, its workers and its size."""
    size, workers = pool.sizing.state.workers, len(pool.roster.workers)
    end = ", draining" if pool.draining else ""
    return (
        f"<{type(pool).__name__} {pool.roster.prefix}, {pool.queued} queued, {pool.busy} busy, "
        f"{pool.waiting} of at most {size} in the waiting lane, {workers} workers{end}>"
    )
