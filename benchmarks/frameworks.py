"""What does one line of hybridrt change for a service or an agent built on a framework?

Each framework runs the same plain function of a user's: it asks a service over HTTP, which answers after
50 ms, and parses the 100 kB of JSON that come. 32 requests are always in flight. Web frameworks are asked
by clients in another process, the others by 32 tasks on their loop. Beside them the same loop serves echo
clients of another process, who send at a fixed rate whatever comes back: their latency shows what the loop
suffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure, version

__all__ = ["FRAMEWORKS", "candidates", "figures", "key", "run"]

REQUESTS = 32
WAIT_SECONDS = 0.05
FRAMEWORKS = {
    "fastapi": ("FastAPI, `def` endpoint", "fastapi", ("fastapi", "uvicorn")),
    "starlette": ("Starlette, `def` endpoint", "starlette", ("starlette", "uvicorn")),
    "aiohttp": ("aiohttp.web, `to_thread`", "aiohttp", ("aiohttp",)),
    "mcp": ("MCP server, tool", "mcp", ("mcp",)),
    "langchain": ("LangChain, tool", "langchain-core", ("langchain_core",)),
    "langgraph": ("LangGraph, tool node", "langgraph", ("langgraph", "langchain_core")),
    "openai_agents": ("openai-agents, tool", "openai-agents", ("agents", "openai")),
    "pydantic_ai": ("pydantic-ai, tool", "pydantic-ai-slim", ("pydantic_ai",)),
    "llama_index": ("LlamaIndex, tool", "llama-index-core", ("llama_index",)),
    "haystack": ("haystack, tool", "haystack-ai", ("haystack",)),
}
"""By name: title, distribution, and the modules without which it is left out."""
WAYS = {"default": "as it is", "hybridrt": "with a `Runtime`"}
_PROMISED = ("fastapi", "langgraph")
_GAIN, _TAIL, _DELAY = 1.3, 0.7, 1 / 10
"""Times the requests per second at least, or of the 99th percentile at most; and of the loop's delay."""

_NOTE = """\
{requests} requests in flight on asyncio; each waits {wait:.0f} ms for a service in another process and parses
100 kB of JSON, in a plain function. {rate} echo requests per second over {connections} connections from
another process. Times in milliseconds; those of the loop count from when an echo request was due.
*Collection* is the median of the full garbage collections of a process, which stop all its threads. The
median over {count} fresh processes of {seconds} s, then lowest and highest. A ratio is formed within one
repetition, then summarised."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every framework as it is, and with one line more."""
    return [
        Candidate(
            name=key(framework, way),
            job="frameworks",
            arguments={
                "framework": framework,
                "modules": needs,
                "way": way,
                "loop": "asyncio",
                "requests": REQUESTS,
                "pause": WAIT_SECONDS,
                "pacing": _pacing(quick=quick),
            },
            needs=(*needs, *(("hybridrt",) if way == "hybridrt" else ())),
        )
        for framework, (_, _, needs) in FRAMEWORKS.items()
        for way in WAYS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    head, samples = measure("frameworks", __doc__, options, candidates(quick=options.quick), repetitions)
    found = {name: figures(taken) for name, taken in samples.items()}
    targets = list(_targets(found))
    pacing = _pacing(quick=options.quick)
    note = _NOTE.format(requests=REQUESTS, wait=WAIT_SECONDS * 1e3, count=repetitions, **pacing)
    data = {
        **head,
        "versions": {name: version(distribution) for name, (_, distribution, _) in FRAMEWORKS.items()},
        "figures": {name: {k: spread(v).to_dict() for k, v in f.items()} for name, f in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="frameworks", text=_text(found, targets, note, head), data=data)


def key(framework: str, way: str) -> str:
    """Return the name of a candidate."""
    return f"{framework}, {way}"


def _pacing(*, quick: bool) -> dict[str, float]:
    times = {"warmup": 1.0, "seconds": 1.5} if quick else {"warmup": 2.0, "seconds": 5.0}
    return {"rate": 100, "connections": 4, **times}


Figures = Mapping[str, Sequence[float]]
"""Values of one candidate by name, one per repetition."""


def figures(taken: Sequence[Sample]) -> Figures:
    """Return the values of one candidate by name, times in milliseconds."""
    return {
        "requests": [sample["requests"] for sample in taken],
        "request_p50": [sample["request"]["p50"] * 1e3 for sample in taken],
        "request_p99": [sample["request"]["p99"] * 1e3 for sample in taken],
        "loop_p50": [sample["latency"]["p50"] * 1e3 for sample in taken],
        "loop_p99": [sample["latency"]["p99"] * 1e3 for sample in taken],
        "collection": [_usual(sample["collections"]) * 1e3 for sample in taken],
    }


def _usual(collections: Sequence[float]) -> float:
    return median(collections) if collections else 0.0


def _targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for framework in _PROMISED:
        ours, theirs = (found.get(key(framework, way)) for way in ("hybridrt", "default"))
        if ours and theirs:
            claim = f"{framework}: the better of {_GAIN} times the requests and {_TAIL} of their p99"
            yield Target(claim=claim, figure=_gain(ours, theirs), limit=1.0)
            delay = ratios(ours["loop_p99"], theirs["loop_p99"])
            yield Target(claim=f"{framework}: loop p99, with / as it is", figure=delay, limit=_DELAY)


def _gain(ours: Figures, theirs: Figures) -> Spread:
    """Return how much of what was promised came; 1.0 is all of it, less is more than that."""
    fewer = [
        _GAIN * before / after for before, after in zip(theirs["requests"], ours["requests"], strict=True)
    ]
    pairs = zip(ours["request_p99"], theirs["request_p99"], strict=True)
    later = [with_line / (_TAIL * without) for with_line, without in pairs]
    return spread(list(map(min, fewer, later)))


def _text(found: Mapping[str, Figures], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    columns = (
        "",
        "",
        "requests/s",
        "request p50",
        "request p99",
        "loop p50",
        "loop p99",
        "collection",
        "requests",
        "p99",
        "loop p99",
    )
    parts = ["# Frameworks: the same code, one line more", note]
    parts += [table(columns, list(_rows(found))), "The last three columns: with / as it is."]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row(4) for t in targets])]
    return "\n\n".join([*parts, describe(head)])


def _rows(found: Mapping[str, Figures]) -> Iterator[list[str]]:
    for framework, (title, _, _) in FRAMEWORKS.items():
        base = found.get(key(framework, "default"))
        for way, line in WAYS.items():
            figures = found.get(key(framework, way))
            if figures:
                measured = [spread(values).text(1) for values in figures.values()]
                compared = base if way != "default" else None
                yield [title, line, *measured, *(_ratio(figures, compared, name) for name in _COMPARED)]


_COMPARED = ("requests", "request_p99", "loop_p99")


def _ratio(figures: Figures, base: Figures | None, name: str) -> str:
    return "" if base is None else f"{ratios(figures[name], base[name]).median:.2f}"
