"""No key and no prompt in logs, errors or metrics, whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest

from .hostile_shapes import HEAD
from .servers import KEY, PROMPT, asking, audit_in, authorized, gateway, reset, status, upstream, well
from .test_hostile import hostile, send
from .test_service import CHAT, post

UPSTREAM_KEY = "upstream-key-DO-NOT-SHOW"


@pytest.mark.timeout(300)
async def test_nothing_secret_is_shown(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GATEWAY_TEST_KEY", UPSTREAM_KEY)
    shown: list[str] = []
    async with upstream(well) as one, upstream(status(401)) as two:
        options = {
            "upstream": {"key_env": "GATEWAY_TEST_KEY"},
            "audit": audit_in(tmp_path),
            "limits": {"body_timeout": 0.05},
        }
        async with gateway(one, two, **options) as (_, url), aiohttp.ClientSession() as session:
            for behave in (well, reset, status(500), status(401), status(429), status(302)):
                one.behave = behave
                for body in (
                    asking(),
                    asking(stream=True),
                    asking(model=PROMPT * 50),
                    {"messages": [PROMPT]},
                ):
                    async with session.post(url + CHAT, json=body, headers=authorized()) as answer:
                        shown.append(str(answer.headers))
                        shown.append("" if answer.status == 200 else await answer.text())
            shown.append(str(await post(url, asking(), key=KEY + "x")))
            broken = HEAD.replace(b"Bearer", b"Bearer\x01") + b"\r\n"
            sending = (send(url, request, "half-closed") for request in (broken, *hostile(60)))
            shown.extend(answer.decode(errors="replace") for answer in await asyncio.gather(*sending))
            async with session.get(f"{url}/metrics") as answer:
                shown.append(await answer.text())
    shown.append(written_in(tmp_path))
    own = [record for record in caplog.records if record.name.startswith(("gateway", "hybridrt", "asyncio"))]
    shown.extend(logging.Formatter().format(record) for record in own)
    whole = "\n".join(shown)
    assert own
    assert "gateway_requests_total" in whole
    for secret in (KEY, PROMPT, UPSTREAM_KEY):
        assert secret not in whole


def written_in(folder: Path) -> str:
    """Return what all files below a folder hold."""
    return "".join(path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file())


async def test_a_failure_inside_is_answered_and_logged_without_its_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError(PROMPT)

    async with upstream(well) as one, gateway(one) as (served, url):
        monkeypatch.setattr(served, "_check", fail)
        code, answer, _ = await post(url, asking())
    assert (code, answer["error"]["code"]) == (500, "internal_error")
    assert PROMPT not in caplog.text
    assert "ValueError at" in caplog.text
