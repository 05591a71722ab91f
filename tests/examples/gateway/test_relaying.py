"""The end of a stream is held back, however it is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

from gateway.relaying import END, EndOfStream
from hypothesis import given
from hypothesis import strategies as st

EVENTS = b'data: {"x": 1}\n\ndata: {"y": "data: "}\n\n'


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    """Return the pieces of `whole` between some places."""
    marks = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[start:end] for start, end in pairwise(marks)]


@given(st.lists(st.integers(0, 200), max_size=12))
def test_all_but_the_last_event_passes_and_nothing_is_lost(places: list[int]) -> None:
    holder = EndOfStream()
    sent = b"".join(holder.push(piece) for piece in cut(EVENTS + END + b"\n\n", places))
    assert (sent, holder.held) == (EVENTS, END + b"\n\n")


@given(st.lists(st.sampled_from([b"data: ", b"data: [DO", b"NE]", b"x", b"d", b"\n"]), max_size=20))
def test_what_is_sent_and_held_is_always_the_whole(pieces: list[bytes]) -> None:
    holder = EndOfStream()
    sent = b"".join(holder.push(piece) for piece in pieces)
    assert sent + holder.held == b"".join(pieces)
    assert END not in sent
    assert holder.held.startswith(END) or END.startswith(holder.held)


def test_an_event_that_is_complete_is_not_held() -> None:
    assert EndOfStream().push(EVENTS) == EVENTS


def test_an_end_without_a_space_is_held_too() -> None:
    holder = EndOfStream()
    sent = b"".join(map(holder.push, [EVENTS, b"data:[DO", b"NE]\n\n"]))
    assert (sent, holder.held) == (EVENTS, b"data:[DONE]\n\n")
