"""What calls have cost by size: which inputs tell theirs, and what an overrun does."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any

import pytest

from hybridrt.observe.placement import FORGIVEN, PAUSE, PAUSE_MAX, Figures, Overruns, measure


class Text(str):
    pass


class Number(int):
    pass


SIZES: list[tuple[tuple[Any, ...], dict[str, Any], tuple[int, int, int]]] = [
    ((), {}, (0, 0, 0)),
    (("abc",), {}, (3, 0, 0)),
    ((b"abc", bytearray(4)), {}, (7, 0, 0)),
    (([1, 2], (3,), {4}, frozenset({5, 6}), {7: 8}, range(10)), {}, (17, 0, 0)),
    (("abc",), {"pattern": "de"}, (5, 0, 0)),
    ((7, -9), {}, (0, 4, 7)),
    ((7,), {"count": 12}, (0, 4, 7)),
    ((1 << 4000, 0), {}, (0, 4001, 4001)),
    ((None, True, 2.5, 1j), {}, (0, 0, 0)),
]


@pytest.mark.parametrize(("args", "kwargs", "size"), SIZES)
def test_the_size_of_an_input_is_the_sum_of_its_lengths_and_the_magnitudes_of_its_numbers(
    args: tuple[Any, ...], kwargs: dict[str, Any], size: tuple[int, int, int]
) -> None:
    assert measure(args, kwargs) == size


@pytest.mark.parametrize(
    "value",
    [Text("abc"), Number(3), OrderedDict(), defaultdict(list), Counter("ab"), object(), memoryview(b"")],
)
def test_only_exactly_builtin_types_tell_a_size(value: object) -> None:
    assert measure(("abc", value), {}) is None
    assert measure(("abc",), {"option": value}) is None


def test_a_call_is_as_long_as_it_computed_and_blocked_at_least() -> None:
    figures = Figures()
    for wall_ns, cpu_ns in ((900, 100), (500, 200), (700, 300)):
        figures.worked(wall_ns, cpu_ns)
    assert figures.cpu_ns == 200
    assert figures.blocked_ns == 300
    assert figures.longest_ns == 600


def test_an_expensive_first_call_is_forgotten() -> None:
    figures = Figures()
    for cpu_ns in (1_000_000, 5, 5, 5):
        figures.worked(cpu_ns, cpu_ns)
    assert figures.longest_ns == 5


def test_each_overrun_sends_twice_as_many_calls_away() -> None:
    overruns, sent = Overruns(), []
    for calls in range(1, 13):
        overruns.note(1_000_000, calls)
        sent.append(overruns.left)
    assert sent == [min(PAUSE * 2**n, PAUSE_MAX) for n in range(12)]
    assert overruns.count == 12


def test_after_many_calls_in_time_an_overrun_counts_as_the_first() -> None:
    overruns = Overruns()
    overruns.note(1_000_000, 1)
    overruns.note(3_000_000, 2)
    overruns.note(2_000_000, 2 + FORGIVEN * 2 * PAUSE)
    assert overruns.left == PAUSE
    assert overruns.longest_ns == 3_000_000


def test_a_longer_overrun_is_forgiven_after_more_calls() -> None:
    overruns, sent = Overruns(), []
    for calls in range(1000, 13_000, 1000):
        overruns.note(500_000_000, calls)
        sent.append(overruns.left)
    assert sent == [min(PAUSE * 2**n, PAUSE_MAX) for n in range(12)]
    overruns.note(500_000_000, 12_000 + FORGIVEN * PAUSE_MAX)
    assert overruns.left == PAUSE


US, MS = 1_000, 1_000_000
LONG = [
    pytest.param(1 * MS, 1 * MS, 0, True, id="computed all the time"),
    pytest.param(150 * US, 150 * US, 0, False, id="computed a little longer"),
    pytest.param(20 * MS, 5 * MS, 0, True, id="computed, and was kept from a core"),
    pytest.param(500 * MS, 10 * US, 1, True, id="slept"),
    pytest.param(500 * MS, 10 * US, None, True, id="slept, and nobody counts waits"),
    pytest.param(40 * MS, 2 * MS, 0, False, id="kept from a core, and billed for it"),
    pytest.param(500 * MS, 10 * US, 0, False, id="kept from a core"),
    pytest.param(40 * MS, 5 * MS, 300, False, id="wanted the GIL at a short switch interval"),
    pytest.param(140 * MS, 7 * MS, 900, False, id="wanted the GIL for a long time"),
    pytest.param(2 * MS, 400 * US, 15, False, id="wanted the GIL for a short time"),
    pytest.param(1 * MS, 10 * US, 1, False, id="waited for a short time"),
]


@pytest.mark.parametrize(("wall_ns", "cpu_ns", "waits", "overrun"), LONG)
def test_a_long_call_is_an_overrun_if_it_was_long_by_itself(
    wall_ns: int, cpu_ns: int, waits: int | None, overrun: bool
) -> None:
    assert Overruns().is_one(wall_ns, cpu_ns, waits, 100 * US, 1) is overrun


def test_a_call_that_waits_for_a_short_time_again_and_again_is_an_overrun() -> None:
    overruns = Overruns()
    assert not any(overruns.is_one(1 * MS, 0, 1, 100 * US, 3 * call) for call in range(1000))
    assert any(overruns.is_one(1 * MS, 0, 1, 100 * US, 3000 + call) for call in range(100))


def test_calls_that_wait_now_and_then_are_overruns_once_they_have_waited_for_long_in_sum() -> None:
    overruns = Overruns()
    found = [overruns.is_one(40 * MS, 0, 1, 5 * MS, 3 * call) for call in range(7)]
    assert found == [False] * 5 + [True] * 2
    assert not any(overruns.is_one(40 * MS, 0, 1, 5 * MS, 1000 + 20 * call) for call in range(20))


def test_a_call_that_has_become_a_little_longer_for_good_is_an_overrun() -> None:
    overruns = Overruns()
    assert any(overruns.is_one(150 * US, 150 * US, 0, 100 * US, call) for call in range(100))
