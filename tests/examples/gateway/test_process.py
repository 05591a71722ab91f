"""The gateway as a process: starting, SIGTERM, several workers on one port."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp
import pytest
from gateway.__main__ import main
from gateway.workers import supervise

import hybridrt

from .servers import KEY, Upstream, asking, settings, stall, upstream, well
from .test_service import post

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals and SO_REUSEPORT"),
    pytest.mark.timeout(300),
]


def write(folder: Path, *upstreams: Upstream, **server: Any) -> Path:
    """Write a configuration with an audit log and return its path."""
    lines = ["[server]", *(f"{name} = {json.dumps(value)}" for name, value in server.items())]
    lines += ["[audit]", f"folder = {json.dumps(str(folder / 'audit'))}", 'durability = "strict"']
    for name, rows in settings(*upstreams).items():
        for row in rows:
            lines += [f"[[{name}]]", *(f"{each} = {json.dumps(value)}" for each, value in row.items())]
    path = folder / "gateway.toml"
    path.write_text("\n".join(lines))
    return path


def command(*options: str, module: str = "examples.gateway") -> list[str]:
    """Return the command line of the gateway."""
    return [sys.executable, "-W", "error", "-m", module, *options]


@contextmanager
def process(
    config: Path, *options: str, stderr: int | IO[bytes] = subprocess.PIPE, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the gateway; killed at the end if it still runs."""
    started = subprocess.Popen(
        command("--config", str(config), "--port", "0", *options),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@asynccontextmanager
async def running(
    config: Path, workers: int = 1, **options: Any
) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """Run the gateway and give its address once all workers listen; options as of `process`."""
    with process(config, "--workers", str(workers), **options) as started:
        assert started.stdout is not None
        lines = [await hybridrt.offload(started.stdout.readline)() for _ in range(workers)]
        addresses = {line.strip().rpartition(" ")[2] for line in lines}
        assert len(addresses) == 1, lines
        yield started, addresses.pop()


def verify(folder: Path) -> str:
    """Verify the audit log and return what was said."""
    done = subprocess.run(
        command("verify", str(folder / "audit"), module="examples.gateway.audit"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
async def test_sigterm_lets_requests_end_and_writes_their_records(tmp_path: Path) -> None:
    async with hybridrt.Runtime(), upstream(stall) as one:
        async with running(write(tmp_path, one)) as (started, url):
            asked = asyncio.create_task(post(url, asking()))
            await one.came.wait()
            started.send_signal(signal.SIGTERM)
            await refused(url)
            one.go.set()
            assert (await asked)[0] == 200
            out, err = await hybridrt.offload(started.communicate)()
            assert started.returncode == 0, err
            assert KEY not in out + err
        told = await hybridrt.offload(verify)(tmp_path)
    assert "1 record" in told


@pytest.mark.slow
async def test_workers_share_a_port_and_each_keeps_a_chain(tmp_path: Path) -> None:
    async with hybridrt.Runtime(), upstream(well) as one:
        async with running(write(tmp_path, one), workers=2) as (started, url):
            assert [(await post(url, asking()))[0] for _ in range(12)] == [200] * 12
            started.send_signal(signal.SIGTERM)
            _, err = await hybridrt.offload(started.communicate)()
            assert started.returncode == 0, err
        told = await hybridrt.offload(verify)(tmp_path)
    assert "worker-0" in told
    assert "worker-1" in told


@pytest.mark.slow
async def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    async with hybridrt.Runtime(), upstream(well) as one:
        async with running(write(tmp_path, one), workers=2) as (started, url):
            assert [(await post(url, asking()))[0] for _ in range(12)] == [200] * 12
            started.kill()
            await refused(url)
            await hybridrt.offload(started.communicate)()  # until no worker holds its output
        told = await hybridrt.offload(verify)(tmp_path)
    assert "worker-0" in told
    assert "worker-1" in told


@pytest.mark.slow
async def test_killed_as_a_whole_it_leaves_a_record_of_every_answer(tmp_path: Path) -> None:
    from .group_kills import kill_under_load  # which imports from here

    async with hybridrt.Runtime(), upstream(well) as one:
        assert await kill_under_load(tmp_path, write(tmp_path, one), seed=1, workers=2)


@pytest.mark.slow
def test_without_keys_it_does_not_start_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text('[[upstreams]]\nname = "u"\nurl = "http://127.0.0.1:1/v1"\n')
    with process(tmp_path / "gateway.toml") as started:
        _, err = started.communicate(timeout=200)
    assert started.returncode == 2
    assert "expected at least one [[keys]], got none" in err


@pytest.mark.slow
def test_an_upstreams_key_that_is_missing_is_told_before_any_worker_starts(tmp_path: Path) -> None:
    upstreams = '[[upstreams]]\nname = "u"\nurl = "http://127.0.0.1:1/v1"\nkey_env = "NOT_SET_ANYWHERE"\n'
    (tmp_path / "gateway.toml").write_text("[server]\nallow_no_keys = true\n" + upstreams)
    with process(tmp_path / "gateway.toml", "--workers", "2") as started:
        _, err = started.communicate(timeout=200)
    assert started.returncode == 2
    assert "expected a key in the environment variable NOT_SET_ANYWHERE" in err


@pytest.mark.slow
@pytest.mark.parametrize(("code", "starts"), [(2, 2), (1, 4)])
def test_a_worker_that_ends_is_started_anew_unless_it_never_can(code: int, starts: int) -> None:
    """The second worker stays; the first ends each time, by a code that says why."""
    started: list[int] = []

    def command(number: int) -> list[str]:
        started.append(number)
        program = "import signal; signal.pause()" if number else f"raise SystemExit({code})"
        return [sys.executable, "-S", "-c", program]

    before = signal.getsignal(signal.SIGTERM)
    assert supervise(command, 2, grace=30.0, young=math.inf) == code
    assert started == [0, 1, 0, 0][:starts]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_new_key_is_printed_once_with_what_lets_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--new-key", "team"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("# The key, shown once.")
    assert 'name = "team"' in told


async def refused(url: str) -> None:
    """Return when the gateway accepts no connections any more."""
    async with asyncio.timeout(200):
        while True:
            try:
                async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz"):
                    await asyncio.sleep(0.01)
            except aiohttp.ClientConnectorError:
                return
            except (aiohttp.ClientError, OSError):
                pass  # accepted, then closed
