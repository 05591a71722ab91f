"""Child: the gateway before an upstream, asked by clients; both are processes of their own.

The ways differ in where the gateway's computing steps run: those of the request (checks of large bodies)
and those beside it (tokens, entropy, hashes). The audit log writes from a thread of its own in each.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.children.protocol import run_on, serve
from benchmarks.children.pulse import Pulse

__all__ = ["measure"]

R = TypeVar("R")

KEY = "sk-a-key-for-the-benchmark"
_MODEL = "small"
_START_SECONDS = 300.0
_FIRST = {"key": KEY, "model": _MODEL, "concurrency": 1, "warmup": 0.0, "seconds": 2.0}
"""Requests until the first one is answered: LiteLLM's proxy loads a part of itself with it."""


def measure(
    *, way: str, concurrencies: Sequence[int], warmup: float, seconds: float, durability: str = "fast"
) -> Mapping[str, Any]:
    """Return, by concurrency, what the clients saw, the delay of the gateway's loop, and records left out.

    Args:
        way: `runtime`, `loop`, `to_thread`; `workers` for two processes on a port, `litellm`.
        concurrencies: Clients at once, one after the other.
        warmup: Seconds of each that do not count.
        seconds: Seconds that do.
        durability: Of the audit log.
    """
    main = _sweep(way, concurrencies, {"warmup": warmup, "seconds": seconds}, durability)
    return run_on("uvloop" if sys.platform != "win32" else "asyncio", main)


async def _sweep(
    way: str, concurrencies: Sequence[int], pacing: Mapping[str, float], durability: str
) -> Mapping[str, Any]:
    found = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = await stack.enter_async_context(_upstream())
        port, own = await stack.enter_async_context(WAYS[way](folder, upstream, durability))
        for concurrency in concurrencies:
            pulse = Pulse()
            if own:
                pulse.start()
            seen = await _load(
                {"port": port, "key": KEY, "model": _MODEL, "concurrency": concurrency, **pacing}
            )
            pulse.stop()
            found[str(concurrency)] = {
                **seen,
                "loop_delay": pulse.quantile(0.99) if own else None,
                "left_out": await _left_out(port) if own else None,
            }
    return {"sweep": found}


async def _left_out(port: int) -> int:
    """Return how many records the gateway has not made until now because there were too many."""
    import aiohttp
    from prometheus_client.parser import text_string_to_metric_families

    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
    samples = (sample for family in families for sample in family.samples)
    return sum(
        int(sample.value)
        for sample in samples
        if sample.name == "gateway_audit_records_total" and sample.labels["fate"] == "shed"
    )


@asynccontextmanager
async def _upstream() -> AsyncIterator[str]:
    async with _child("-m", "benchmarks.children.gateway_upstream") as child:
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(await child.stdout.readline())}/v1"


@asynccontextmanager
async def _child(*command: str, python: str = sys.executable, **options: Any) -> AsyncIterator[Any]:
    """Run a process that ends with the block."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(python, *command, stdin=pipe, stdout=pipe, **options)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.communicate()


async def _load(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    async with _child("-m", "benchmarks.children.gateway_load", json.dumps(arguments)) as child:
        assert child.stdout is not None
        printed = await child.stdout.read()
        if await child.wait():
            raise RuntimeError("the clients failed; see above")
    seen: Mapping[str, Any] = json.loads(printed)
    return seen


def _settings(folder: Path, upstream: str, durability: str) -> dict[str, Any]:
    digest = hashlib.new("sha256", KEY.encode()).hexdigest()
    return {
        "server": {"log_requests": False},
        "audit": {"folder": str(folder / "audit"), "durability": durability},
        "keys": [{"name": "bench", "sha256": digest, "rate": 1e9, "burst": 1e9}],
        "upstreams": [{"name": "only", "url": upstream, "concurrency": 1000}],
    }


# ---------------------------------------------------------------------- ways


class _OnLoop:
    """Runs the computing steps where they are called."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def offload(self, fn: Callable[..., R], /, *args: Any) -> R:
        return fn(*args)

    def background(self, coro: Coroutine[Any, Any, R], *, name: str | None = None) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _ToThread(_OnLoop):
    """Runs them by `asyncio.to_thread`."""

    async def offload(self, fn: Callable[..., R], /, *args: Any) -> R:
        return await asyncio.to_thread(fn, *args)


@asynccontextmanager
async def _own(
    folder: Path, upstream: str, durability: str, work: _OnLoop | None = None
) -> AsyncIterator[tuple[int, bool]]:
    from gateway.config import parse
    from gateway.serving import bind, serving

    from hybridrt import Runtime

    listener = bind("127.0.0.1", 0, shared=False)
    port = listener.getsockname()[1]
    async with AsyncExitStack() as stack:
        if work is None:
            await stack.enter_async_context(Runtime())
        config = parse(_settings(folder, upstream, durability))
        await stack.enter_async_context(serving(config, listener, work=work))
        yield port, True


def _plain(work: type[_OnLoop]) -> Callable[[Path, str, str], Any]:
    return lambda folder, upstream, durability: _own(folder, upstream, durability, work())


@asynccontextmanager
async def _workers(folder: Path, upstream: str, durability: str) -> AsyncIterator[tuple[int, bool]]:
    """Two workers on a port, as from the command line."""
    lines = []
    for name, content in _settings(folder, upstream, durability).items():
        for row in content if isinstance(content, list) else [content]:
            lines.append(f"[[{name}]]" if isinstance(content, list) else f"[{name}]")
            lines += [f"{each} = {json.dumps(value)}" for each, value in row.items()]
    config = folder / "gateway.toml"
    await asyncio.to_thread(config.write_text, "\n".join(lines))
    command = ("-m", "gateway", "--config", str(config), "--port", "0", "--workers", "2")
    async with _child(*command) as child:
        told = [(await child.stdout.readline()).decode() for _ in range(2)]
        yield int(told[0].rpartition(":")[2]), False


@asynccontextmanager
async def _litellm(folder: Path, upstream: str, durability: str) -> AsyncIterator[tuple[int, bool]]:
    """LiteLLM's proxy, by the interpreter that `LITELLM_PYTHON` names."""
    config = folder / "litellm.yaml"
    content = (
        f"model_list:\n  - model_name: {_MODEL}\n    litellm_params:\n      model: openai/{_MODEL}\n"
        f"      api_base: {upstream}\n      api_key: none\ngeneral_settings:\n  master_key: {KEY}\n"
    )
    await asyncio.to_thread(config.write_text, content)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = "from litellm import run_server; run_server()"
    options = ("--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        os.environ["LITELLM_PYTHON"], "-c", program, *options, env=environment, stdout=quiet, stderr=quiet
    )
    try:
        await _listening(port, child)
        yield port, False
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


async def _listening(port: int, child: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while child.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await _load({**_FIRST, "port": port})
            except (OSError, RuntimeError):
                await asyncio.sleep(1.0)
            else:
                return
    raise RuntimeError("LiteLLM's proxy did not start; try `LITELLM_PYTHON -c 'import litellm.proxy'`")


WAYS: Mapping[str, Callable[[Path, str, str], Any]] = {
    "runtime": _own,
    "loop": _plain(_OnLoop),
    "to_thread": _plain(_ToThread),
    "workers": _workers,
    "litellm": _litellm,
}


if __name__ == "__main__":
    serve(measure)
