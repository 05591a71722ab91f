"""The loads: each opens what its calls need and gives the functions to call.

A load is a context manager that gives one function per phase; a phase is called until its share of
the run is over. The functions take nothing, may be called from many threads at once, and keep their
work constant: they count iterations, never time, so that two processes do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["LOADS", "Phases", "open_load"]

Phases = Sequence[Callable[[], object]]

LOADS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vision": ("vision", "vision", {}),
    "voice": ("voice", "voice", {}),
    "fusion": ("fusion", "fusion", {}),
    "rag": ("rag", "rag", {}),
    "slm": ("slm", "slm", {}),
    "analytics": ("analytics", "analytics", {}),
    "onnx": ("vision", "inference_after_io", {}),
    "mixed": ("plain", "mixed", {"iterations": 250_000, "seconds": 0.05}),
    "io-heavy": ("plain", "mixed", {"iterations": 100, "seconds": 0.001}),
    "io-dominant": ("plain", "mixed", {"iterations": 500, "seconds": 0.0005}),
    "balanced": ("plain", "mixed", {"iterations": 1_000, "seconds": 0.0001}),
    "cpu-leaning": ("plain", "mixed", {"iterations": 2_000, "seconds": 0.00005}),
    "cpu-heavy": ("plain", "mixed", {"iterations": 5_000, "seconds": 0.00001}),
    "cpu-dominant": ("plain", "mixed", {"iterations": 10_000, "seconds": 0.000001}),
    "compute": ("plain", "compute", {"iterations": 250_000}),
    "hash": ("plain", "hashing", {"size": 8 << 20}),
    "wait": ("plain", "wait", {"seconds": 0.05}),
    "disk": ("disk", "disk", {"sync": False}),
    "disk-fsync": ("disk", "disk", {"sync": True}),
    "two-phase": ("plain", "two_phase", {"seconds": 0.02, "iterations": 125_000}),
}
"""Module of this package, function in it, and its arguments.

The six from `io-heavy` to `cpu-dominant` have the iterations and waits of the robustness table of
"Mitigating GIL Bottlenecks in Edge AI Systems" (table XI); `mixed` is that paper's
10 ms of computing and 50 ms of waiting.
"""


def open_load(name: str) -> AbstractContextManager[Phases]:
    """Return the load of that name, ready to enter; imports what it needs and no more."""
    if name not in LOADS:
        raise ValueError(f"load must be one of {', '.join(LOADS)}, got {name!r}")
    module, function, arguments = LOADS[name]
    opener = getattr(import_module(f"{__name__}.{module}"), function)
    opened: AbstractContextManager[Phases] = partial(opener, **arguments)()
    return opened
