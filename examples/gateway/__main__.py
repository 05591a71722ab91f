"""`python -m examples.gateway --config gateway.toml`: serve, or make a key."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hybridrt

try:
    from .audit import AuditError
    from .config import Config, check_port, load
    from .errors import ConfigError
    from .keys import new_key
    from .serving import bind, serve
    from .upstreams import make_upstreams
    from .workers import UNUSABLE, supervise
except ModuleNotFoundError as error:
    message = f"expected the packages of the extra `gateway`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra gateway python -m examples.gateway`")

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit code, 2 for a configuration that cannot be used."""
    options = _parser().parse_args(arguments)
    if options.new_key is not None:
        key, lines = new_key(options.new_key)
        print(f"# The key, shown once. Give it to the client: {key}\n{lines}", end="")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        return _serve(options, load(options.config))
    except (ConfigError, AuditError, OSError) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.gateway", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("gateway.toml"), help="the configuration")
    parser.add_argument("--port", type=int, help="instead of the one in the configuration; 0 for a free one")
    parser.add_argument("--workers", type=int, help="processes on the port")
    parser.add_argument("--new-key", metavar="NAME", help="print a new key and what lets it in, and end")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser


def _serve(options: argparse.Namespace, config: Config) -> int:
    server = config.server
    port = server.port if options.port is None else options.port
    workers = server.workers if options.workers is None else options.workers
    check_port("--port", port)
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}")
    make_upstreams(config.upstreams)  # before any worker starts: a key that is missing is told once
    shared = workers > 1
    config = replace(config, server=replace(server, port=port, workers=workers))
    listener = bind(server.host, port, shared=shared)
    if not shared or options.worker is not None:
        hybridrt.run(serve(config, listener, worker=options.worker))
        return 0
    port = listener.getsockname()[1]
    with listener:
        return supervise(
            lambda number: _command(options.config, port, workers, number),
            workers,
            grace=server.drain_delay + 2 * server.drain_timeout + 5,
        )


def _command(config: Path, port: int, workers: int, number: int) -> list[str]:
    name = (__package__ or "gateway") if __name__ == "__main__" else __name__.rpartition(".")[0]
    options = ["--config", str(config), "--port", str(port), "--workers", str(workers)]
    return [sys.executable, "-m", name, *options, "--worker", str(number)]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
