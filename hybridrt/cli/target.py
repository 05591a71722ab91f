"""What a command line names: functions of modules, and the values of arguments."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

__all__ = ["VALUES", "UsageError", "find_function", "parse_arguments", "parse_value"]

VALUES = """\
A value is JSON or a Python literal; @PATH is a file's content as bytes, @@PATH as text (UTF-8).
Anything else is taken as text, unless it begins like a literal that is not complete. NAME=VALUE is a
keyword argument. Quote text that has such a form: "'a=b'"."""
_OPENING = tuple("[{(\"'")


class UsageError(Exception):
    """The command line names something that is not there, or cannot be understood."""


def find_function(name: str) -> Callable[..., Any]:
    """Return what `module:function` names; the function may be dotted, as in `module:Class.method`.

    The current directory is looked in, as by `python -m`. What the module itself raises is not caught.

    Raises:
        UsageError: There is no such module, nothing of that name in it, or it cannot be called.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise UsageError(f"a function is named module:function, as in json:loads, got {name!r}")
    if module_name.startswith("."):
        raise UsageError(f"a module is named from the top, as in package.module, got {module_name!r}")
    module = _import(module_name)
    try:
        found = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise UsageError(f"module {module_name!r} has no {path!r}: {error}") from error
    if not callable(found):
        raise UsageError(f"{name} cannot be called, it is {found!r:.100}")
    return found  # type: ignore[no-any-return]


def _import(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # One that the module asks for in vain is the module's own error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        hint = "; give a module's name, not a file's" if name.endswith(".py") or "/" in name else ""
        raise UsageError(f"there is no module {error.name!r} here or on sys.path{hint}") from error


def parse_arguments(texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments.

    Raises:
        UsageError: A value cannot be understood, or a positional one comes after a keyword.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = parse_value(value)
        elif kwargs:
            raise UsageError(f"positional arguments come before NAME=VALUE, got {text!r} after one")
        else:
            args.append(parse_value(text))
    return args, kwargs


def parse_value(text: str) -> Any:
    """Return the value that a text stands for; see `VALUES`.

    Raises:
        UsageError: The file cannot be read, or a literal is not complete.
    """
    if text.startswith("@"):
        return _read(text)
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    if text.startswith(_OPENING):
        raise UsageError(f"neither JSON nor a Python literal: {text}")
    return text


def _read(text: str) -> bytes | str:
    as_text = text.startswith("@@")
    path = Path(text.removeprefix("@@" if as_text else "@"))
    try:
        return path.read_text(encoding="utf-8") if as_text else path.read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {text}: {error}") from error
