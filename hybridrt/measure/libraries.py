"""The native libraries that compute in threads of their own: BLAS, OpenMP.

`threadpoolctl` knows their names and how many threads each may use; where it is not installed they are
nameless.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["Library", "adjustable_libraries", "threaded_libraries"]

_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}
"""Environment variables that set the number of threads; those of OpenMP's own otherwise."""


_LEAST = [3, 7]
"""Version of threadpoolctl that may be asked; see `_threadpoolctl`."""
_PACKAGES = frozenset({"faiss", "numpy", "scipy", "sklearn", "torch"})
"""Packages that load a BLAS, or are built on one that does."""


class Library(NamedTuple):
    """A library that is loaded.

    Attributes:
        name: As threadpoolctl calls it, such as `openblas`.
        threads: How many it may use for a call, its caller's included.
        variable: What sets that number: an environment variable, read when it is loaded, or an option.
    """

    name: str
    threads: int
    variable: str


def threaded_libraries() -> tuple[Library, ...]:
    """Return those that may use more than one thread; few if threadpoolctl cannot be imported.

    It looks through all loaded libraries, which takes some milliseconds.
    """
    try:
        found = _threadpoolctl().threadpool_info()
    except ImportError:
        found = []
    named = tuple(
        Library(
            row["internal_api"], row["num_threads"], _VARIABLES.get(row["internal_api"], "OMP_NUM_THREADS")
        )
        for row in found
        if row["num_threads"] > 1
    )
    return (*named, *_onnx_runtime())


def _threadpoolctl() -> Any:
    """Return the module.

    Raises:
        ImportError: It is not there, or older than 3.7. Such a one asks the loader by a callback in Python,
            which waits for the GIL while it has the loader's lock. A thread that imports an extension has the
            GIL and waits for that lock.
    """
    module = import_module("threadpoolctl")
    found = [int(part) for part in re.findall(r"\d+", module.__version__)[:2]]
    if found < _LEAST:
        raise ImportError(f"expected threadpoolctl 3.7 or later, got {module.__version__}")
    return module


def _onnx_runtime() -> tuple[Library, ...]:
    """Return ONNX Runtime if the program has imported it: each session has a pool of its own, which no code
    outside can read, by default of a thread for each core.
    """
    cores = os.cpu_count() or 1
    if "onnxruntime" not in sys.modules or cores < 2:
        return ()
    return (Library("onnxruntime", cores, "SessionOptions.intra_op_num_threads"),)


def adjustable_libraries() -> list[tuple[str, Any]]:
    """Return the libraries whose threads one thread can set for all, by their files.

    It looks through all loaded libraries, which takes some milliseconds, once a package that brings one is
    imported; none without threadpoolctl.
    """
    if _PACKAGES.isdisjoint(sys.modules):
        return []
    try:
        controllers = _threadpoolctl().ThreadpoolController().lib_controllers
    except ImportError:
        return []
    return [
        (controller.filepath, controller)
        for controller in controllers
        if controller.user_api == "blas" and getattr(controller, "threading_layer", None) != "openmp"
    ]
