"""The agents benchmark: every kind of candidate answers questions, in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from benchmarks.agents import WAYS, candidates
from benchmarks.children.agent_server import _reply
from benchmarks.harness import Candidate, importable, spawn

PACING = {"questions": 2, "warmup": 0.0, "seconds": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["agent", "fastapi, runtime", "langgraph, waiting"])
def test_a_candidate_runs_and_tells_what_it_did(way: str) -> None:
    (made,) = (each for each in candidates(quick=True) if each.name == way)
    if not all(map(importable, made.needs)):
        pytest.skip("a package is missing")
    arguments = {**made.arguments, "pacing": PACING}
    sample = spawn(Candidate(name=way, job=made.job, arguments=arguments))
    assert {"questions", "question", "loop_p99", "loop_max", "loop_cpu"} <= set(sample)


def test_every_way_has_a_candidate() -> None:
    assert [candidate.name for candidate in candidates(quick=False)] == list(WAYS)


def test_the_model_asks_for_all_tools_at_once_and_then_answers() -> None:
    question: dict[str, Any] = {"role": "user", "content": "Why?"}
    tools = [{"function": {"name": name}} for name in ("one", "two")]
    (delta,), reason = _reply({"messages": [question], "tools": tools})
    assert reason == "tool_calls"
    assert [call["function"]["name"] for call in delta["tool_calls"]] == ["one", "two"]
    deltas, reason = _reply({"messages": [question, {"role": "tool", "content": "1"}], "tools": tools})
    assert (deltas, reason) == ([{"content": "That is the answer."}], "stop")


def test_a_question_whose_tool_fails_is_not_answered() -> None:
    told = [{"role": "tool", "content": content} for content in ("40", "2.5e3", "Error: no such document")]
    with pytest.raises(web.HTTPBadRequest) as refused:
        _reply({"messages": told})
    assert refused.value.text == "expected a number from each tool, got 'Error: no such document'"
