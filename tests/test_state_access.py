"""The state of pools, workers and calls is written only in the part that owns it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from .state_access import ROOT, Package, main

OWNERS = frozenset({"pool", "executor", "governor"})
"""Folders of the part that keeps pools, workers and calls."""
STATE = frozenset({"Pool", "Worker", "Roster", "Call"})
REQUEST = frozenset(
    {"abandon_on_cancel", "args", "context", "fn", "limiters", "kwargs", "completions", "pool", "profile"}
)
"""What a call is asked to do: written before it is submitted, by what asks for it."""
MAKERS = frozenset({"make_call", "submit"})
"""Functions that fill in a call that they have just made."""


def written_from_outside(package: Package) -> list[str]:
    """Return the places outside of the owning part that write state of a pool, a worker or a call."""
    return [
        f"{each.file}:{each.line} writes {each.owner}.{each.attribute}"
        for each in package.accesses()
        if each.writes and each.owner in STATE and each.file.split("/")[0] not in OWNERS
        if not (each.owner == "Call" and (each.attribute in REQUEST or each.function in MAKERS))
    ]


@cache
def ours() -> Package:
    """Return the package itself."""
    return Package(ROOT / "hybridrt")


def test_the_state_of_pools_workers_and_calls_is_written_in_the_part_that_owns_it() -> None:
    assert written_from_outside(ours()) == []


def test_the_words_of_the_package_are_known() -> None:
    names = ours().names
    assert (names["pool"], names["worker"], names["call"]) == ("Pool", "Worker", "Call")


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package of two files, of which one reaches into what the other owns."""
    (tmp_path / "pool").mkdir()
    (tmp_path / "loop").mkdir()
    (tmp_path / "pool" / "state.py").write_text(
        "class Call:\n    state: int\n    fn: object\n    def age(self) -> int: ...\n"
        "class Pool:\n    def __init__(self) -> None:\n        self.queued = 0\n        self.calls = []\n"
    )
    (tmp_path / "loop" / "taker.py").write_text(
        "def make_call(call: Call, pool: Pool) -> None:\n    call.state = 0\n    call.fn = pool.calls\n"
        "def steal(call: Call | None, pool: 'Pool') -> None:\n"
        "    call.state = 1\n    call.pool.queued += call.age()\n    call.fn = None\n    other.queued = 2\n"
    )
    return Package(tmp_path, ("Call", "Pool"))


def test_a_write_from_outside_is_found_and_a_request_and_a_new_call_are_allowed(package: Package) -> None:
    assert written_from_outside(package) == [
        "loop/taker.py:5 writes Call.state",
        "loop/taker.py:6 writes Pool.queued",
    ]


def test_reads_are_told_from_writes_and_methods_are_not_data(package: Package) -> None:
    assert [each.attribute for each in package.accesses() if not each.writes] == ["calls"]
    assert package.data["Call"] == {"state", "fn"}


def test_the_table_has_a_row_for_each_class(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    table = capsys.readouterr().out
    assert "\nCall " in table
    assert "\nPool " in table
    assert "_locked" in table
