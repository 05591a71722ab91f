"""Tokens, entropy, cost: what the background path counts."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gateway.analysis import (
    PIECE,
    analyse,
    answer_text,
    cost_of,
    entropy_of,
    load_tokenizer,
    pieces,
    prompt_text,
)
from gateway.config import Price
from gateway.errors import ConfigError
from gateway.exchanges import Exchange
from hypothesis import given
from hypothesis import strategies as st

HASH_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def exchange(body: Any, *pieces: bytes, kept_max: int = 10_000, event_stream: bool = False) -> Exchange:
    """Return an exchange with an answer in pieces."""
    held: list[int] = []
    made = Exchange(
        request_id="r",
        key="k",
        path="/v1/chat/completions",
        body=json.dumps(body).encode(),
        model="small",
        kept_max=kept_max,
        hold=held.append,
        release=held.append,
        event_stream=event_stream,
    )
    for piece in pieces:
        made.keep(piece)
    made.end("answered", 200)
    return made


@pytest.mark.parametrize(
    ("tokens", "bits"),
    [([], 0.0), ([7] * 9, 0.0), ([1, 2], 1.0), ([1, 2, 3, 4], 2.0), ([1, 1, 1, 2], 0.8112781)],
)
def test_entropy_is_shannons(tokens: list[int], bits: float) -> None:
    assert entropy_of(Counter(tokens)) == pytest.approx(bits)


@given(st.lists(st.integers(0, 50), min_size=1))
def test_entropy_lies_between_none_and_that_of_equal_shares(tokens: list[int]) -> None:
    assert 0.0 <= entropy_of(Counter(tokens)) <= math.log2(len(set(tokens))) + 1e-9


def test_the_first_price_that_fits_counts() -> None:
    prices = [Price(model="sm*", prompt=1.0, completion=2.0), Price(model="*", prompt=9.0)]
    assert cost_of(prices, "small", 1_000_000, 500_000) == 2.0
    assert cost_of(prices, "large", 1_000_000, 500_000) == 9.0
    assert cost_of([], "small", 5, 5) == 0.0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}, {"image": "x"}]}]},
            "a\nb",
        ),
        ({"prompt": ["a", "b"]}, "a\nb"),
        ({"input": "a"}, "a"),
        ({"messages": [{"content": None}, {"content": 5}]}, ""),
    ],
)
def test_the_texts_of_a_prompt_are_found(body: Any, text: str) -> None:
    assert prompt_text(json.dumps(body).encode()) == text


def test_an_answer_that_was_cut_off_is_counted_as_far_as_it_came() -> None:
    events = b'data: {"choices": [{"delta": {"content": "a b"}}]}\n\ndata: {"choices": [{"del'
    assert answer_text(events, event_stream=True) == ("a b", None)
    assert answer_text(b'{"choices": [', event_stream=False) == ("", None)


@pytest.mark.parametrize("tokens", [-1, 1 << 60, 10**400, "3", None])
def test_a_usage_that_cannot_be_is_none(tokens: object) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens}
    assert answer_text(json.dumps({"usage": usage}).encode(), event_stream=False) == ("", None)


@pytest.mark.parametrize("choices", [5, "a", {"a": 1}, [{"message": {"tool_calls": 5}}]])
def test_choices_of_another_kind_hold_no_text(choices: object) -> None:
    assert answer_text(json.dumps({"choices": choices}).encode(), event_stream=False) == ("", None)


def test_half_of_a_surrogate_pair_is_counted_as_an_unknown_character() -> None:
    said = json.dumps({"choices": [{"text": "fox \ud83d den"}]}).encode()
    found = analyse(load_tokenizer(""), (), exchange({"messages": [{"content": "fox \ud83d den"}]}, said))
    assert (found.prompt_tokens, found.completion_tokens) == (3, 3)


@given(st.binary(max_size=200), st.booleans())
def test_no_answer_makes_it_fail(answer: bytes, stream: bool) -> None:
    answer_text(b"data: " + answer, event_stream=stream)


def test_tokens_are_counted_beyond_the_models_window() -> None:
    words = "fox " * 5000
    found = analyse(load_tokenizer(""), (), exchange({"messages": [{"content": words}]}))
    assert (found.prompt_tokens, found.completion_tokens, found.entropy) == (5000, 0, 0.0)
    assert found.response_sha256 == HASH_OF_NOTHING


@pytest.mark.parametrize("word", ["fox ", "quick brown ", "狐"])
def test_a_long_text_is_counted_by_pieces_as_if_it_were_whole(word: str) -> None:
    text = word * (2 * PIECE // len(word) + 7)
    whole = load_tokenizer("").encode_batch_fast([text], add_special_tokens=False)[0].ids
    found = analyse(load_tokenizer(""), (), exchange({"messages": [{"content": text}]}))
    assert found.prompt_tokens == len(whole)


@pytest.mark.parametrize("text", ["", " ", "x" * PIECE, "x" * (PIECE + 1), " " * (3 * PIECE), "ab " * PIECE])
def test_pieces_are_the_whole_text_and_none_is_too_long(text: str) -> None:
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(0 < len(each) <= PIECE for each in cut)


@pytest.mark.parametrize("kept_max", [0, 3, 4, 100])
def test_the_hash_is_that_of_the_whole_answer_however_much_is_kept(kept_max: int) -> None:
    whole = analyse(load_tokenizer(""), (), exchange({}, b"ab", b"cd", b"ef"))
    part = exchange({}, b"ab", b"cd", b"ef", kept_max=kept_max)
    assert len(part.kept) <= kept_max
    assert analyse(load_tokenizer(""), (), part).response_sha256 == whole.response_sha256


def test_a_tokenizer_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"expected a tokenizer\.json in"):
        load_tokenizer(str(tmp_path / "tokenizer.json"))
