"""Search by meaning and by words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from ragkit.index import Index
from ragkit.values import Chunk

TEXTS = ["foxes live in dens", "owls hunt mice at night", "mice live in fields and dens", "the sea is salt"]


@pytest.fixture
def index() -> Iterator[Index]:
    chunks = [
        Chunk(title=f"t{n}", location="/doc", section=n // 3, text=text) for n, text in enumerate(TEXTS)
    ]
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0]], np.float32)
    index = Index(chunks, vectors)
    yield index
    index.close()


def numbers(passages: object) -> list[int]:
    return [passage.id for passage in passages]  # type: ignore[attr-defined]


def test_the_nearest_vectors_come_first(index: Index) -> None:
    found = index.by_meaning(np.array([0.8, 0.6], np.float32), 3)
    assert numbers(found) == [1, 0, 2]
    assert found[0].score == pytest.approx(0.96)


def test_more_passages_than_there_are_gives_all(index: Index) -> None:
    assert len(index.by_meaning(np.array([1, 0], np.float32), 20)) == 4


def test_rare_words_rank_before_common_ones_and_inflections_count(index: Index) -> None:
    assert numbers(index.by_words("Where does a fox live?", 5)) == [0, 2]
    assert numbers(index.by_words("hunting in fields", 5)) == [1, 2]


@pytest.mark.parametrize(
    "query", ['"', "AND", "dens NOT foxes", "mice*", "(", "a:b", "NEAR(x y)", "'; --", "-"]
)
def test_no_query_is_taken_for_an_operator(index: Index, query: str) -> None:
    index.by_words(query, 5)


def test_a_query_without_words_finds_nothing(index: Index) -> None:
    assert index.by_words("?!", 5) == []
    assert index.by_words("zebra", 5) == []


def test_reading_around_stays_in_the_section(index: Index) -> None:
    assert numbers(index.around(1, 5)) == [0, 1, 2]
    assert numbers(index.around(0, 2)) == [0, 1]
    assert numbers(index.around(2, 2)) == [1, 2]
    assert numbers(index.around(3, 5)) == [3]


def test_a_passage_that_does_not_exist_is_named(index: Index) -> None:
    with pytest.raises(IndexError, match=r"expected a passage id from 0 to 3, got 9"):
        index.around(9, 5)
