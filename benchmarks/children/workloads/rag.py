"""RAG orchestration: ask a vector store over HTTP, parse what it found, compose a prompt."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.children.workloads import Phases

__all__ = ["rag"]

_PASSAGES = 5


@contextmanager
def rag() -> Iterator[Phases]:
    """Ask the server with a connection per thread that stays open; compose from the best passages."""
    with _server() as port, ExitStack() as opened:
        local = threading.local()

        def call() -> str:
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPConnection("127.0.0.1", port)
                opened.callback(local.connection.close)
            return _compose(_ask(local.connection))

        yield (call,)


def _ask(connection: http.client.HTTPConnection) -> Any:
    connection.request("POST", "/query", b'{"text": "What limits concurrency?", "top_k": 20}')
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"the vector store must answer with 200, got {response.status}")
    return json.loads(response.read())


def _compose(found: Any) -> str:
    best = sorted(found["matches"], key=lambda match: -match["score"])[:_PASSAGES]
    passages = "\n\n".join(f"[{match['metadata']['source']}] {match['text']}" for match in best)
    return f"Answer from these passages alone.\n\n{passages}\n\nQuestion: What limits concurrency?"


@contextmanager
def _server() -> Iterator[int]:
    """Run the server in a process of its own, which ends when the pipe to it closes."""
    command = [sys.executable, "-m", "benchmarks.children.vector_store"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["port"])
        process.stdin.close()
