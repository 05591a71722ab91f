"""Child: a service that answers questions, each by four tools at once, and what its loop suffers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.children import agent_work
from benchmarks.children.pacer import figures
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.pulse import Pulse

__all__ = ["measure", "stand"]


def measure(*, way: str, loop: str, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    """Return the questions per second, their times, and the delay of the service's loop.

    Args:
        way: A name in `SERVICES`, or `fastapi` with what its runtime is.
        loop: `asyncio` or `uvloop`.
        pacing: Questions in flight, and seconds of warm-up and of measuring.
    """
    agent_work.warm_up()
    return run_on(loop, _over_http(way, pacing) if way.startswith("fastapi") else _in_process(way, pacing))


async def _in_process(way: str, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    from benchmarks.children.agent_services import SERVICES

    async with _server() as port, SERVICES[way](f"http://127.0.0.1:{port}/v1") as ask:
        return await stand(ask, int(pacing["questions"]), pacing["warmup"], pacing["seconds"])


async def _over_http(way: str, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    import uvicorn

    from benchmarks.children.agent_services import endpoints

    runtime = way.partition(", ")[2] or "none"
    async with _server():
        config = uvicorn.Config(endpoints(runtime), port=0, log_level="error", access_log=False, loop="none")
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            found, delays = await asyncio.gather(_load(port, pacing), _delays(pacing))
        finally:
            server.should_exit = True
            await serving
        return {**found, **delays}


async def _load(port: int, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    arguments = json.dumps({"port": port, "pacing": dict(pacing)})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.children.agent_load", arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    found: Mapping[str, Any] = json.loads(printed)
    return {name: value for name, value in found.items() if not name.startswith("loop_")}


async def _delays(pacing: Mapping[str, float]) -> Mapping[str, float | None]:
    """Watch the loop while the load lasts, which takes a moment to start."""
    await asyncio.sleep(pacing["warmup"])
    pulse = Pulse()
    pulse.start()
    await asyncio.sleep(pacing["seconds"])
    pulse.stop()
    return _of_the_loop(pulse)


def _of_the_loop(pulse: Pulse) -> Mapping[str, float | None]:
    """Return how late the loop was, and the share of a core that its thread has computed."""
    return {"loop_p99": pulse.quantile(0.99), "loop_max": pulse.quantile(1.0), "loop_cpu": pulse.cpu}


async def stand(
    ask: Callable[[str], Awaitable[object]], questions: int, warmup: float, seconds: float
) -> Mapping[str, Any]:
    """Keep so many questions in flight, and return what they and the loop did after the warm-up."""
    times: list[float] = []

    async def one(number: int) -> None:
        while True:
            begun = time.perf_counter()
            await ask(f"question {number}")
            times.append(time.perf_counter() - begun)

    standing = [asyncio.ensure_future(one(number)) for number in range(questions)]
    try:
        await _all_alive(standing, warmup)
        times.clear()
        pulse, begun = Pulse(), time.perf_counter()
        pulse.start()
        await _all_alive(standing, seconds)
        pulse.stop()
        took, taken = time.perf_counter() - begun, list(times)
    finally:
        for task in standing:
            task.cancel()
        await asyncio.gather(*standing, return_exceptions=True)
    return {
        "questions": len(taken) / took,
        "question": figures(taken or [took]),
        **_of_the_loop(pulse),
    }


async def _all_alive(standing: Sequence[asyncio.Future[None]], seconds: float) -> None:
    """Wait, or raise what ended one of them."""
    ended, _ = await asyncio.wait(standing, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


@asynccontextmanager
async def _server() -> AsyncIterator[int]:
    """Run the model and the documents in another process; gives the port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.children.agent_server",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port: int = json.loads(await process.stdout.readline())["port"]
        agent_work.point_to(port)
        yield port
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    serve(measure)
