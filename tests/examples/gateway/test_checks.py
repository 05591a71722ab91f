"""What a body must be: pure, so by example and by law."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway.checks import Checked, check_body
from gateway.config import Limits
from gateway.errors import GatewayError
from hypothesis import given
from hypothesis import strategies as st

CHAT = "/v1/chat/completions"
LIMITS = Limits(depth_max=8, items_max=100)
GOOD: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}


def check(body: bytes, path: str = CHAT) -> Checked:
    """Check a body with the limits of these tests."""
    return check_body(path, body, LIMITS)


def nested(depth: int) -> bytes:
    """Return a good body with lists nested so deep that the whole has this depth."""
    return json.dumps(GOOD).encode()[:-1] + b', "x": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("stream", [True, False, None])
def test_a_good_body_is_understood(stream: bool | None) -> None:
    body = json.dumps({**GOOD, "stream": stream}).encode()
    assert check(body) == Checked(model="small", stream=bool(stream))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"{", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b"\xff\xfe{\x00}\x00", "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b'{"model": NaN}', "invalid_json"),
        (b'{"model": "a", "model": "b", "messages": [{}]}', "invalid_json"),
        (b'{"model": "a", "messages": [{"role": "x", "role": "y"}]}', "invalid_json"),
        (b"{}", "invalid_model"),
        (b'{"model": ""}', "invalid_model"),
        (b'{"model": 5}', "invalid_model"),
        (b'{"model": "a\\nb"}', "invalid_model"),
        (json.dumps({**GOOD, "model": "m" * 201}).encode(), "invalid_model"),
        (b'{"model": "a", "stream": "yes"}', "invalid_stream"),
        (b'{"model": "a"}', "invalid_messages"),
        (b'{"model": "a", "messages": []}', "invalid_messages"),
        (b'{"model": "a", "messages": ["text"]}', "invalid_messages"),
        (nested(9), "too_deep"),
        (nested(100_000), "too_deep"),
        (json.dumps({**GOOD, "x": list(range(101))}).encode(), "too_many_values"),
    ],
)
def test_a_bad_body_is_refused_with_its_reason(body: bytes, code: str) -> None:
    with pytest.raises(GatewayError) as caught:
        check(body)
    assert (caught.value.status, caught.value.code) == (400, code)


def test_the_limit_of_the_depth_itself_is_allowed() -> None:
    assert check(nested(8)).model == "small"


@pytest.mark.parametrize(("path", "key"), [("/v1/completions", "prompt"), ("/v1/embeddings", "input")])
def test_other_paths_want_other_keys(path: str, key: str) -> None:
    assert check(json.dumps({"model": "a", key: "text"}).encode(), path).model == "a"
    with pytest.raises(GatewayError, match=f"expected {key} to be a text or a list"):
        check(json.dumps(GOOD).encode(), path)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_to_be_refused(body: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        check(body)
    assert caught.value.status == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_no_json_does_more_than_to_be_refused_or_understood(value: Any) -> None:
    body = json.dumps({**GOOD, "x": value}).encode()
    try:
        outcome = check(body).model
    except GatewayError as error:
        outcome = error.code
    assert outcome in ("small", "too_deep", "too_many_values")
