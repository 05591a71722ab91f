"""A function moves to another place when its calls change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.loop.router import Router
from hybridrt.loop.size_class import SizeClass
from hybridrt.values import GilClass

SIZE = (4, 0, 0)
HOLDS: Any = SimpleNamespace(
    kind=None,
    gil=SimpleNamespace(name=lambda waits: GilClass.HOLDS),
    leaves_gil=False,
    wait_mean_ns=0,
)
PORT: Any = SimpleNamespace(pool=SimpleNamespace(budget=SimpleNamespace(cores=2, gil=True)))


def carry(router: Router, size_class: SizeClass, calls: int, *, call_ns: int, carry_ns: int) -> None:
    """Make calls where they are placed; each takes as long in a thread as in an isolate."""
    for _ in range(calls):
        if router.choose(size_class) == "thread":
            size_class.worked(call_ns, call_ns)
            router._judge(size_class, SIZE, PORT, HOLDS)
        else:
            round_trip = RoundTrip(
                wall_ns=call_ns + 2 * carry_ns,
                host_cpu_ns=carry_ns,
                child_wall_ns=call_ns,
                child_cpu_ns=call_ns,
                cold=False,
            )
            router.crossed(size_class, SIZE, PORT, HOLDS, round_trip)


@pytest.mark.parametrize("before", range(3, 11))
def test_a_function_moves_when_its_calls_change_whatever_their_number(before: int) -> None:
    router = Router(len, forced=None, on_loop=False)
    size_class = router.size_class(SIZE)
    for _ in range(before):
        size_class.worked(1_500_000, 1_500_000)
        router._judge(size_class, SIZE, PORT, HOLDS)
    carry(router, size_class, 500, call_ns=1_500_000, carry_ns=100_000)
    assert router.choose(size_class) == "isolate"
    carry(router, size_class, 100, call_ns=300_000, carry_ns=450_000)
    assert router.choose(size_class) == "thread"
