"""Child: starts the model server, the service and those who ask it, and gathers what they saw."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.children.grandchild import begin, line, started
from benchmarks.children.protocol import serve
from benchmarks.children.service_tools import make_database

__all__ = ["measure"]


def measure(way: str, seconds: float, chats: int, rate: float) -> Mapping[str, Any]:
    """Return when chats ended, and how long /health took, both from a cold start.

    Args:
        way: How the service calls its tools.
        seconds: For how long it is asked.
        chats: Chats at once.
        rate: Requests of /health a second.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "notes.db")
        make_database(Path(database))
        with started("service_model") as model:
            url = f"http://127.0.0.1:{json.loads(line(model))['port']}"
            with started("service_app", way=way, model=url, database=database) as service:
                asked = f"http://127.0.0.1:{json.loads(line(service))['port']}"
                return _ask(asked, seconds, chats, rate)


def _ask(url: str, seconds: float, chats: int, rate: float) -> Mapping[str, Any]:
    with (
        started("service_load", kind="chats", url=url, seconds=seconds, amount=chats) as asking,
        started("service_load", kind="health", url=url, seconds=seconds, amount=rate) as watching,
    ):
        begin(watching, asking)
        return {"chats": json.loads(line(asking)), "health": json.loads(line(watching))}


if __name__ == "__main__":
    serve(measure)
