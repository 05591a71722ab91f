"""The tools of the service: synchronous functions of real libraries, and the documents that they work on."""

from __future__ import annotations

import json
import random
import sqlite3
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bs4 import BeautifulSoup
from pydantic import BaseModel, TypeAdapter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

__all__ = ["PURE", "TOOLS", "arguments", "make_database", "make_page"]

_WORDS = [
    "".join(letters)
    for letters in zip(*(random.Random(seed).choices("aeioulnrst", k=2000) for seed in range(5)), strict=True)
]
_PAGE_BYTES, _DATA_BYTES, _ROWS, _VECTORS, _SIZE = 200_000, 1_000_000, 5_000, 20_000, 384


class Order(BaseModel):
    """One order."""

    number: int
    customer: str
    amounts: list[float]
    note: str | None = None


_ORDERS = TypeAdapter(list[Order])


def _text(words: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(_WORDS, k=words))


def make_page() -> str:
    """Return an HTML page of 200 kB."""
    parts: list[str] = []
    size = number = 0
    while size < _PAGE_BYTES:
        parts.append(
            f"<div class='s'><h2 id='h{number}'>{_text(5, number)}</h2><p>{_text(60, number)}</p></div>"
        )
        size += len(parts[-1])
        number += 1
    return f"<html><body>{''.join(parts)}</body></html>"


@cache
def _data() -> str:
    orders: list[dict[str, object]] = []
    for number in range(_DATA_BYTES // 180):
        amounts = [round(random.Random(number).uniform(1, 999), 2) for _ in range(8)]
        orders.append({"number": number, "customer": _text(4, number), "amounts": amounts, "note": "x" * 40})
    return json.dumps(orders)


@cache
def _page() -> str:
    return make_page()


def _make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator([_text(5_000, 0)], trainer)
    return tokenizer


_TOKENIZER = _make_tokenizer()
_STORED = np.random.default_rng(0).standard_normal((_VECTORS, _SIZE), dtype=np.float32)
"""Loaded with the module, as a model of a service is; in each isolate, too."""


def make_database(path: Path) -> None:
    """Write the database that `look_up` searches."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
        rows = ((_text(30, number),) for number in range(_ROWS))
        connection.executemany("INSERT INTO notes (text) VALUES (?)", rows)
    connection.close()


def outline(html: str) -> list[str]:
    """Return the headings of a page."""
    return [heading.get_text() for heading in BeautifulSoup(html, "html.parser").find_all("h2")]


def check_orders(text: str) -> float:
    """Return the sum of all orders."""
    return sum(sum(order.amounts) for order in _ORDERS.validate_python(json.loads(text)))


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text."""
    return len(_TOKENIZER.encode(text).ids)


def search(seed: int) -> list[int]:
    """Return the nearest of the vectors to 32 queries."""
    queries = np.random.default_rng(seed).standard_normal((32, _SIZE), dtype=np.float32)
    scores = queries @ _STORED.T
    return [int(best) for best in scores.argmax(axis=1)]


def look_up(path: str, word: str) -> int:
    """Return how many notes have a word."""
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute(
            "SELECT count(*) FROM notes WHERE text LIKE ?", (f"%{word}%",)
        ).fetchone()
        return int(count)
    finally:
        connection.close()


def fetch(url: str) -> int:
    """Fetch a page and return how many paragraphs it has: a call that waits first and computes then."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read(), "utf-8").count("<p>")


TOOLS: dict[str, Callable[..., Any]] = {
    tool.__name__: tool for tool in (look_up, fetch, outline, check_orders, count_tokens, search)
}
"""In the order in which the model asks for them."""
PURE = frozenset({"outline", "check_orders", "count_tokens", "search"})


def arguments(tool: str, number: int, model: str, database: str) -> tuple[Any, ...]:
    """Return what a tool is called with in the chat of a number."""
    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "look_up": lambda: (database, _WORDS[number % len(_WORDS)]),
        "fetch": lambda: (f"{model}/page",),
        "outline": lambda: (_page(),),
        "check_orders": lambda: (_data(),),
        "count_tokens": lambda: (_page(),),
        "search": lambda: (number,),
    }
    return made[tool]()
