"""Several questions at once to an agent whose tools compute, wait and search, each in its place.

    uv run --extra agents examples/agent_tools.py
    uv run --extra agents examples/agent_tools.py --base-url http://127.0.0.1:11434/v1 --model qwen3

Without --base-url a small server stands in for the model: it calls every tool and repeats what they say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import hybridrt

try:
    import aiohttp
    from agentkit.tools import TOOLS, open_shop

    from hybridrt import Agent
    from hybridrt.agents import AgentTimeoutError, Done, Event, ModelError, Text, ToolCall, ToolResult
except ImportError as error:
    message = f"expected the packages of the extra `agents`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra agents examples/agent_tools.py`")

HOME = Path(__file__).resolve().parent
QUESTIONS = ("What about the chair?", "And the lamp?", "What do you know of the desk?", "How is the mirror?")
INSTRUCTIONS = "You help in a furniture shop. Use the tools, then answer in one sentence."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="agent_tools.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", nargs="*", default=QUESTIONS, metavar="QUESTION")
    parser.add_argument(
        "--base-url", help="an OpenAI-compatible server, up to /v1; OPENAI_API_KEY is sent if set"
    )
    parser.add_argument("--model", default="local", help="its model")
    parser.add_argument("--concurrency", type=int, default=4, help="questions at once")
    options = parser.parse_args(arguments)
    if options.concurrency < 1:
        parser.error(f"--concurrency must be at least 1, got {options.concurrency}")
    if not (options.base_url or "http://").startswith(("http://", "https://")):
        parser.error(f"--base-url must be as http://127.0.0.1:11434/v1, got {options.base_url}")
    return options


@asynccontextmanager
async def local_server() -> AsyncIterator[str]:
    """Run the server that stands in for a model and for the warehouse; it ends with its standard input."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "agentkit.server",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(HOME)},
        start_new_session=True,  # Ctrl-C ends it through its standard input
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        await process.wait()


def show(question: str, event: Event) -> None:
    """Print one event."""
    match event:
        case Text(text):
            print(f"[{question}] {text}", end="" if text.endswith("\n") else "\n")
        case ToolCall(name=name, arguments=arguments):
            print(f"[{question}] calls {name} {arguments}")
        case ToolResult() as result:
            cpu = "-" if result.cpu is None else f"{result.cpu * 1e3:.1f}"
            print(
                f"[{question}] {result.name}: {result.error or 'done'} in place {result.place}, "
                f"{result.attempts} attempts, queued {result.queue_wait * 1e3:.1f} ms, "
                f"ran {result.wall * 1e3:.1f} ms, CPU {cpu} ms"
            )
        case Done(reason=reason, usage=usage, turns=turns):
            print(f"[{question}] {reason} after {turns} turns, {usage.total_tokens} tokens")


async def main(options: argparse.Namespace) -> int:
    """Ask all questions; return 1 if one of them has no answer."""
    runtime = hybridrt.Runtime.current()
    async with local_server() as url, aiohttp.ClientSession() as session:
        open_shop(session, url)
        base_url = options.base_url or f"{url}/v1"
        async with Agent(base_url, options.model, TOOLS, instructions=INSTRUCTIONS, timeout=120.0) as agent:

            async def ask(question: str) -> bool:
                try:
                    async with aclosing(agent.stream(question)) as events:
                        async for event in events:
                            show(question, event)
                except (ModelError, AgentTimeoutError) as error:
                    print(f"error: {error}; no answer to {question!r}", file=sys.stderr)
                    return False
                return True

            answered = await runtime.map(ask, options.questions, limit=options.concurrency)
    delay = runtime.statistics().loop_delay
    if delay is not None:
        p99, most = delay.p99 * 1e3, delay.max * 1e3
        print(f"the loop was late by {p99:.1f} ms in the 99th percentile, {most:.1f} at most")
    return 0 if all(answered) else 1


if __name__ == "__main__":
    try:
        sys.exit(hybridrt.run(main(parse(sys.argv[1:]))))
    except KeyboardInterrupt:
        sys.exit("stopped")
