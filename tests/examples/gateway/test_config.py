"""The configuration: what is refused, and in which words."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from gateway.__main__ import main
from gateway.config import Config, load, parse, serves
from gateway.errors import ConfigError
from gateway.keys import Keys, new_key
from gateway.upstreams import make_upstreams
from gateway.workers import UNUSABLE

KEY = {"name": "a", "sha256": "0" * 64}
UPSTREAM = {"name": "u", "url": "http://127.0.0.1:1/v1"}


def config(**tables: Any) -> Config:
    """Return a configuration with a key and an upstream, changed."""
    return parse({"keys": [KEY], "upstreams": [UPSTREAM], **tables})


def test_the_defaults_listen_on_loopback_and_want_keys() -> None:
    made = config()
    assert (made.server.host, made.server.allow_no_keys, made.server.workers) == ("127.0.0.1", False, 1)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"keys": []}, r"at least one \[\[keys\]\], got none; make one with --new-key"),
        ({"upstreams": []}, r"at least one \[\[upstreams\]\]"),
        ({"sever": {}}, "got sever"),
        ({"server": {"prot": 1}}, r"\[server\]: expected host, port.* got prot"),
        ({"server": {"port": "80"}}, r"\[server\] port: expected a whole number of at least 0, got str"),
        ({"server": {"port": True}}, "got bool"),
        ({"server": {"port": 70_000}}, r"\[server\] port: must be 0 to 65535, got 70000"),
        ({"server": {"workers": 0}}, r"\[server\] workers: must be above 0"),
        ({"server": {"drain_timeout": -1}}, "at least 0, got int"),
        ({"server": 5}, r"\[server\]: expected a table"),
        ({"keys": {}}, r"tables \[\[keys\]\]"),
        ({"keys": [{"name": "a"}]}, "sha256 must be there"),
        ({"keys": [{"name": "a", "sha256": "sk-secret"}]}, "64 hex digits of the key's hash, not the key"),
        ({"keys": [{**KEY, "burst": 0.5}]}, "burst: must be at least 1"),
        ({"keys": [KEY, KEY]}, "each name must be there once"),
        ({"keys": [{**KEY, "models": "small"}]}, "a list of texts, got str"),
        ({"upstreams": [{"name": "u", "url": "ftp://x"}]}, "url must be http"),
        ({"upstreams": [{"name": "u", "url": "http://127.0.0.1:99999/v1"}]}, "u: url must be http"),
        ({"upstreams": [{"name": "u", "url": "http://[::1/v1"}]}, "u: url must be http"),
        ({"upstreams": [{**UPSTREAM, "concurrency": 0}]}, "concurrency: must be above 0"),
        ({"audit": {"durability": "some"}}, 'expected "strict" or "fast"'),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        config(**tables)
    assert "sk-secret" not in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a configuration in .*missing"):
        load(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("= 5")
    with pytest.raises(ConfigError, match="expected TOML"):
        load(tmp_path / "bad.toml")


def test_a_port_out_of_range_on_the_command_line_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(new_key("team")[1] + '[[upstreams]]\nname = "u"\nurl = "http://127.0.0.1:1/v1"\n')
    assert main(["--config", str(path), "--port", "-1"]) == UNUSABLE
    assert "--port: must be 0 to 65535, got -1" in capsys.readouterr().err


def test_a_new_key_lets_its_holder_in(tmp_path: Path) -> None:
    key, lines = new_key("team")
    (tmp_path / "gateway.toml").write_text(
        lines + '[[upstreams]]\nname = "u"\nurl = "http://127.0.0.1:1/v1"\n'
    )
    found = Keys(load(tmp_path / "gateway.toml").keys).find(f"bearer {key}")
    assert found is not None
    assert found.name == "team"
    assert key not in lines


def test_an_upstreams_key_must_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    upstreams = config(upstreams=[{**UPSTREAM, "key_env": "GATEWAY_TEST_KEY"}]).upstreams
    monkeypatch.delenv("GATEWAY_TEST_KEY", raising=False)
    with pytest.raises(ConfigError, match="u: expected a key in the environment variable GATEWAY_TEST_KEY"):
        make_upstreams(upstreams)


@pytest.mark.parametrize(
    ("patterns", "model", "fits"),
    [(["*"], "a", True), (["a-*"], "a-1", True), (["a-*"], "b", False), ([], "a", False)],
)
def test_models_are_matched_by_pattern(patterns: list[str], model: str, fits: bool) -> None:
    assert serves(patterns, model) is fits


def test_the_configuration_in_the_docs_can_be_used() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    made = parse(tomllib.loads(block))
    assert (len(made.keys), len(made.upstreams), made.audit.durability) == (1, 2, "strict")
