"""The background path: records, durability, what a full or failed background path does."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateway import serving
from gateway.audit.records import decode_record
from gateway.audit.scan import records_of

from hybridrt import QueueFullError

from .servers import (
    PROMPT,
    WORDS,
    Behaviour,
    asking,
    audit_in,
    authorized,
    break_inside,
    gateway,
    stall,
    stall_inside,
    status,
    until,
    upstream,
    well,
)
from .test_service import CHAT, post

PRICES = [{"model": "sm*", "prompt": 1.0, "completion": 2.0}, {"model": "*", "prompt": 9.0}]


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the first worker's log."""
    decoded = map(decode_record, records_of(folder / "worker-0"))
    return [dict(record.body) for record in decoded if record is not None]


class GatedAudit:
    """A log whose records are durable when the test says so."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.came, self.go = asyncio.Event(), asyncio.Event()
        self.failure: Exception | None = None
        self.under_way = 0
        self.closed_with: list[bool] = []

    async def append(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))
        self.came.set()
        self.under_way += 1
        await self.go.wait()
        self.under_way -= 1
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.closed_with.append(bool(self.under_way))
        self.go.set()


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> GatedAudit:
    """The log of every gateway of the test."""
    one = GatedAudit()

    async def opened(*_: object) -> GatedAudit:
        return one

    monkeypatch.setattr(serving, "_open_audit", opened)
    return one


@pytest.mark.parametrize("durability", ["strict", "fast"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_record_says_who_what_and_how_much(tmp_path: Path, durability: str, stream: bool) -> None:
    async with upstream(well) as one:
        async with gateway(one, audit=audit_in(tmp_path, durability), prices=PRICES) as (_, url):
            async with aiohttp.ClientSession() as session:
                body = asking(stream=stream)
                async with session.post(url + CHAT, json=body, headers=authorized()) as answer:
                    said = await answer.read()
    (record,) = records(tmp_path)
    assert (record["key"], record["model"], record["upstream"]) == ("team-a", "small", "a")
    assert (record["outcome"], record["status"], record["stream"]) == ("answered", 200, stream)
    assert record["response_sha256"] == hashlib.sha256(said).hexdigest()
    assert record["request_sha256"] == hashlib.sha256(json.dumps(body).encode()).hexdigest()
    assert record["completion_tokens"] == 6  # foxes live in den ##s .
    assert record["usage"] == (None if stream else [3, 4])
    assert record["cost"] > 0
    assert record["entropy"] > 2
    assert PROMPT not in json.dumps(record)


@pytest.mark.parametrize("stream", [False, True])
async def test_strict_the_answer_ends_after_its_record_is_durable(log: GatedAudit, stream: bool) -> None:
    async with upstream(well) as one, gateway(one, audit=audit_in(Path(), "strict")) as (_, url):
        async with aiohttp.ClientSession() as session:
            async with session.post(url + CHAT, json=asking(stream=stream), headers=authorized()) as answer:
                await asyncio.wait_for(log.came.wait(), 20)
                reading = asyncio.create_task(answer.read())
                if stream:
                    await until(lambda: answer.content.total_bytes > 300)
                assert not answer.content.is_eof()
                log.go.set()
                whole = await reading
    assert (b"[DONE]" in whole) is stream
    assert WORDS[0].strip().encode() in whole


async def test_fast_the_answer_ends_before_its_record(
    log: GatedAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(well) as one, gateway(one) as (served, url):
        assert (await post(url, asking()))[0] == 200
        await asyncio.wait_for(log.came.wait(), 20)
        assert not log.go.is_set()
        monkeypatch.setattr(served.server, "pre_shutdown", log.go.set)
    assert log.closed_with == [False]  # the drain waited for it


async def test_strict_an_answer_without_a_record_is_broken_off_and_then_none_is_given(
    log: GatedAudit,
) -> None:
    log.failure = OSError("disk full")
    log.go.set()
    async with upstream(well) as one, gateway(one, audit=audit_in(Path(), "strict")) as (_, url):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(url, asking())
        code, answer, _ = await post(url, asking())
        assert (code, answer["error"]["code"]) == (503, "audit_failed")
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as ready:
            assert await ready.json() == {"status": "audit_failed"}
    assert len(one.asked) == 1


async def test_strict_half_of_a_surrogate_pair_in_a_prompt_is_answered_and_recorded(tmp_path: Path) -> None:
    async with upstream(well) as one, gateway(one, audit=audit_in(tmp_path)) as (_, url):
        assert (await post(url, asking(user="\ud83d", messages=[{"content": "\ud83d"}])))[0] == 200
    (record,) = records(tmp_path)
    assert record["prompt_tokens"] == 1


async def test_strict_a_record_that_cannot_be_made_ends_its_own_answer_and_no_other(log: GatedAudit) -> None:
    log.failure = ValueError("too long")
    log.go.set()
    async with upstream(well) as one, gateway(one, audit=audit_in(Path())) as (_, url):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(url, asking())
        log.failure = None
        assert (await post(url, asking()))[0] == 200


async def test_strict_a_record_that_cannot_be_made_is_no_failure_of_the_upstream(log: GatedAudit) -> None:
    log.failure = ValueError("too long")
    log.go.set()
    async with upstream(well) as one, gateway(one, audit=audit_in(Path())) as (served, url):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(url, asking())
        assert await served.idle(20)
        assert value(served, "gateway_upstream_failures_total", upstream="a") is None


async def test_fast_a_log_that_failed_is_counted_and_answers_go_on(log: GatedAudit) -> None:
    log.failure = OSError("disk full")
    log.go.set()
    async with upstream(well) as one, gateway(one) as (served, url):
        assert [(await post(url, asking()))[0] for _ in range(3)] == [200] * 3
        await until(lambda: len(log.records) == 3 and not served._recorder._tasks)
        assert value(served, "gateway_audit_records_total", fate="failed") == 3


async def test_failures_and_clients_that_left_are_recorded_too(log: GatedAudit) -> None:
    log.go.set()
    async with upstream(status(500)) as one, gateway(one) as (served, url):
        await post(url, asking())
        one.behave = stall
        one.came.clear()
        leaving = asyncio.create_task(post(url, asking()))
        await asyncio.wait_for(one.came.wait(), 20)
        leaving.cancel()
        await until(lambda: len(log.records) == 2)
        one.behave, one.came = break_inside, asyncio.Event()
        one.go.clear()
        breaking = asyncio.create_task(post(url, asking(stream=True)))
        await asyncio.wait_for(one.came.wait(), 20)
        one.go.set()
        with pytest.raises((aiohttp.ClientError, OSError)):
            await breaking
        await until(lambda: len(log.records) == 3 and not served._recorder._tasks)
        assert served._bodies.held == 0
    assert [record["outcome"] for record in log.records] == ["failed", "client_left", "cut_off"]


def full(coro: Any, *, name: str | None = None) -> Any:
    """Stand in for a background path that takes nothing more."""
    coro.close()
    raise QueueFullError("full")


@pytest.mark.parametrize("durability", ["strict", "fast"])
async def test_a_full_background_path_sheds_or_slows_down(
    log: GatedAudit, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.go.set()
    async with upstream(well) as one, gateway(one, audit=audit_in(Path(), durability)) as (served, url):
        monkeypatch.setattr(served._work, "background", full)
        assert (await post(url, asking()))[0] == 200
        assert await served.idle(20)
        fate = "written" if durability == "strict" else "shed"
        assert value(served, "gateway_audit_records_total", fate=fate) == 1
        assert len(log.records) == (durability == "strict")
        assert served._bodies.held == 0


@pytest.mark.parametrize("behave", [well, stall_inside])
async def test_strict_a_client_that_leaves_while_the_background_path_is_full_is_recorded(
    log: GatedAudit, behave: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(behave) as one, gateway(one, audit=audit_in(Path())) as (served, url):
        monkeypatch.setattr(served._work, "background", full)
        leaving = asyncio.create_task(post(url, asking(stream=True)))
        await asyncio.wait_for((log if behave is well else one).came.wait(), 20)
        leaving.cancel()
        assert await served.idle(20)
        log.go.set()
        await until(lambda: value(served, "gateway_audit_records_total", fate="written") == 1)
        await until(lambda: served._bodies.held == served._admission.running == 0)


async def test_bodies_that_wait_for_their_record_count_and_too_many_refuse_requests(log: GatedAudit) -> None:
    limits = {"body_max": 2000, "bodies_max": 4500}
    routing = {"queue_timeout": 0.02}
    async with upstream(status(400)) as one, gateway(one, limits=limits, routing=routing) as (served, url):
        large = asking(user="x" * 1500)
        assert [(await post(url, large))[0] for _ in range(2)] == [400, 400]
        code, answer, _ = await post(url, large)
        assert (code, answer["error"]["code"]) == (503, "overloaded")
        log.go.set()
        await until(lambda: served._bodies.held == 0)
        assert (await post(url, large))[0] == 400


async def test_a_request_waits_for_room_while_the_background_path_is_behind(log: GatedAudit) -> None:
    limits = {"body_max": 2000, "bodies_max": 3000}
    async with upstream(status(400)) as one, gateway(one, limits=limits) as (served, url):
        assert (await post(url, asking(user="x" * 1500)))[0] == 400
        waiting = asyncio.create_task(post(url, asking()))
        await until(lambda: served._running)
        await asyncio.wait_for(log.came.wait(), 20)
        assert len(one.asked) == 1
        log.go.set()
        assert (await waiting)[0] == 400


def value(served: Any, name: str, **labels: str) -> float | None:
    """Return a counter of a gateway."""
    found: float | None = served._metrics.registry.get_sample_value(name, labels)
    return found
