"""Says which tests of the example this environment cannot run, instead of leaving them out in silence."""

from __future__ import annotations

import pytest

from .conftest import NEEDS, missing


@pytest.mark.parametrize("file", NEEDS)
def test_the_packages_that_a_file_of_tests_needs_are_here(file: str) -> None:
    if absent := missing(file):
        pytest.skip(f"{file} was left out: it needs {', '.join(absent)} of the extra `rag`")
