"""The functions that the placement benchmarks call; of a module, so that they can be carried elsewhere.

Each does one kind of thing with its time. Arguments are made by the lambdas of `FUNCTIONS`, once per process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable
from typing import Any

__all__ = [
    "FUNCTIONS",
    "body",
    "few_microseconds",
    "length",
    "length_of",
    "nothing",
    "slow_if_told",
    "spin",
    "spin_at",
]


def nothing(x: int) -> int:
    """Return the argument: what is left of a call is its dispatch."""
    return x


def length(data: bytes | memoryview) -> int:
    """Return how long it is."""
    return len(data)


def few_microseconds(text: str) -> int:
    """Count the words of a line: a few microseconds of Python and C."""
    return sum(len(word) for word in text.split())


def slow_if_told(word: str) -> int:
    """Return at once, or compute for half a second if told `slow`; both words are equally long."""
    end = time.perf_counter() + (0.5 if word == "slow" else 0.0)
    turns = 0
    while time.perf_counter() < end:
        turns += 1
    return turns


def spin(loops: int) -> int:
    """Compute in Python."""
    x = 0
    for i in range(loops):
        x += i * i
    return x


def spin_at(loops: int) -> tuple[int, int]:
    """Compute in Python; also tell in which process."""
    return spin(loops), os.getpid()


def body(size: int) -> bytes:
    """Return a JSON document of about `size` bytes, as a service receives it."""
    record = {
        "id": 12345,
        "name": "a name of some length",
        "tags": ["one", "two"],
        "score": 0.25,
        "none": None,
    }
    count = size // len(json.dumps(record))
    return json.dumps([record] * count).encode()


def length_of(document: bytes) -> int:
    """Parse JSON and return how many records there are."""
    return len(json.loads(document))


def parse(document: bytes) -> Any:
    """Parse JSON and return all of it."""
    return json.loads(document)


def count_words(text: str) -> int:
    """Find words with one C call that keeps the GIL."""
    return len(re.findall(r"\w+", text))


def sort_copy(numbers: list[int]) -> int:
    """Sort: one C call that keeps the GIL, on a large argument."""
    return sorted(numbers)[0]


def add_up(numbers: list[int]) -> int:
    """Do little with a large argument."""
    return sum(numbers)


def count_zeros(content: bytes) -> int:
    """Do little with large bytes."""
    return content.count(b"\0")


def compress(content: bytes) -> int:
    """Compress without the GIL."""
    return len(zlib.compress(content, 6))


def digest(content: bytes) -> str:
    """Hash without the GIL."""
    return hashlib.sha256(content).hexdigest()


def stretch(chance: int) -> int:
    """Derive a key without the GIL, from small arguments."""
    return hashlib.pbkdf2_hmac("sha256", b"password", b"salt", chance)[0]


def sleep(seconds: float) -> float:
    """Wait."""
    time.sleep(seconds)
    return seconds


def make_list(count: int) -> list[int]:
    """Return a large list."""
    return [i * 7 for i in range(count)]


def _words(count: int) -> str:
    return " ".join(f"word{i % 97}" for i in range(count))


FUNCTIONS: dict[str, tuple[str, Callable[..., Any], Callable[[], Any]]] = {
    "nothing": ("short", nothing, lambda: 7),
    "words of a line": ("short", few_microseconds, lambda: "to be or not to be that is the question " * 3),
    "JSON of 400 bytes": ("short", length_of, lambda: body(400)),
    "Python, 30 us": ("short", spin, lambda: 700),
    "Python, 1 ms": ("long", spin, lambda: 25_000),
    "Python, 10 ms": ("long", spin, lambda: 250_000),
    "Python, 60 ms": ("long", spin, lambda: 1_500_000),
    "JSON of 100 KB": ("holding", length_of, lambda: body(100_000)),
    "JSON of 1.5 MB": ("holding", length_of, lambda: body(1_500_000)),
    "regular expression, 250 KB": ("holding", count_words, lambda: _words(40_000)),
    "sorting 50,000 numbers": ("holding", sort_copy, lambda: [i * 7919 % 50_021 for i in range(50_000)]),
    "zlib, 500 KB": ("releasing", compress, lambda: _words(80_000).encode()),
    "SHA-256, 4 MB": ("releasing", digest, lambda: bytes(4_000_000)),
    "key derivation, 20 ms": ("releasing", stretch, lambda: 40_000),
    "sleep, 1 ms": ("waiting", sleep, lambda: 0.001),
    "sleep, 20 ms": ("waiting", sleep, lambda: 0.02),
    "sum of 200,000 numbers": ("large argument", add_up, lambda: list(range(200_000))),
    "zeros in 8 MB": ("large argument", count_zeros, lambda: bytes(8_000_000)),
    "list of 100,000": ("large result", make_list, lambda: 100_000),
    "JSON of 500 KB, all of it": ("large result", parse, lambda: body(500_000)),
}
"""By name: what it stands for, the function, and what makes its one argument."""
