"""The configuration: TOML in, frozen values out; an error names the table, the key and what was expected."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from yarl import URL

from .errors import ConfigError

__all__ = [
    "AuditConfig",
    "Config",
    "KeyConfig",
    "Limits",
    "Price",
    "Routing",
    "ServerConfig",
    "UpstreamConfig",
    "check_port",
    "load",
    "parse",
    "serves",
]

T = TypeVar("T")
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where and how the gateway listens.

    Attributes:
        host: Address; loopback unless told otherwise.
        port: 0 for one that is free.
        workers: Processes on the port (`SO_REUSEPORT`).
        allow_no_keys: Serve everyone when there are no keys.
        connections_max: Open connections of one worker; more are closed at once.
        idle_timeout: Seconds a connection may be open without a whole request head.
        drain_timeout: Seconds that requests have to end in after SIGTERM.
        drain_delay: Seconds between "not ready" and the end of accepting, for a load balancer to notice.
        log_requests: Write a line for each request; it has neither key nor prompt.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    allow_no_keys: bool = False
    connections_max: int = 1_000
    idle_timeout: float = 60.0
    drain_timeout: float = 30.0
    drain_delay: float = 0.0
    log_requests: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request may be.

    Attributes:
        body_max: Bytes of one body.
        bodies_max: Bytes of all bodies that one worker holds.
        body_timeout: Seconds in which a body must have come.
        depth_max: How deep its JSON may be nested.
        items_max: Values in its JSON.
        kept_max: Bytes of an answer that are kept for counting; the rest is forwarded and only hashed.
        exchanges_max: Requests under way at once, until their record is made; fewer where the loop is late.
    """

    body_max: int = 1 << 20
    bodies_max: int = 64 << 20
    body_timeout: float = 10.0
    depth_max: int = 32
    items_max: int = 50_000
    kept_max: int = 1 << 20
    exchanges_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How an upstream is found.

    Attributes:
        queue_timeout: Seconds that a request may wait for a place at an upstream.
        attempts: Upstreams that a request tries before the first byte of an answer.
    """

    queue_timeout: float = 5.0
    attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """The audit log.

    Attributes:
        folder: Where it lies, one folder per worker in it; "" for no log.
        durability: "strict": an answer ends when its record is on the disk. "fast": the record comes after.
    """

    folder: str = ""
    durability: Literal["strict", "fast"] = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """A client's key, known by its hash.

    Attributes:
        name: What logs and records call it.
        sha256: Of the key, in hex.
        rate: Requests per second.
        burst: Requests at once.
        models: Patterns of the models it may use.
    """

    name: str
    sha256: str
    rate: float = 10.0
    burst: float = 20.0
    models: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """A server that answers.

    Attributes:
        name: What logs, metrics and records call it.
        url: Up to and with `/v1`.
        key_env: Environment variable with the key to send; "" for none.
        models: Patterns of the models it has; those without `*` are listed at `/v1/models`.
        concurrency: Requests at once.
        queue_max: Requests that may wait for a place.
        connect_timeout: Seconds to connect.
        first_byte_timeout: Seconds to the first byte of an answer.
        stall_timeout: Seconds between two pieces of an answer, and for the client to take one.
        failures_max: Failures in a row that open its breaker.
        open_seconds: How long that stays open.
    """

    name: str
    url: str
    key_env: str = ""
    models: tuple[str, ...] = ("*",)
    concurrency: int = 32
    queue_max: int = 128
    connect_timeout: float = 5.0
    first_byte_timeout: float = 60.0
    stall_timeout: float = 60.0
    failures_max: int = 5
    open_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Cost of a million tokens, by a pattern of models; the first that matches counts."""

    model: str
    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration; `tokenizer` is a `tokenizer.json`, "" for the one of MiniLM."""

    tokenizer: str = ""
    server: ServerConfig = field(default_factory=ServerConfig)
    limits: Limits = field(default_factory=Limits)
    routing: Routing = field(default_factory=Routing)
    audit: AuditConfig = field(default_factory=AuditConfig)
    keys: tuple[KeyConfig, ...] = ()
    upstreams: tuple[UpstreamConfig, ...] = ()
    prices: tuple[Price, ...] = ()


def serves(patterns: Sequence[str], model: str) -> bool:
    """Return True if one of the patterns matches the model."""
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def load(path: Path) -> Config:
    """Read a configuration.

    Raises:
        ConfigError: The file is not there, no TOML, or says what cannot be.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"expected a configuration in {path}, got {error.strerror}; see docs/gateway.md"
        ) from error
    except ValueError as error:
        raise ConfigError(f"expected TOML in {path}, got {error}") from error
    return parse(table)


_TABLES = {"server": ServerConfig, "limits": Limits, "routing": Routing, "audit": AuditConfig}
_LISTS = {"keys": KeyConfig, "upstreams": UpstreamConfig, "prices": Price}


def parse(table: Mapping[str, Any]) -> Config:
    """Make a configuration of what TOML gave and check it as a whole.

    Raises:
        ConfigError: A key is unknown or missing, a value is of the wrong kind or out of range, there is no
            upstream, or no key where `allow_no_keys` is not set.
    """
    known = {*_TABLES, *_LISTS, "tokenizer"}
    if unknown := set(table) - known:
        raise ConfigError(f"expected {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {"tokenizer": _value("tokenizer", str, table.get("tokenizer", ""))}
    for name, kind in _TABLES.items():
        values[name] = _read(kind, f"[{name}]", table.get(name, {}))
    for name, kind in _LISTS.items():
        rows = table.get(name, [])
        if not isinstance(rows, list):
            raise ConfigError(f"{name}: expected tables [[{name}]], got {type(rows).__name__}")
        values[name] = tuple(_read(kind, f"[[{name}]] {n}", row) for n, row in enumerate(rows, 1))
    config = Config(**values)
    _check(config)
    return config


def _read(kind: type[T], where: str, table: Any) -> T:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: expected a table, got {type(table).__name__}")
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # always a dataclass
    if unknown := set(table) - set(known):
        raise ConfigError(f"{where}: expected {', '.join(known)}, got {', '.join(sorted(unknown))}")
    if missing := [n for n, each in known.items() if each.default is MISSING and n not in table]:
        raise ConfigError(f"{where}: {', '.join(missing)} must be there")
    return kind(**{name: _value(f"{where} {name}", hints[name], value) for name, value in table.items()})


def _value(where: str, kind: Any, value: Any) -> Any:
    """Return a value as its field wants it; numbers are never negative."""
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and type(value) is int and value >= 0:
        return value
    if kind is float and type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    if kind == tuple[str, ...] and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if kind == Literal["strict", "fast"] and value in ("strict", "fast"):
        return value
    expected = {
        bool: "true or false",
        int: "a whole number of at least 0",
        float: "a number of at least 0",
        str: "a text",
        tuple[str, ...]: "a list of texts",
    }.get(kind, '"strict" or "fast"')
    raise ConfigError(f"{where}: expected {expected}, got {type(value).__name__}")


def _check(config: Config) -> None:
    if not config.upstreams:
        raise ConfigError("expected at least one [[upstreams]] with name and url, got none")
    for what, names in (
        ("keys", [key.name for key in config.keys]),
        ("upstreams", [upstream.name for upstream in config.upstreams]),
    ):
        if len(set(names)) < len(names):
            raise ConfigError(f"[[{what}]]: each name must be there once, got {', '.join(names)}")
    if not config.keys and not config.server.allow_no_keys:
        raise ConfigError(
            "expected at least one [[keys]], got none; make one with --new-key, "
            "or set allow_no_keys = true in [server] to serve everyone"
        )
    _check_least(config)
    check_port("[server] port", config.server.port)
    for upstream in config.upstreams:
        if not _is_base(upstream.url):
            raise ConfigError(f"[[upstreams]] {upstream.name}: url must be http://HOST/v1 or https://HOST/v1")
    for key in config.keys:
        if len(key.sha256) != 64 or not set(key.sha256.lower()) <= set("0123456789abcdef"):
            raise ConfigError(
                f"[[keys]] {key.name}: sha256 must be the 64 hex digits of the key's hash, "
                "not the key; make both with --new-key"
            )


def check_port(where: str, port: int) -> None:
    """Refuse what is no port.

    Raises:
        ConfigError: It is out of range.
    """
    if not 0 <= port <= PORT_MAX:
        raise ConfigError(f"{where}: must be 0 to {PORT_MAX}, got {port}")


def _is_base(text: str) -> bool:
    try:
        url = URL(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _check_least(config: Config) -> None:
    """Refuse a zero where it would mean that nothing is served."""
    rows: list[tuple[str, Any, tuple[str, ...]]] = [
        ("[server]", config.server, ("workers", "connections_max", "idle_timeout")),
        (
            "[limits]",
            config.limits,
            ("body_max", "bodies_max", "body_timeout", "depth_max", "items_max", "exchanges_max"),
        ),
        ("[routing]", config.routing, ("queue_timeout", "attempts")),
    ]
    positive = ("concurrency", "connect_timeout", "first_byte_timeout", "stall_timeout", "failures_max")
    rows += [(f"[[upstreams]] {each.name}", each, positive) for each in config.upstreams]
    rows += [(f"[[keys]] {each.name}", each, ("rate", "burst")) for each in config.keys]
    for where, row, names in rows:
        for name in names:
            if not getattr(row, name) or (name == "burst" and row.burst < 1):
                raise ConfigError(f"{where} {name}: must be {'at least 1' if name == 'burst' else 'above 0'}")
