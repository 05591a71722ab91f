"""The extractive answerer: what it asks tools for, and what it quotes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ragkit import answerer
from ragkit.answerer import Found, ToolRequest, compose, found_passages, requests
from ragkit.ranking import fuse
from ragkit.sentences import split_sentences

QUESTION = "Where do foxes live?"


def tool(name: str, *parameters: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"properties": {key: {} for key in parameters}}},
    }


TOOLS = [tool("by_meaning", "query", "count"), tool("by_words", "query"), tool("read", "id")]


def asked() -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


def called(*results: object) -> list[dict[str, Any]]:
    """Return an exchange in which tools were called and gave these results."""
    calls = [{"id": str(number)} for number in range(len(results))]
    answers = [{"role": "tool", "content": json.dumps(result)} for result in results]
    return [{"role": "assistant", "tool_calls": calls}, *answers]


def row(number: int, title: str, text: str = "text") -> dict[str, Any]:
    return {"id": number, "title": title, "text": text}


def encode(texts: Sequence[str]) -> Any:
    """Count words: a stand-in for an embedding under which shared words are likeness."""
    vocabulary = sorted(
        {word for text in texts for word in text.lower().replace(".", "").replace("?", "").split()}
    )
    counts = [
        [float(word in text.lower().replace(".", "").replace("?", "").split()) for word in vocabulary]
        for text in texts
    ]
    vectors = np.array(counts, np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_every_tool_that_takes_a_query_is_called_first_side_by_side() -> None:
    assert requests(asked(), TOOLS) == [
        ToolRequest("by_meaning", {"query": QUESTION}),
        ToolRequest("by_words", {"query": QUESTION}),
    ]


def test_then_it_reads_around_the_best_find_of_each_title() -> None:
    results = [row(7, "a"), row(8, "a"), row(9, "b")], [row(9, "b"), row(7, "a")]
    assert requests([*asked(), *called(*results)], TOOLS) == [
        ToolRequest("read", {"id": 7}),
        ToolRequest("read", {"id": 9}),
    ]


def test_after_reading_it_answers() -> None:
    messages = [*asked(), *called([row(7, "a")]), *called([row(7, "a")])]
    assert requests(messages, TOOLS) == []


def test_without_tools_or_without_finds_it_answers_at_once() -> None:
    assert requests(asked(), []) == []
    assert requests([*asked(), *called([], {"error": "no"})], TOOLS) == []


def test_tools_used_for_an_earlier_question_do_not_count() -> None:
    messages = [*asked(), *called([row(7, "a")]), {"role": "assistant", "content": "Dens."}, *asked()]
    assert len(requests(messages, TOOLS)) == 2
    assert found_passages(messages) == []


def test_a_result_that_is_no_list_of_passages_is_passed_over() -> None:
    messages = [*asked(), *called({"error": "no"}, "text", [{"id": 1}], 3, [row(2, "a", "b")])]
    assert found_passages(messages) == [Found(2, "a", "b")]


def test_a_question_in_parts_is_understood() -> None:
    parts = [{"type": "text", "text": "Where do"}, {"type": "text", "text": "foxes live?"}]
    assert answerer.question_of([{"role": "user", "content": parts}]) == QUESTION


def test_the_nearest_sentence_is_quoted_whole_with_its_title() -> None:
    text = "    foxes live = 1\n\nThe weather is mild all year. Most foxes live in dens under ground."
    answer = compose("Where do most foxes live?", [Found(1, "Foxes", text)], encode)
    assert answer == "Most foxes live in dens under ground. [Foxes]"


def test_a_sentence_said_twice_in_nearly_the_same_words_is_quoted_once() -> None:
    one, other = "Most foxes live in dens under the ground.", "Most red foxes live in dens under the ground."
    answer = compose("Where do most foxes live?", [Found(1, "a", one), Found(2, "b", other)], encode)
    assert answer == f"{one} [a]"


def test_what_comes_close_to_nothing_is_not_answered() -> None:
    passages = [Found(1, "a", "An unrelated statement about something else.")]
    assert compose(QUESTION, passages, encode) == answerer.NOTHING_FOUND
    assert compose(QUESTION, [], encode) == answerer.NOTHING_FOUND


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It fails, e.g. When asked. Next.", ["It fails, e.g. When asked.", "Next."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("Version 3.11 is out. It works.", ["Version 3.11 is out.", "It works."]),
        ("No end", ["No end"]),
        ("  ", []),
    ],
)
def test_prose_is_split_at_the_ends_of_sentences_only(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_fusing_puts_what_several_rankings_agree_on_first() -> None:
    assert fuse([["a", "b", "c"], ["d", "b"]]) == ["b", "a", "d", "c"]
    assert fuse([]) == []
