"""How the threads of workers and of the governor are made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

__all__ = ["empty_context", "make_thread"]


def empty_context() -> dict[str, Any]:
    """Return the arguments that give a thread an empty context.

    Builds that let threads inherit the context would keep that of who starts it alive.
    """
    return {"context": Context()} if sys.version_info >= (3, 14) else {}


def make_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread with an empty context; a plain one where daemons are forbidden."""
    extra = empty_context()
    try:
        return threading.Thread(target=target, name=name, daemon=True, **extra)
    except RuntimeError:  # some sub-interpreters allow no daemon threads
        return threading.Thread(target=target, name=name, daemon=False, **extra)
