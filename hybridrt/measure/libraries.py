"""The native libraries that compute in threads of their own: BLAS, OpenMP.

`threadpoolctl` knows their names and how many threads each may use; where it is not installed they are
nameless.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

__all__ = ["Library", "threaded_libraries"]

_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}
"""Environment variables that set the number of threads; those of OpenMP's own otherwise."""


class Library(NamedTuple):
    """A library that is loaded.

    Attributes:
        name: As threadpoolctl calls it, such as `openblas`.
        threads: How many it may use for a call, its caller's included.
        variable: The environment variable that sets that number, read when it is loaded.
    """

    name: str
    threads: int
    variable: str


def threaded_libraries() -> tuple[Library, ...]:
    """Return those that may use more than one thread; none if threadpoolctl cannot be imported.

    It looks through all loaded libraries, which takes some milliseconds.
    """
    try:
        found = import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return ()
    return tuple(
        Library(
            row["internal_api"], row["num_threads"], _VARIABLES.get(row["internal_api"], "OMP_NUM_THREADS")
        )
        for row in found
        if row["num_threads"] > 1
    )
