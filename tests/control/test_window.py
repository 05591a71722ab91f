"""What a policy is given: nothing that no law looks at."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import hybridrt.control
from hybridrt.control.window import Window

LAWS = sorted(Path(hybridrt.control.__path__[0]).glob("*.py"))


def reads(source: str) -> set[str]:
    """Return the names of the attributes that a law's source reads of a window."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "window"
    }


def test_every_input_of_a_window_is_read_by_a_law() -> None:
    """Gathering them costs the governor time in each window, and a reader believes that they count."""
    read = set().union(*(reads(path.read_text(encoding="utf-8")) for path in LAWS))
    assert {field.name for field in fields(Window)} - read == set()
