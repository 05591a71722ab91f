"""The command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEFAULT_QUESTIONS", "Options", "parse_options"]

DEFAULT_QUESTIONS = (
    "Why is a mutable default argument shared between calls?",
    "When does the else clause of a loop run?",
    "What happens to an exception raised in a finally clause?",
    "What is the difference between is and ==?",
)

_DESCRIPTION = """\
Index documents and answer questions about them, with citations, on hybridrt.

Documents are parsed, cut up and embedded in hybridrt's thread pool while the event loop fetches, shows
progress and talks to the model. At the end a report says what each step cost, how late the loop was, and
how many threads the pool had and why."""

_EPILOG = """\
examples:
  rag.py                                         the language reference of this Python, four questions
  rag.py -q "What is a metaclass?"               the same documents, your question
  rag.py docs/ README.md -q "How do I start?"    a folder and a file
  rag.py https://docs.python.org/3/library/asyncio-task.html --interactive
  rag.py --compare                               the same job on asyncio's default executor, side by side

Without --base-url or OPENAI_BASE_URL the answers come from an extractive answerer: no language model, it
quotes the sentences nearest in meaning to the question. With one of them any OpenAI-compatible server
(llama.cpp, Ollama, vLLM, OpenAI) writes the answers; OPENAI_API_KEY is sent if set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to do; None and empty mean the default."""

    documents: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    concurrency: int = 4
    interactive: bool = False
    limit: int | None = None
    model: Path | None = None
    int8: bool = False
    base_url: str | None = None
    llm_model: str | None = None
    json: Path | None = None
    compare: bool = False
    executor: str = "hybridrt"


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the command line; exits with a message when it makes no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    questions = tuple(question.strip() for question in given.question)
    if not all(questions):
        parser.error("expected a question after --question, got nothing")
    if not questions and not given.documents and not given.interactive:
        questions = DEFAULT_QUESTIONS
    if not questions and not given.interactive:
        parser.error("expected --question or --interactive beside documents of your own, got neither")
    if given.compare and given.interactive:
        parser.error("expected --compare or --interactive, got both; a comparison needs the same questions")
    if given.json is not None and not given.json.parent.is_dir():
        parser.error(f"expected --json in a folder that exists, got {given.json}")
    return Options(
        documents=tuple(given.documents),
        questions=questions,
        concurrency=given.concurrency,
        interactive=given.interactive,
        limit=given.limit,
        model=given.model,
        int8=given.int8,
        base_url=given.base_url or os.environ.get("OPENAI_BASE_URL") or None,
        llm_model=given.llm_model,
        json=given.json,
        compare=given.compare,
        executor=given.executor,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rag.py",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `compare` takes its own option out by name
    )
    parser.add_argument(
        "documents",
        nargs="*",
        metavar="DOCUMENT",
        help="a folder, file or http(s) URL of HTML, Markdown, reStructuredText or text; "
        "by default the reference texts in pydoc_data.topics",
    )
    _add_options(parser)
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    ask = parser.add_argument_group("questions")
    ask.add_argument("-q", "--question", action="append", default=[], help="ask this; may be repeated")
    ask.add_argument(
        "--concurrency",
        type=_positive,
        default=4,
        metavar="N",
        help="questions answered at once, 4 by default; with 1 an answer is shown word by word",
    )
    ask.add_argument("-i", "--interactive", action="store_true", help="then read questions from the terminal")
    index = parser.add_argument_group("documents and embedding")
    index.add_argument("--limit", type=_positive, metavar="N", help="use the first N documents only")
    index.add_argument("--model", type=Path, metavar="DIR", help="a BERT-like sentence-transformers folder")
    index.add_argument("--int8", action="store_true", help="quantise the model: faster, a little less exact")
    answer = parser.add_argument_group("language model")
    answer.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, up to /v1")
    answer.add_argument("--llm-model", metavar="NAME", help="its model; by default the first it lists")
    report = parser.add_argument_group("report")
    report.add_argument("--json", type=Path, metavar="FILE", help="write the report to a file, too")
    report.add_argument("--compare", action="store_true", help="run on asyncio's default executor as well")
    parser.add_argument(
        "--executor", choices=("hybridrt", "asyncio"), default="hybridrt", help=argparse.SUPPRESS
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)
