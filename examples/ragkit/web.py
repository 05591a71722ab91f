"""Read HTML: the text that a reader sees, by section, without menus and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from selectolax.lexbor import LexborHTMLParser, LexborNode

from .values import Block, Section

__all__ = ["read_html"]

_DROPPED = (
    "script, style, template, noscript, nav, header, footer, aside, form, button, svg, head, a.headerlink"
)
_MAIN = ("main", "[role=main]", "article", "body")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i ins kbd label mark q s samp small span "
    "strike strong sub sup time tt u var wbr -text".split()
)


def read_html(html: str) -> list[Section]:
    """Return the sections of a page, headings of any level alike.

    Consecutive pieces of text inside the same block element make one block, so text that stands
    beside nested lists, or in a bare `<div>`, is not lost.
    """
    tree = LexborHTMLParser(html)
    for node in tree.css(_DROPPED):
        node.decompose()
    root = _main(tree)
    return _sections(_blocks(root)) if root else []


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    found = (tree.css_first(selector) for selector in _MAIN)
    return next((node for node in found if node and node.text(strip=True)), None)


def _blocks(root: LexborNode) -> Iterator[tuple[str, Block]]:
    """Yield each block with the tag of the element that holds it."""
    pieces = ((_block_element(node), node) for node in root.traverse(include_text=True) if _is_piece(node))
    for _, group in groupby(pieces, key=lambda piece: piece[0].mem_id):
        held = list(group)
        tag = held[0][0].tag or ""
        text = "".join("\n" if node.tag == "br" else (node.text_content or "") for _, node in held)
        code = tag == "pre"
        text = text.strip("\n") if code else " ".join(text.split())
        if text.strip():
            yield tag, Block(text, code)


def _is_piece(node: LexborNode) -> bool:
    return node.tag in ("-text", "br")


def _block_element(node: LexborNode) -> LexborNode:
    while node.tag in _INLINE and node.parent is not None:
        node = node.parent
    return node


def _sections(blocks: Iterator[tuple[str, Block]]) -> list[Section]:
    sections: list[Section] = []
    heading = ""
    held: list[Block] = []
    for tag, block in blocks:
        if tag in _HEADINGS:
            sections.append(Section(heading, tuple(held)))
            heading, held = block.text, []
        else:
            held.append(block)
    return [*sections, Section(heading, tuple(held))]
