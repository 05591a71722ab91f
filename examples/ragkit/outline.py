"""Read reStructuredText and plain text: headings, paragraphs, list items, code.

A light reader by intention. Fragments of Sphinx documents are full of roles and directives that a
strict parser does not know and drops with their content; here an unknown role keeps its words and
an unknown directive its body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from .values import Block, Section

__all__ = ["read_outline"]

_RULE = re.compile(r"""([-=~^"'`*+#<>:._])\1{2,}\s*\Z""")
_ITEM = re.compile(r"(?:[*+•-]|\(?(?:\d+|[a-zA-Z#])[.)])\s+(?=\S)")
_DIRECTIVE = re.compile(r"\.\. (?:\|[^|]+\| )?([\w:+.-]+)::\s*(.*)")
_OPTION = re.compile(r":[\w-]+:(?:\s|\Z)")
_ROLE = re.compile(r"(?::[\w:+.-]+:)?`([^`<>]*?)\s*(?:<[^<>`]*>)?`_{0,2}")
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")
_RUBRIC = re.compile(r"-\[ (.+) \]-\Z")
_CODE_MARK = re.compile(r"::=|^\s*(?:>>>|\$ )", re.MULTILINE)
_SENTENCE_START = re.compile(r"""["“'‘(\[*]*[A-Z][\w’'"]*(?:[,:.]|[,:.]?\s+["“*(]*[A-Za-z_]|\Z)""")
_CODE_DIRECTIVES = frozenset(
    {"code", "code-block", "sourcecode", "productionlist", "doctest", "testcode", "math"}
)
_SILENT_DIRECTIVES = frozenset(
    {"toctree", "index", "image", "figure", "contents", "include", "raw", "highlight"}
)


def read_outline(text: str) -> list[Section]:
    """Return the sections of a text; a heading is a line with a rule of punctuation under it."""
    sections: list[Section] = []
    heading = ""
    held: list[Block] = []
    for part in _parts(text.expandtabs(4).split("\n")):
        if isinstance(part, str):
            sections.append(Section(heading, tuple(held)))
            heading, held = part, []
        else:
            held.append(part)
    return [*sections, Section(heading, tuple(held))]


def _parts(lines: list[str]) -> Iterator[str | Block]:
    """Yield headings as strings and everything else as blocks."""
    literal = False
    for group in _groups(lines):
        while group:
            heading, group = _heading(group)
            if heading is None:
                break
            yield _plain(heading)
            literal = False
        if group:
            yield from _blocks(group, literal)
            literal = _announces_code(group, literal)


def _groups(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines between blank lines."""
    group: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            group.append(line.rstrip())
        elif group:
            yield group
            group = []


def _heading(group: list[str]) -> tuple[str | None, list[str]]:
    """Return the heading that a group starts with, if it does, and the lines after it."""
    if len(group) >= 3 and _RULE.match(group[0]) and _RULE.match(group[2]):
        return group[1].strip(), group[3:]
    if len(group) >= 2 and not group[0][0].isspace() and _RULE.match(group[1]) and not _RULE.match(group[0]):
        return group[0], group[2:]
    if rubric := _RUBRIC.match(group[0]):
        return rubric[1], group[1:]
    if len(group) == 1 and _RULE.match(group[0]):
        return None, []  # a transition
    return None, group


def _announces_code(group: list[str], literal: bool) -> bool:
    """Say whether indented groups that follow are code: after `::` until the indent ends."""
    if literal and group[0][0].isspace():
        return True
    found = _DIRECTIVE.match(group[-1].strip())
    return group[-1].endswith("::") if found is None else found[1] in _CODE_DIRECTIVES


def _blocks(group: list[str], literal: bool) -> Iterator[Block]:
    indented = group[0][0].isspace()
    if group[0].lstrip().startswith(".. "):
        yield from _explicit(group)
    elif indented and (literal or _is_code(group)):
        yield Block(dedent("\n".join(group)), code=True)
    else:
        for paragraph in _paragraphs(group):
            if text := _plain(_joined(paragraph)):
                yield Block(text)


def _explicit(group: list[str]) -> Iterator[Block]:
    """Yield what a directive says; comments, targets and pictures say nothing."""
    found = _DIRECTIVE.match(group[0].strip())
    if found is None or found[1] in _SILENT_DIRECTIVES:
        return
    body = [line for line in group[1:] if not _OPTION.match(line.strip())]
    if found[1] in _CODE_DIRECTIVES:
        if body:
            yield Block(dedent("\n".join(body)), code=True)
        return
    text = _plain(" ".join([found[2], *(line.strip() for line in body)]))
    if text:
        yield Block(text)


def _is_code(group: list[str]) -> bool:
    """Tell indented code from indented prose, which starts as a sentence or a list does."""
    text = "\n".join(group)
    if _CODE_MARK.search(text):
        return True
    first = group[0].strip()
    item = _ITEM.match(first)
    start = first[item.end() :] if item else first
    return not _SENTENCE_START.match(start) or " = " in first


def _paragraphs(group: list[str]) -> list[list[str]]:
    """Split a group where a list item, or text at another indent, begins."""
    found: list[list[str]] = []
    indent = -1
    for line in group:
        stripped = line.lstrip()
        here = len(line) - len(stripped)
        item = _ITEM.match(stripped)
        if item or not found or (here < indent):
            found.append([])
        found[-1].append(stripped[item.end() :] if item else stripped)
        indent = here + (item.end() if item else 0)
    return found


def _joined(lines: list[str]) -> str:
    """Make one line of many; a word broken at its hyphen is mended."""
    return re.sub(r"(?<=\w-)\n(?=\w)", "", "\n".join(lines)).replace("\n", " ")


def _plain(text: str) -> str:
    """Drop the marks of inline markup, keep the words."""
    text = _LITERAL.sub(r"\1", text)
    text = _ROLE.sub(lambda found: found[1].lstrip("~!"), text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(re.sub(r"::\Z", ":", text).split())
