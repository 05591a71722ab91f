"""The light reader of reStructuredText and plain text."""

from __future__ import annotations

import re
from pydoc_data.topics import topics

import pytest
from ragkit.outline import read_outline
from ragkit.values import Block


def blocks(text: str) -> list[Block]:
    return [block for section in read_outline(text) for block in section.blocks]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_headings_with_a_rule_below_or_around_open_sections() -> None:
    sections = read_outline("Intro.\n\n=====\nTitle\n=====\n\nOne.\n\nPart\n----\nTwo.\n")
    assert [(section.heading, [block.text for block in section.blocks]) for section in sections] == [
        ("", ["Intro."]),
        ("Title", ["One."]),
        ("Part", ["Two."]),
    ]


def test_a_paragraph_becomes_one_line_and_a_broken_word_is_mended() -> None:
    assert blocks("The same pre-\ncomputed value\nis used.") == [
        Block("The same pre-computed value is used.")
    ]


def test_list_items_are_blocks_of_their_own() -> None:
    assert blocks("* One thing\n  goes on.\n* Another.\n\n1. First.\n2. Second.") == [
        Block("One thing goes on."),
        Block("Another."),
        Block("First."),
        Block("Second."),
    ]


def test_a_literal_block_is_code_and_keeps_its_lines() -> None:
    assert blocks("As in::\n\n   The man\n     said: no\n\n   more\n\nProse again here.") == [
        Block("As in:"),
        Block("The man\n  said: no", code=True),
        Block("more", code=True),
        Block("Prose again here."),
    ]


def test_indented_code_is_told_from_indented_prose() -> None:
    text = "object.__enter__(self)\n\n   Enter the context of this object.\n\n   x = [1, 2]\n   for y in x:\n"
    assert [block.code for block in blocks(text)] == [False, False, True]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":func:`len`", "len"),
        (":class:`~collections.abc.Iterator`", "collections.abc.Iterator"),
        (":py:meth:`!close`", "close"),
        (":ref:`the guide <guide-label>`", "the guide"),
        (":unheard-of:role:`x`", "x"),
        ("``len(x) * 2``", "len(x) * 2"),
        ("*very* **much**", "very much"),
        ("`Python <https://python.org>`__", "Python"),
        ("f(*args, **kwargs)", "f(*args, **kwargs)"),
    ],
)
def test_inline_markup_goes_and_its_words_stay(marked: str, plain: str) -> None:
    assert blocks(f"See {marked} for more.") == [Block(f"See {plain} for more.")]


def test_a_directive_nobody_knows_keeps_its_words() -> None:
    assert blocks(".. versionchanged:: 3.9\n   :name: x\n   Now takes a list.") == [
        Block("3.9 Now takes a list.")
    ]


def test_a_code_directive_is_code_even_across_a_blank_line() -> None:
    text = ".. code-block:: python\n   :linenos:\n\n   The = 1\n\nDone with that."
    assert blocks(text) == [Block("The = 1", code=True), Block("Done with that.")]


def test_comments_targets_and_tables_of_contents_say_nothing() -> None:
    assert blocks(".. a comment\n\n.. _label:\n\n.. toctree::\n   one\n   two\n\n----\n") == []


@pytest.mark.parametrize(
    "name", ["with", "function", "compound", "specialnames", "formatstrings", "debugger"]
)
def test_the_language_reference_keeps_its_words(name: str) -> None:
    text = " ".join(
        f"{section.heading} {' '.join(b.text for b in section.blocks)}"
        for section in read_outline(topics[name])
    )
    assert len(words(text)) >= 0.98 * len(words(topics[name]))
