"""A function moves to another place when its calls change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt.loop.placing import Placing, Spot
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.values import GilClass

SIZE = (4, 0, 0)
HOLDS: Any = SimpleNamespace(
    kind=None,
    gil=SimpleNamespace(name=lambda waits: GilClass.HOLDS),
    leaves_gil=False,
    wait_mean_ns=0,
)
PORT: Any = SimpleNamespace(pool=SimpleNamespace(interpreter=SimpleNamespace(cores=2, gil=True)))


def carry(placing: Placing, spot: Spot, calls: int, *, call_ns: int, carry_ns: int) -> None:
    """Make calls where they are placed; each takes as long in a thread as in an isolate."""
    for _ in range(calls):
        if placing.choose(spot) == "thread":
            spot.worked(call_ns, call_ns)
            placing._judge(spot, SIZE, PORT, HOLDS)
        else:
            crossing = Crossing(
                wall_ns=call_ns + 2 * carry_ns,
                host_cpu_ns=carry_ns,
                child_wall_ns=call_ns,
                child_cpu_ns=call_ns,
                cold=False,
            )
            placing.crossed(spot, SIZE, PORT, HOLDS, crossing)


@pytest.mark.parametrize("before", range(3, 11))
def test_a_function_moves_when_its_calls_change_whatever_their_number(before: int) -> None:
    placing = Placing(len, forced=None, on_loop=False)
    spot = placing.spot(SIZE)
    for _ in range(before):
        spot.worked(1_500_000, 1_500_000)
        placing._judge(spot, SIZE, PORT, HOLDS)
    carry(placing, spot, 500, call_ns=1_500_000, carry_ns=100_000)
    assert placing.choose(spot) == "isolate"
    carry(placing, spot, 100, call_ns=300_000, carry_ns=450_000)
    assert placing.choose(spot) == "thread"
