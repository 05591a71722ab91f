"""What services, agents and a whole job gain: blocks made of `frameworks`, `agents`, `service` and `rag`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from benchmarks import agents, rag, service
from benchmarks.figures import ratios, table
from benchmarks.frameworks import FRAMEWORKS, REQUESTS, figures, key
from benchmarks.quoting.reports import Reports, machine, paragraph

__all__ = ["BLOCKS"]


def _frameworks(reports: Reports) -> str:
    report = reports("frameworks-py3.13")
    note = f"""
        The same code with one line more. {REQUESTS} requests are in flight; each waits 50 ms for a service
        and parses 100 kB of JSON in a plain function; {machine(report)}. Left the ratio with a `Runtime` to
        without. Right milliseconds without and with one: the 99th percentile of the loop's delay, as echo
        clients in another process see it, and the median of a full garbage collection, which stops all
        threads:"""
    head = ("", "requests/s", "their p99", "p99 of the loop, ms", "collection, ms")
    return f"{paragraph(note)}\n\n" + table(head, list(_rows(report["samples"])))


def _rows(samples: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    for framework, (title, _, _) in FRAMEWORKS.items():
        before, after = (figures(samples[key(framework, way)]) for way in ("default", "hybridrt"))
        changed = [ratios(after[name], before[name]).median for name in ("requests", "request_p99")]
        beside = [[median(each[name]) for each in (before, after)] for name in ("loop_p99", "collection")]
        yield [title, *(f"{ratio:.2f}" for ratio in changed), *(f"{a:.1f}, {b:.1f}" for a, b in beside)]


_GAINING = {
    "agent": "`hybridrt.Agent`, parse `pure`, to a loop by hand",
    "langgraph, runtime": "LangGraph, one line: a `Runtime`",
    "langgraph, pure": "LangGraph, parse `pure`",
    "fastapi, runtime": "FastAPI, one line: a `Runtime`",
    "fastapi, pure": "FastAPI, parse `pure`",
}
_SERVING = {
    "runtime": "FastAPI chats, one line: a `Runtime`",
    "pure": "FastAPI chats, parsing and search `pure`",
}
"""Ways of `agents` and of `service`, and what the table calls them."""


def _agents(reports: Reports) -> str:
    asked, served = reports("agents-py3.13"), reports("service-py3.13")
    note = f"""
        {agents.QUESTIONS} questions at once, of four tools each: a parse of 1 MB of JSON that holds the GIL,
        an embedding, an HTTP request that is then parsed, a search; and a FastAPI service of
        {service.CHATS} chats at once with six synchronous tools, counted from a cold start. Left the ratio to
        the same code without hybridrt; right milliseconds without and with it: the 99th percentile of the
        loop's delay, for the chats that of a request of /health, over the whole run and after
        its first {service.BEGINNING:.0f} s; {machine(asked)}:"""
    rows = [*_asked(asked["samples"]), *_served(served["samples"])]
    head = ("", "per second", "their p99", "p99 of the loop, ms")
    after = """
        A `Runtime` alone keeps the loop from most of what threads do to it, but one call of the parse holds
        the GIL until it ends, and the loop waits for it. What a framework computes on the loop itself stays
        there ([agents](../benchmarks/results/agents-py3.13.md),
        [chats](../benchmarks/results/service-py3.13.md))."""
    return f"{paragraph(note)}\n\n{table(head, rows)}\n\n{paragraph(after)}"


def _asked(samples: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    for way, title in _GAINING.items():
        before, after = samples[agents.BASES[way]], samples[way]
        questions, p99 = (
            ratios([found(each) for each in after], [found(each) for each in before]).median
            for found in (itemgetter("questions"), lambda each: each["question"]["p99"])
        )
        loop = (median(each["loop_p99"] * 1e3 for each in taken) for taken in (before, after))
        yield [title, f"{questions:.2f}", f"{p99:.2f}", ", ".join(f"{ms:.0f}" for ms in loop)]


def _served(samples: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[list[str]]:
    before = samples["to_thread"]
    for way, title in _SERVING.items():
        gain = ratios(samples[way]["chats"], before["chats"]).median
        health = (
            ", ".join(f"{median(each[name]):.0f}" for each in (before, samples[way]))
            for name in ("health_p99", "then")
        )
        yield [title, f"{gain:.2f}", "", "; ".join(health)]


def _rag(reports: Reports) -> str:
    report = reports("rag-py3.13")
    ours, theirs = (rag.figures(report["samples"][executor]) for executor in rag.EXECUTORS)
    delay = {
        phase: [f"{median(each[f'{phase}: loop p99, ms']):.0f}" for each in (ours, theirs)]
        for phase in ("prepare", "index", "answer")
    }
    seconds, answer = (ratios(ours[name], theirs[name]).median for name in ("index: seconds", rag.ANSWER))
    return paragraph(f"""
        The same job runs on asyncio's default executor, too; `--compare` shows both. The p99 of the loop's
        delay is {delay["prepare"][0]} ms here and {delay["prepare"][1]} there while the model is loaded,
        {delay["index"][0]} and {delay["index"][1]} while documents are indexed, {delay["answer"][0]} and
        {delay["answer"][1]} while questions are answered. It gains no time:
        indexing takes {seconds:.2f} times as long, an answer {answer:.2f} times
        ([report](benchmarks/results/rag-py3.13.md); {machine(report)}).""")


BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "what frameworks gain": _frameworks,
    "what agents gain": _agents,
    "what the example gains": _rag,
}
