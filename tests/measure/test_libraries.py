"""Native libraries with threads of their own, by their names."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from hybridrt.measure.libraries import threaded_libraries


def threadpoolctl(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> None:
    """Let threadpoolctl be there, and have found these libraries."""
    module = ModuleType("threadpoolctl")
    module.threadpool_info = lambda: list(rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "threadpoolctl", module)


def test_libraries_with_several_threads_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl(
        monkeypatch,
        {"user_api": "blas", "internal_api": "openblas", "num_threads": 8},
        {"user_api": "openmp", "internal_api": "openmp", "num_threads": 4},
        {"user_api": "blas", "internal_api": "mkl", "num_threads": 1},
    )
    assert threaded_libraries() == (
        ("openblas", 8, "OPENBLAS_NUM_THREADS"),
        ("openmp", 4, "OMP_NUM_THREADS"),
    )


def test_without_threadpoolctl_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert threaded_libraries() == ()
