"""Frames of an exception that was raised in an isolate: named over there, rebuilt as a traceback here.

A traceback needs frame objects, and those need code. So each frame becomes one of an empty generator whose
code has the file, the names and the position of the original. The generator never starts, so the frame refers
to nothing: neither to what made it nor to any local variable.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FunctionType, TracebackType
from typing import TypeAlias

__all__ = [
    "RemoteFrame", "RemoteTraceback", "hide_own_frames", "name_frames", "rebuild_frames", "remote_error",
]  # fmt: skip

Position: TypeAlias = tuple[int, int, int | None, int | None]
"""First and last line of the expression that was reached, and its columns where they are known."""
RemoteFrame: TypeAlias = tuple[str, str, str, str, int, Position]
"""File, name, qualified name, module and first line of a function, and the position in it."""
_FRAMES_MAX = 100
"""Frames that cross, the innermost ones; of a recursion that went too deep there are a thousand alike."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another interpreter, as text.

    Attributes:
        frames: The same as frames, which the exception shows as its own here.
    """

    def __init__(self, text: str, frames: Sequence[RemoteFrame]) -> None:
        super().__init__(text)
        self.frames = rebuild_frames(frames)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def remote_error(raised: tuple[BaseException, str, Sequence[RemoteFrame]]) -> BaseException:
    """Return an exception that an isolate has sent, with its text and its frames."""
    error, text, frames = raised
    # Not by plain assignment, which an exception may refuse, as a frozen dataclass does.
    object.__setattr__(error, "__cause__", RemoteTraceback(text, frames))
    hide_own_frames(error)
    return error


def hide_own_frames(error: BaseException | None) -> None:
    """Leave of the traceback of what an isolate has raised only the frames over there."""
    if error is not None and isinstance(error.__cause__, RemoteTraceback):
        error.with_traceback(error.__cause__.frames)


def name_frames(trace: TracebackType | None) -> list[RemoteFrame]:
    """Name the frames of a traceback, the outermost first."""
    found = list[RemoteFrame]()
    while trace is not None:
        code, names = trace.tb_frame.f_code, trace.tb_frame.f_globals
        module = str(names.get("__name__", ""))
        own = code.co_filename, code.co_name, code.co_qualname, module, code.co_firstlineno
        found.append((*own, _position(trace, code)))
        trace = trace.tb_next
    return found[-_FRAMES_MAX:]


def _position(trace: TracebackType, code: CodeType) -> Position:
    reached = next(islice(code.co_positions(), max(0, trace.tb_lasti) // 2, None), (None,) * 4)
    line, end_line, column, end_column = reached
    if line is None or end_line is None or column is None or end_column is None:
        return trace.tb_lineno, trace.tb_lineno, None, None
    return line, end_line, column, end_column


def rebuild_frames(frames: Sequence[RemoteFrame]) -> TracebackType | None:
    """Return a traceback that shows the frames, but for those whose position is none of a Python file."""
    trace: TracebackType | None = None
    for file, name, qualname, module, first_line, position in reversed(frames):
        try:
            code = _code(file, first_line, position).replace(co_name=name, co_qualname=qualname)
        except ValueError:
            continue
        at = next((2 * at for at, here in enumerate(code.co_positions()) if here == position), -1)
        generator = FunctionType(code, {"__name__": module, "__file__": file})()
        trace = TracebackType(trace, generator.gi_frame, at, position[0])
    return trace


def _code(file: str, first_line: int, position: Position) -> CodeType:
    """Compile a generator that begins in one line and has its `yield` at the position."""
    tree = ast.parse("lambda: (yield)", mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            node.lineno = node.end_lineno = max(1, first_line)
        elif isinstance(node, ast.Yield):
            node.lineno, node.end_lineno, column, end_column = position
            node.col_offset, node.end_col_offset = (
                (-1, -1) if column is None or end_column is None else (column, end_column)
            )
    (code,) = (each for each in compile(tree, file, "eval").co_consts if isinstance(each, CodeType))
    return code
