"""Find documents: Python's own topics, folders, files and URLs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from urllib.parse import urlsplit

from .errors import DocumentError
from .values import Kind, Raw, Skipped, Source

__all__ = ["FILE_BYTES_MAX", "from_arguments", "from_topics", "is_url", "kind_of_name", "read_file"]

FILE_BYTES_MAX = 20_000_000

_KINDS: dict[str, Kind] = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".rst": "rst",
    ".rst.txt": "rst",
    ".rest": "rst",
    ".txt": "text",
    ".text": "text",
}


def from_topics() -> list[Source]:
    """Return the language reference texts that every CPython carries, some eighty of them."""
    return [
        Source(name=name, location=f"pydoc topic '{name}'", kind="rst", place=text.encode())
        for name, text in sorted(topics.items())
    ]


def from_arguments(arguments: Sequence[str]) -> list[Source | Skipped]:
    """Return what every URL, file and folder named holds, in order; folders are walked by name."""
    found: list[Source | Skipped] = []
    for argument in arguments:
        found.extend([_from_url(argument)] if is_url(argument) else _from_path(Path(argument)))
    return found


def is_url(argument: str) -> bool:
    """Say whether the argument is an http or https address."""
    return argument.lower().startswith(("http://", "https://"))


def kind_of_name(name: str) -> Kind | None:
    """Return the markup that a file name promises, or None."""
    lowered = name.lower()
    return next((_KINDS[suffix] for suffix in _by_length() if lowered.endswith(suffix)), None)


def read_file(source: Source) -> Raw:
    """Read a file that `from_arguments` found.

    Raises:
        DocumentError: It is no regular file, cannot be read, or is larger than `FILE_BYTES_MAX`.
    """
    path = Path(source.location)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or device might never end
            raise DocumentError("not a regular file")
        if status.st_size > FILE_BYTES_MAX:
            raise DocumentError(f"{status.st_size:,} bytes, more than the {FILE_BYTES_MAX:,} allowed")
        body = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    return Raw(source=source, kind=source.kind or "text", body=body)


def _by_length() -> list[str]:
    return sorted(_KINDS, key=len, reverse=True)


def _from_url(url: str) -> Source | Skipped:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return Skipped(url, f"no URL: {error}")
    name = parts.path.rstrip("/").rsplit("/", 1)[-1] or parts.netloc
    return Source(name=name, location=url, kind=kind_of_name(name), place=url)


def _from_path(path: Path) -> Iterator[Source | Skipped]:
    if os.path.isdir(path):  # unlike Path.is_dir, never raises
        yield from _from_folder(path)
    elif os.path.exists(path):
        yield Source(name=path.name, location=str(path), kind=kind_of_name(path.name), place=path)
    else:
        yield Skipped(str(path), "no such file or folder, or no permission to look")


def _from_folder(folder: Path) -> Iterator[Source | Skipped]:
    unreadable: list[Skipped] = []

    def note(error: OSError) -> None:
        unreadable.append(Skipped(str(error.filename), f"cannot be read: {error.strerror}"))

    for parent, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield _from_folder_file(folder, Path(parent, name))
    yield from unreadable


def _from_folder_file(folder: Path, path: Path) -> Source | Skipped:
    kind = kind_of_name(path.name)
    if kind is None:
        suffix = path.suffix or "none"
        return Skipped(str(path), f"not HTML, Markdown, reStructuredText or text by its suffix ({suffix})")
    name = path.relative_to(folder).as_posix()
    return Source(name=name, location=str(path), kind=kind, place=path)
