"""Start the extractive answerer as a child process, and see that it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import hybridrt

from .errors import EndpointError

__all__ = ["extractive_endpoint"]

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 5.0


@contextlib.asynccontextmanager
async def extractive_endpoint(
    model: Path | None, onnx_file: Path
) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Run the answerer beside the job; await what this gives for its base URL.

    The child ends when the pipe to its standard input closes, so it outlives neither this block nor,
    by whatever end, this process. It has a session of its own: Ctrl-C is for the parent to handle.

    Raises:
        EndpointError: It did not come up (when its URL is asked for).
    """
    process = await _start(model, onnx_file)
    try:
        yield partial(_address, process)
    finally:
        await _stop(process)


async def _start(model: Path | None, onnx_file: Path) -> asyncio.subprocess.Process:
    command, path = _command(model, onnx_file)
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )


def _command(model: Path | None, onnx_file: Path) -> tuple[list[str], str]:
    """Return the command and its import path: ours, and not (`-P`) the working directory."""
    command = [sys.executable, "-P", "-m", "ragkit.endpoint", "--onnx", os.path.abspath(onnx_file)]
    if model is not None:
        command += ["--model", os.path.abspath(model)]
    homes = (str(Path(module).resolve().parent.parent) for module in (__file__, str(hybridrt.__file__)))
    return command, os.pathsep.join(filter(None, [*homes, os.environ.get("PYTHONPATH")]))


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            line = await process.stdout.readline()
        url: str = json.loads(line)["url"]
        return url
    except (TimeoutError, ValueError, KeyError) as error:
        raise EndpointError(
            f"expected the extractive answerer to print its address within {_START_TIMEOUT:g} s, got "
            f"{type(error).__name__} (exit code {process.returncode}); see its own message above"
        ) from error


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
