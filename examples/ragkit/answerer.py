"""The extractive answerer: what stands in for a language model when there is none.

It writes nothing of its own. It asks the search tools it is offered, reads on around the best finds,
and then quotes the sentences nearest in meaning to the question, each with its source. It knows
nothing of HTTP; `endpoint` puts it behind the chat completions protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ranking import fuse
from .sentences import split_sentences

if TYPE_CHECKING:
    from .encoder import Vectors

__all__ = ["NAME", "ToolRequest", "compose", "found_passages", "question_of", "requests"]

NAME = "extractive-answerer"

NOTHING_FOUND = "No sentence in the documents comes close to this question."

_SENTENCES_MAX = 3
_SECTIONS_READ = 3
# Chosen by reading the answers to some fifteen questions about the default texts.
_SIMILARITY_MIN = 0.35
_SHARE_OF_BEST_MIN = 0.9
_ALIKE_MIN = 0.86
_WORDS_SHARED_MIN = 0.4
_PASSAGE_WEIGHT = 0.2
_DANGLING_FACTOR = 0.93
_LETTERS_MIN = 35

_DANGLING = re.compile(r"(?:It|This|These|They|Those|That|Such|He|She|Otherwise|However|Thus)\b")
_WHOLE = re.compile(r"""["“'‘(\[]?[A-Z].*[.!?]["”’')\]]*\Z""", re.DOTALL)

Encode = Callable[[Sequence[str]], "Vectors"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool to call, with its arguments."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Found:
    """A passage as a tool returned it."""

    id: int
    title: str
    text: str


def question_of(messages: Sequence[Json]) -> str:
    """Return the text of the last user message."""
    return next((_text(message) for message in reversed(messages) if message.get("role") == "user"), "")


def requests(messages: Sequence[Json], tools: Sequence[Json]) -> list[ToolRequest]:
    """Return the tools to call next; none when it is time to answer.

    First every tool that takes a query, side by side; then every tool that takes a passage's
    `id`, for the best finds.
    """
    turn = _since_question(messages)
    rounds = sum(bool(message.get("tool_calls")) for message in turn)
    if rounds == 0:
        return [ToolRequest(name, {"query": question_of(messages)}) for name in _taking(tools, "query")]
    if rounds == 1:
        best = _one_each(fuse(_results(turn)))
        return [ToolRequest(name, {"id": number}) for name in _taking(tools, "id") for number in best]
    return []


def found_passages(messages: Sequence[Json]) -> list[Found]:
    """Return what the tools found for the last question, each passage once, the best first."""
    return fuse(_results(_since_question(messages)))


def compose(question: str, passages: Sequence[Found], encode: Encode) -> str:
    """Return the sentences that answer best, each followed by `[title]`.

    Best is the cosine to the question plus a share of the whole passage's. A sentence that says
    what another said, or falls far behind the best, is left out.
    """
    candidates = {
        sentence: number for number, passage in enumerate(passages) for sentence in _quotable(passage.text)
    }
    if not candidates:
        return NOTHING_FOUND
    sentences = list(candidates)
    vectors = encode([question, *sentences])
    alone = vectors[1:] @ vectors[0]
    if float(alone.max()) < _SIMILARITY_MIN:
        return NOTHING_FOUND
    scores = _scores(sentences, alone.tolist(), list(candidates.values()))
    picked = _pick(sentences, scores, vectors[1:])
    return " ".join(f"{sentences[i]} [{passages[candidates[sentences[i]]].title}]" for i in picked)


def _scores(sentences: Sequence[str], alone: Sequence[float], passages: Sequence[int]) -> list[float]:
    """Add to each sentence's own similarity a share of its passage's best, and judge its opening."""
    best: dict[int, float] = {}
    for similarity, passage in zip(alone, passages, strict=True):
        best[passage] = max(best.get(passage, similarity), similarity)
    fit = [own + _PASSAGE_WEIGHT * best[passage] for own, passage in zip(alone, passages, strict=True)]
    return [
        score * _DANGLING_FACTOR if _DANGLING.match(sentence) else score
        for score, sentence in zip(fit, sentences, strict=True)
    ]


def _pick(sentences: Sequence[str], scores: Sequence[float], vectors: Vectors) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    picked: list[int] = []
    for i in order:
        if len(picked) == _SENTENCES_MAX or scores[i] < _SHARE_OF_BEST_MIN * scores[order[0]]:
            break
        if not any(_redundant(sentences[i], sentences[j], float(vectors[i] @ vectors[j])) for j in picked):
            picked.append(i)
    return picked


def _redundant(one: str, other: str, similarity: float) -> bool:
    """Say whether two sentences say the same: near in meaning and in the same words.

    Meaning alone is not enough: two rules about one thing are near each other and both wanted.
    """
    words, others = (set(re.findall(r"\w+", sentence.lower())) for sentence in (one, other))
    shared = len(words & others) / max(1, len(words | others))
    return similarity >= _ALIKE_MIN and shared >= _WORDS_SHARED_MIN


def _quotable(text: str) -> Iterator[str]:
    """Yield the whole sentences of the prose in a passage; code is indented."""
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith("    "):
            for sentence in split_sentences(paragraph):
                if len(sentence) >= _LETTERS_MIN and _WHOLE.match(sentence):
                    yield sentence


def _since_question(messages: Sequence[Json]) -> list[Json]:
    last = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    return list(messages[last + 1 :])


def _results(messages: Sequence[Json]) -> list[list[Found]]:
    """Return the passages in each tool result; what is not a list of passages (an error) is none."""
    return [_passages(_text(message)) for message in messages if message.get("role") == "tool"]


def _passages(text: str) -> list[Found]:
    try:
        rows = json.loads(text)
        return [Found(int(row["id"]), str(row["title"]), str(row["text"])) for row in rows]
    except (ValueError, TypeError, KeyError):
        return []


def _one_each(ranked: Sequence[Found]) -> list[int]:
    """Return the id of the first of each title, so as not to read the same section twice."""
    first: dict[str, int] = {}
    for passage in ranked:
        first.setdefault(passage.title, passage.id)
    return list(first.values())[:_SECTIONS_READ]


def _taking(tools: Sequence[Json], parameter: str) -> list[str]:
    functions = (tool.get("function", {}) for tool in tools)
    return [
        function["name"]
        for function in functions
        if parameter in function.get("parameters", {}).get("properties", {})
    ]


def _text(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)
