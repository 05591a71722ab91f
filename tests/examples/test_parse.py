"""From bytes to sections, and what is refused."""

from __future__ import annotations

import pytest
from ragkit.errors import DocumentError
from ragkit.parse import parse_document
from ragkit.values import Block, Kind, Raw, Section, Source


def parse(text: str | bytes, kind: Kind) -> tuple[Section, ...]:
    source = Source(name="doc", location="/doc", kind=kind, place=b"")
    body = text.encode() if isinstance(text, str) else text
    return parse_document(Raw(source=source, kind=kind, body=body)).sections


def test_html_gives_what_a_reader_sees() -> None:
    page = """<html><head><title>no</title><style>no</style></head><body><nav>no</nav>
    <main><h1>Foxes <a class="headerlink">¶</a></h1><p>They <b>live</b>\n in dens.<br>All year.</p>
    <script>no</script><ul><li>red<ul><li>small</li></ul>and quick</li></ul><pre>def f():\n    pass\n</pre>
    bare text</main><footer>no</footer></body></html>"""
    assert parse(page, "html") == (
        Section(
            "Foxes",
            (
                Block("They live in dens. All year."),
                Block("red"),
                Block("small"),
                Block("and quick"),
                Block("def f():\n    pass", code=True),
                Block("bare text"),
            ),
        ),
    )


def test_broken_html_is_read_as_a_browser_would() -> None:
    (section,) = parse("<p>One <b>two<p>Three</i> &amp; four", "html")
    assert [block.text for block in section.blocks] == ["One two", "Three & four"]


def test_markdown_gives_headings_items_code_and_tables() -> None:
    head = "---\ntitle: no\n---\n# Top\n\nSome *text* with `code`.\n\n"
    text = head + "- one\n- two\n\n```py\nx = 1\n```\n\n|a|b|\n|-|-|\n|c|d|\n"
    (section,) = parse(text, "markdown")
    assert section.heading == "Top"
    assert [block.text for block in section.blocks] == [
        "Some text with code.",
        "one",
        "two",
        "x = 1",
        "a",
        "b",
        "c",
        "d",
    ]
    assert [block.text for block in section.blocks if block.code] == ["x = 1"]


def test_lines_may_end_as_on_any_system() -> None:
    (section,) = parse("Head\r\n====\r\nOne\r\nline.\r\rTwo.", "rst")
    assert (section.heading, [block.text for block in section.blocks]) == ("Head", ["One line.", "Two."])


@pytest.mark.parametrize("kind", ["html", "markdown", "rst", "text"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"\x00\x01\x02", "binary"),
        (b"<!-- -->", "holds no text"),
        (b"***", "holds no text"),
    ],
)
def test_a_document_without_text_is_refused_with_the_reason(kind: Kind, body: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parse(body, kind)
