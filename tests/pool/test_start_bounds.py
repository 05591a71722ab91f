"""Within what time a call of each kind starts beside each kind of neighbour: each cell of the docs.

Played by hand: the governor takes the longest sleeps that it may, and the neighbours never end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridrt.errors import IsolateStartError
from hybridrt.executor.future import ThreadCall
from hybridrt.governor.governor import LATE_NS, SPARE_NS
from hybridrt.pool.limiters import Limiter, WatchedLimiter
from hybridrt.pool.state import QUEUED
from hybridrt.values import Kind

from .support import MS, Stage, named

DOCS = Path(__file__).parents[2] / "docs" / "when-a-call-starts.md"
LENGTHY = 2.0
"""Seconds that a lengthy call usually takes."""
BOUNDS = {"at once": 0.1, "0.5 s": 0.5, "1 s": 1.0, "4 x": 4 * LENGTHY}
"""What the cells of the table say, in seconds."""
TICK = 4
"""Milliseconds that pass at once beside short calls; four times as many without."""


class World(Stage):
    """A stage with isolates and neighbours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.isolates = WatchedLimiter(self.budget.cores, "isolates", most=2 * self.budget.cores)
        self.budget.limiters.append(self.isolates)
        self.traffic: list[ThreadCall] = []
        self.brief: Callable[..., Any] | None = None
        self._looks_at_ns = 0

    def tick(self) -> None:
        """Let some time pass, each millisecond with a short call if there is traffic, and then look."""
        if self.brief is None:
            self.clock.advance(4 * TICK * MS)
        for _ in range(TICK if self.brief is not None else 0):
            self.clock.advance(MS)
            for call in [call for call in self.traffic if call.state != QUEUED]:
                self.traffic.remove(call)
                self.end(call)
            self.traffic.append(self.push(self.brief))
        if self.clock.now_ns >= self._looks_at_ns:
            self.step()
            longest = LATE_NS if self.budget.waiting_for_permit else SPARE_NS
            self._looks_at_ns = self.clock.now_ns + longest
        self.calls = [call for call in self.calls if not call.done()]

    def settle(self, ticks: int = 4) -> None:
        """Let the governor see what the neighbours do."""
        for _ in range(ticks):
            self.tick()

    def spin(self, *calls: ThreadCall) -> None:
        """Let calls compute from now on, as soon as they run."""
        while any(call not in self.running() for call in calls):
            self.tick()
        self.compute(*calls)
        self.settle()


# ---------------------------------------------------------------------- the neighbours


def endless_computing(world: World) -> None:
    """More than the permits allow, of functions nobody knew."""
    for number in range(4):
        world.spin(world.push(named(f"endless_{number}")))


def endless_waiting(world: World) -> None:
    """As many as the law lets wait at once."""
    world.push_many(world.pool.sizing.state.workers, world.learn(Kind.WAITING, "endless_waiting", usual=0.02))
    world.settle()


def endless_gil_free(world: World) -> None:
    """As many as there are cores."""
    fn = world.learn(Kind.FREE, "endless_free", usual=0.04)
    world.spin(*world.push_many(world.budget.cores, fn))


def long_job(world: World) -> None:
    """One of a function that is known to take long."""
    world.spin(world.push(world.learn(Kind.LONG, "job", usual=60.0)))


def long_isolate_calls(world: World) -> None:
    """As many as there are isolates."""
    fn = world.learn(Kind.WAITING, "far_job", usual=60.0)
    for _ in range(world.isolates.limit):
        world.push(fn, limiters=(world.isolates,))
    world.settle()


def spinning(world: World) -> None:
    """Calls that compute until another one has ended, which is queued and never ends either."""
    fn = world.learn(Kind.LONG, "spins", usual=0.04)
    first, second = world.push(fn), world.push(fn)
    world.spin(first)
    world.spin(second)


def traffic(world: World) -> None:
    """A thousand short calls a second."""
    world.brief = world.learn(Kind.SHORT, "brief", usual=0.001)
    world.settle()


NEIGHBOURS: dict[str, tuple[Callable[[World], None], ...]] = {
    "a thousand short calls a second": (traffic,),
    "endless computing": (endless_computing,),
    "endless waiting": (endless_waiting,),
    "endless GIL-free": (endless_gil_free,),
    "a long known job": (long_job,),
    "long isolate calls": (long_isolate_calls,),
    "spinning on another's result": (spinning,),
    "all of them": (
        endless_computing, endless_waiting, endless_gil_free, long_job, long_isolate_calls, spinning,
    ),
}  # fmt: skip


# ---------------------------------------------------------------------- the calls


def of(kind: Kind, usual: float, **fields: Any) -> Callable[[World], ThreadCall]:
    """Return what submits a call of a function that is known."""
    return lambda world: world.push(world.learn(kind, f"probe_{kind}", usual=usual), **fields)


def isolated(**fields: Any) -> Callable[[World], ThreadCall]:
    """Return what submits a call that runs in an isolate."""
    return lambda world: of(Kind.WAITING, 0.004, limiters=(world.isolates,), **fields)(world)


PROBES: dict[str, Callable[[World], ThreadCall]] = {
    "of an unknown function": lambda world: world.push(named("probe_unknown")),
    "short": of(Kind.SHORT, 0.001),
    "long, usually 0.04 s": of(Kind.LONG, 0.04),
    "long, usually 0.49 s": of(Kind.LONG, 0.49),
    "long, usually 2 s": of(Kind.LONG, LENGTHY),
    "waiting": of(Kind.WAITING, 0.02),
    "GIL-free": of(Kind.FREE, 0.04),
    "`pure`, chosen for an isolate": isolated(spills=True),
    '`where="isolate"`': isolated(),
    "long, let in by its `limit`": lambda world: of(Kind.LONG, 0.04, limiters=(Limiter(1, "limit"),))(world),
    "short, let in by its `lane`": lambda world: of(Kind.SHORT, 0.001, limiters=(Limiter(1, "lane"),))(world),
    "name resolution": of(Kind.WAITING, 0.02, resolves=True),
}
elsewhere = of(Kind.SHORT, 0.004)
"""Submits the call again for which no isolate came free."""


def read_table() -> dict[tuple[str, str], float]:
    """Return the bounds that the docs promise, by call and neighbour."""
    rows = [line.strip("|").split("|") for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    (_, *neighbours), _, *calls = [[cell.strip() for cell in row] for row in rows]
    assert (neighbours, [row[0] for row in calls]) == (list(NEIGHBOURS), list(PROBES))
    return {
        (kind, neighbour): BOUNDS[cell]
        for kind, *cells in calls
        for neighbour, cell in zip(neighbours, cells, strict=True)
    }


def seconds_until_it_starts(world: World, kind: str, most: float) -> float:
    """Submit a call and let time pass until it runs, or until `most` seconds are over."""
    begun = world.clock.now_ns
    call = PROBES[kind](world)
    while world.clock.now_ns < begun + most * 1e9:
        if call.done():
            assert isinstance(call.exception(), IsolateStartError)
            call = elsewhere(world)
        if call in world.running():
            break
        world.tick()
    return (world.clock.now_ns - begun) / 1e9


def build(neighbours: str, *, short_calls: bool) -> World:
    """Return a stage on which the neighbours have begun, with a thousand short calls a second beside them."""
    world = World()
    for neighbour in (*NEIGHBOURS[neighbours], *([traffic] if short_calls else [])):
        neighbour(world)
    return world


_CELLS = [
    pytest.param(*cell, bound, marks=[pytest.mark.slow] if cell[1] == "all of them" else [])
    for cell, bound in read_table().items()
]


@pytest.mark.parametrize("short_calls", [False, True], ids=["", "and a thousand short ones a second"])
@pytest.mark.parametrize(("kind", "neighbours", "bound"), _CELLS)
def test_a_call_starts_within_the_bound_of_the_docs(
    kind: str, neighbours: str, bound: float, short_calls: bool
) -> None:
    world = build(neighbours, short_calls=short_calls)
    assert seconds_until_it_starts(world, kind, bound + 1.0) <= bound
