"""Run CPython's own thread-pool tests on our executor, in a process of their own.

    python -m tests.stdlib.cpython_suite PART POLICY

`concurrent.futures.ThreadPoolExecutor` is replaced before CPython's tests are imported, so that
their mixins and the interpreters that they start find our class under that name. Prints what came
of it as JSON. `CPYTHON_TESTS` may name a folder that holds `test_concurrent_futures`, for an
interpreter that ships without it.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import json
import os
import sys
import unittest
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import hybridrt
from hybridrt import testing
from hybridrt.values import PolicyName

PACKAGE = "test.test_concurrent_futures"
FOLDER = "CPYTHON_TESTS"

PARTS = {
    "test_thread_pool": "ExecutorTest",
    "test_shutdown": "ShutdownTest",
    "test_init": "InitializerTest",
    "test_wait": "WaitTest",
    "test_as_completed": "AsCompletedTest",
}
"""The modules of CPython's package, and what the names of their test cases contain; in 3.11 the
package is one module, and the names alone tell the parts apart."""

_THREADS = (
    "counts `_threads` right after submitting; ours start as the calls before them are seen to wait, "
    "which tests/stdlib/test_submit.py holds without looking inside"
)
PRIVATE = {
    "test_default_workers": "expects `_max_workers` to be min(32, cores + 4); ours is a limit, not a size",
    "test_saturation": _THREADS,
    "test_threads_terminate": _THREADS,
}
"""Tests that look at how the stdlib's class works inside, and why they say nothing about ours."""


def substitute(policy: PolicyName) -> type[concurrent.futures.ThreadPoolExecutor]:
    """Put our class in the place of the stdlib's, and the tests within reach."""

    class AdaptiveThreadPoolExecutor(hybridrt.AdaptiveThreadPoolExecutor):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, policy=policy, **kwargs)

    for name in ("ThreadPoolExecutor", AdaptiveThreadPoolExecutor.__name__):
        setattr(concurrent.futures, name, AdaptiveThreadPoolExecutor)
    folder = os.environ.get(FOLDER)
    if folder and importlib.util.find_spec(PACKAGE) is None:
        cast("Any", importlib.import_module("test")).__path__.append(folder)
    return AdaptiveThreadPoolExecutor


def load(part: str, policy: PolicyName) -> ModuleType:
    """Import a part of CPython's tests, the interpreters it starts substituting too.

    Those interpreters run isolated from the environment, so all they need is in their code.
    """
    substitute(policy)
    module = importlib.import_module(f"{PACKAGE}.{part}" if _is_package() else PACKAGE)
    preamble = (
        f"import os, sys; sys.path[:0] = {sys.path!r}; os.environ.update({_folder()!r})\n"
        f"from tests.stdlib.cpython_suite import substitute; substitute({policy!r})\n"
    )
    run = getattr(module, "assert_python_ok", None)
    if run is not None:
        cast("Any", module).assert_python_ok = lambda flag, code: run(flag, preamble + code)
    return module


def _folder() -> dict[str, str]:
    return {FOLDER: os.environ[FOLDER]} if FOLDER in os.environ else {}


def _is_package() -> bool:
    """Return True if the tests are a package, as they are from 3.12 on."""
    spec = importlib.util.find_spec(PACKAGE)
    return spec is not None and spec.submodule_search_locations is not None


def cases(module: ModuleType, part: str) -> Iterator[type[unittest.TestCase]]:
    """Yield the test cases of a part that run on the substituted class."""
    for value in vars(module).values():
        if not isinstance(value, type) or not issubclass(value, unittest.TestCase):
            continue
        on_ours = getattr(value, "executor_type", None) is concurrent.futures.ThreadPoolExecutor
        if on_ours and PARTS[part] in value.__name__:
            yield value


def select(module: ModuleType, part: str) -> unittest.TestSuite:
    """Return the tests of a part, without those that look inside the class."""
    loader = unittest.defaultTestLoader
    names = [(case, name) for case in cases(module, part) for name in loader.getTestCaseNames(case)]
    return unittest.TestSuite(case(name) for case, name in names if name not in PRIVATE)


def run(part: str, policy: PolicyName) -> dict[str, Any]:
    """Run a part of CPython's tests and return what came of it."""
    support: Any = importlib.import_module("test.support")
    support.verbose = False  # it prints between the lines of our output
    module = load(part, policy)
    _stop_the_governor_before_threads_are_counted()
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(select(module, part))
    return {
        "ran": result.testsRun,
        "failed": {case.id(): text for case, text in result.failures + result.errors},
        "skipped": {case.id(): reason for case, reason in result.skipped},
        "leaked": support.environment_altered,
    }


def _stop_the_governor_before_threads_are_counted() -> None:
    """CPython's tests count all threads when one ends; the governor outlives the executors."""
    helper: Any = importlib.import_module("test.support.threading_helper")
    cleanup = helper.threading_cleanup

    def clean(*original: object) -> None:
        testing.reset()
        cleanup(*original)

    helper.threading_cleanup = clean


if __name__ == "__main__":
    json.dump(run(sys.argv[1], cast("PolicyName", sys.argv[2])), sys.stdout)
