"""Cutting documents into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from ragkit.chunk import CHUNK_CHARACTERS, chunk_document, unique
from ragkit.values import Block, Document, Section, Source

prose = st.text(alphabet=st.sampled_from("abc. \n"), max_size=2000).map(lambda text: " ".join(text.split()))
code = st.text(alphabet=st.sampled_from("abc =\n"), max_size=2000)
sections = st.lists(
    st.builds(
        Section,
        st.sampled_from(["", "One", "Two"]),
        st.lists(st.builds(Block, prose) | st.builds(Block, code, st.just(True)), max_size=5).map(tuple),
    ),
    max_size=4,
)


def document(name: str, *parts: Section) -> Document:
    source = Source(name=name, location=f"/{name}", kind="text", place=b"")
    return Document(source=source, sections=parts)


@given(sections)
def test_no_piece_is_too_long_and_no_letter_is_lost(parts: list[Section]) -> None:
    pieces = chunk_document(document("doc", *parts))
    assert all(len(piece.text) <= CHUNK_CHARACTERS for piece in pieces)
    whole = "".join(block.text for part in parts for block in part.blocks)
    assert "".join("".join(piece.text.split()) for piece in pieces) == "".join(whole.split())


def test_no_piece_crosses_a_heading_and_titles_name_document_and_heading() -> None:
    parts = (
        Section("", (Block("Before."),)),
        Section("Head", (Block("After."),)),
        Section("doc", (Block("Own."),)),
    )
    pieces = chunk_document(document("doc", *parts))
    assert [(piece.title, piece.section, piece.text) for piece in pieces] == [
        ("doc", 0, "Before."),
        ("doc: Head", 1, "After."),
        ("doc", 2, "Own."),
    ]


def test_code_is_indented_so_that_a_reader_can_tell_it_from_prose() -> None:
    (piece,) = chunk_document(document("doc", Section("", (Block("Look:"), Block("if x:\n  y", code=True)))))
    assert piece.text == "Look:\n\n    if x:\n      y"


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    paragraph = " ".join(f"This is sentence number {number}." for number in range(60))
    pieces = chunk_document(document("doc", Section("", (Block(paragraph),))))
    assert len(pieces) > 1
    assert all(piece.text.startswith("This") and piece.text.endswith(".") for piece in pieces)


def test_a_text_in_several_documents_is_kept_in_the_shortest() -> None:
    shared = Section("Shared", (Block("Said twice."),))
    long = document("long", shared, Section("More", (Block("Only here."),)))
    short = document("short", shared)
    pieces, dropped = unique([(long, chunk_document(long)), (short, chunk_document(short))])
    assert sorted(piece.title for piece in pieces) == ["long: More", "short: Shared"]
    assert dropped == 1
