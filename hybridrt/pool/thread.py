"""How the thread of a worker is made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

__all__ = ["make_thread"]


def make_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread with an empty context; a plain one where daemons are forbidden."""
    # Builds that let threads inherit the context would keep the submitter's alive.
    extra: dict[str, Any] = {"context": Context()} if sys.version_info >= (3, 14) else {}
    try:
        return threading.Thread(target=target, name=name, daemon=True, **extra)
    except RuntimeError:  # some sub-interpreters allow no daemon threads
        return threading.Thread(target=target, name=name, daemon=False, **extra)
