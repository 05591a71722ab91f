"""The benchmark of frameworks: what its report says of samples, and one request to some of them."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks import frameworks
from benchmarks.children.adapters import ADAPTERS
from benchmarks.harness import spawn


def sample(requests: float, p99: float, loop_p99: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "request": {"p50": 0.1, "p99": p99},
        "latency": {"p50": 0.001, "p99": loop_p99},
        "collections": [0.03, 0.07],
    }


def figures(*, requests: float = 100.0, p99: float = 0.5, loop_p99: float = 0.2) -> frameworks.Figures:
    return frameworks.figures([sample(requests, p99, loop_p99)] * 3)


def test_every_framework_is_measured_both_ways() -> None:
    assert set(frameworks.FRAMEWORKS) == set(ADAPTERS)
    names = [candidate.name for candidate in frameworks.candidates(quick=True)]
    assert names == [f"{name}, {way}" for name in frameworks.FRAMEWORKS for way in ("default", "hybridrt")]


@pytest.mark.parametrize(
    ("ours", "held"),
    [
        ({"requests": 131.0, "loop_p99": 0.019}, [True, True]),
        ({"p99": 0.34, "loop_p99": 0.021}, [True, False]),
        ({"requests": 129.0, "p99": 0.36, "loop_p99": 0.019}, [False, True]),
    ],
)
def test_a_promise_is_held_by_more_requests_or_by_sooner_ones(
    ours: dict[str, float], held: list[bool]
) -> None:
    found = {"fastapi, default": figures(), "fastapi, hybridrt": figures(**ours)}
    assert [target.to_dict()["held"] for target in frameworks._targets(found)] == held


def test_a_row_of_ours_is_compared_with_the_row_above_it() -> None:
    found = {"mcp, default": figures(), "mcp, hybridrt": figures(requests=150.0, p99=0.25, loop_p99=0.02)}
    as_it_is, with_line = frameworks._rows(found)
    assert (as_it_is[-3:], with_line[-3:]) == (["", "", ""], ["1.50", "0.50", "0.10"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(not all(map(find_spec, needs)), reason="needs frameworks")
        )
        for name, (_, _, needs) in frameworks.FRAMEWORKS.items()
        if name not in ("fastapi", "starlette", "aiohttp")
    ],
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_request_calls_the_tool_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")

    def tool(number: int) -> int:
        """Note a number."""
        asked.append(number)
        return number

    async def ask() -> None:
        async with ADAPTERS[name](tool) as request:
            assert callable(request)
            await request()

    asyncio.run(ask())
    assert asked == [4]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "way"), [("fastapi", "hybridrt"), ("langchain", "default")])
def test_a_run_gives_requests_and_latencies(framework: str, way: str) -> None:
    (candidate,) = [c for c in frameworks.candidates(quick=True) if c.name == f"{framework}, {way}"]
    if not all(map(find_spec, candidate.needs)):
        pytest.skip("needs frameworks")
    for seconds in (0.5, 2.0, 10.0):  # on a busy machine nothing ends in a short run
        pacing = {"rate": 40, "connections": 1, "warmup": 0.2, "seconds": seconds}
        small = {**candidate.arguments, "requests": 2, "pause": 0.0, "pacing": pacing}
        found = spawn(type(candidate)(name=candidate.name, job=candidate.job, arguments=small))
        assert found["latency"]["count"] == 40 * seconds
        if found["request"]["count"]:
            break
    assert found["requests"] >= 0
    assert found["request"]["count"] > 0
