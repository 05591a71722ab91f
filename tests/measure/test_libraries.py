"""Native libraries with threads of their own, by their names."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hybridrt.measure.libraries import adjustable_libraries, threaded_libraries


def threadpoolctl(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any], version: str = "3.7.0") -> None:
    """Let threadpoolctl be there, and have found these libraries."""
    module = ModuleType("threadpoolctl")
    module.__version__ = version  # type: ignore[attr-defined]
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


@pytest.fixture(autouse=True)
def no_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)


def test_a_session_of_onnx_runtime_has_a_thread_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl(monkeypatch)
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert threaded_libraries() == (("onnxruntime", 4, "SessionOptions.intra_op_num_threads"),)


def test_libraries_whose_number_is_for_the_whole_process_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl(monkeypatch)
    rows = [("blas", "pthreads", "a.so"), ("blas", "openmp", "b.so"), ("openmp", None, "c.so")]
    controllers = [
        SimpleNamespace(user_api=api, threading_layer=layer, filepath=path) for api, layer, path in rows
    ]
    sys.modules["threadpoolctl"].ThreadpoolController = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        lib_controllers=controllers
    )
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert adjustable_libraries() == [("a.so", controllers[0])]


@pytest.mark.parametrize(("version", "asked"), [("3.6.0", False), ("3.7.0", True), ("3.10.0rc1", True)])
def test_a_threadpoolctl_whose_look_can_block_the_loader_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, version: str, asked: bool
) -> None:
    row = {"user_api": "blas", "internal_api": "openblas", "num_threads": 8}
    threadpoolctl(monkeypatch, row, version=version)
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    looked: list[int] = []
    sys.modules["threadpoolctl"].ThreadpoolController = lambda: (  # type: ignore[attr-defined]
        looked.append(1) or SimpleNamespace(lib_controllers=[])
    )
    assert adjustable_libraries() == []
    assert (bool(looked), bool(threaded_libraries())) == (asked, asked)


def test_nothing_is_looked_for_before_a_package_is_imported_that_brings_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threadpoolctl(monkeypatch)  # which has no controllers here
    for name in ("faiss", "numpy", "scipy", "sklearn", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert adjustable_libraries() == []


def test_without_threadpoolctl_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert threaded_libraries() == ()
    assert adjustable_libraries() == []
