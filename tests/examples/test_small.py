"""The examples of one file each, as their own processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import EXAMPLES

pytestmark = pytest.mark.slow


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip a test where a package of its example is not installed."""
    lacking = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"needs {', '.join(lacking)}")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}


def run(example: str, *arguments: str, code: int = 0) -> str:
    """Run an example and return what it printed."""
    return run_python(str(EXAMPLES / example), *arguments, code=code)


def run_python(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        env=environment(),
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_offload_counts_the_same_in_every_place() -> None:
    told = run("offload.py")
    assert re.findall(r"^ *(on the loop|in threads|anywhere): a timer came", told, re.M) == [
        "on the loop",
        "in threads",
        "anywhere",
    ]
    assert "each way counted the same" in told


@pytest.mark.parametrize(
    ("example", "extra", "package"),
    [
        ("agent_tools.py", "agents", "aiohttp"),
        ("edge_vision.py", "rag", "numpy"),
        ("fastapi_app.py", "frameworks", "httpx"),
        ("langgraph_app.py", "frameworks", "langchain_core"),
        ("mcp_server.py", "frameworks", "mcp"),
    ],
)
def test_an_example_without_its_extra_says_what_to_run(example: str, extra: str, package: str) -> None:
    told = run_without(package, f"run_path({str(EXAMPLES / example)!r}, run_name='__main__')")
    assert told.startswith(f"error: expected the packages of the extra `{extra}`, got no {package}")
    assert told.endswith(f"run `uv run --extra {extra} examples/{example}`\n")


def test_the_gateway_without_its_extra_says_what_to_run() -> None:
    told = run_without("aiohttp", "run_module('examples.gateway', run_name='__main__')")
    assert told.startswith("error: expected the packages of the extra `gateway`, got no ")
    assert told.endswith("run `uv run --extra gateway python -m examples.gateway`\n")


def run_without(package: str, call: str) -> str:
    """Return what a call of `runpy` says where a package is not installed."""
    return run_python("-c", f"import runpy, sys; sys.modules[{package!r}] = None; runpy.{call}", code=1)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param("fastapi_app.py", marks=needs("fastapi", "httpx", "uvicorn")),
        pytest.param("langgraph_app.py", marks=needs("langgraph", "langchain_core")),
        pytest.param("mcp_server.py", marks=needs("mcp")),
        "offload.py",
    ],
)
def test_an_example_that_is_asked_for_help_does_not_run(example: str) -> None:
    told = run(example, "--help")
    assert told.startswith(f"usage: {example} [-h]")
    assert "show this help message and exit\n" in told


@needs("fastapi", "httpx", "uvicorn")
def test_the_fastapi_service_answers_and_books_its_endpoints() -> None:
    told = run("fastapi_app.py")
    assert "32 requests at once: 496 records; 4 different words" in told
    assert re.search(r"^__main__:records +32 calls$", told, re.M)


@needs("langgraph", "langchain_core")
def test_the_graph_answers_all_questions() -> None:
    told = run("langgraph_app.py")
    assert "I found 2000 pages on topic 31 and 94890 words on topic 31." in told
    assert "32 questions at once took" in told


@needs("numpy", "onnx", "onnxruntime")
def test_frames_are_classified_beside_a_control_loop() -> None:
    told = run("edge_vision.py", "--frames", "6")
    assert re.search(r"^6 frames classified", told, re.M)
    assert re.search(r"^the control loop woke \d+ times", told, re.M)
    assert re.search(r"^__main__:Classifier\.classify: 6 calls", told, re.M)


@needs("numpy", "onnx", "onnxruntime")
def test_no_frames_are_refused() -> None:
    assert "--frames must be at least 1, got 0" in run("edge_vision.py", "--frames", "0", code=2)


@needs("mcp")
def test_the_official_client_lists_and_calls_the_tools_of_the_server(tmp_path: Path) -> None:
    asyncio.run(_call_tools(tmp_path))


async def _call_tools(tmp_path: Path) -> None:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=[str(EXAMPLES / "mcp_server.py")], env=environment()
    )
    with (tmp_path / "errors").open("w") as errors:
        async with (
            stdio_client(server, errlog=errors) as (reader, writer),
            ClientSession(reader, writer) as session,
        ):
            await session.initialize()
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert tools == {"list_documents", "common_words", "slow_search", "statistics"}
            documents = await session.call_tool("list_documents", {})
            assert "architecture.md" in {content.text for content in documents.content}
            words = await session.call_tool("common_words", {"name": "architecture.md", "most": 1})
            assert words.structured_content is not None
            refused = await session.call_tool("common_words", {"name": "../README.md"})
            assert refused.is_error
            assert "name must be one of list_documents" in refused.content[0].text
            told = (await session.call_tool("statistics", {})).content[0].text
            assert re.search(r"__main__:common_words +2 ", told), told
