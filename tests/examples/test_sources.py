"""Finding and reading documents, and saying why one is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ragkit import sources
from ragkit.errors import DocumentError
from ragkit.values import Skipped, Source


def found(*arguments: str | Path) -> list[Source | Skipped]:
    return sources.from_arguments([str(argument) for argument in arguments])


def test_the_topics_of_this_python_are_documents() -> None:
    topics = sources.from_topics()
    assert len(topics) > 50
    assert all(source.place and source.kind == "rst" for source in topics)
    assert "with" in [source.name for source in topics]


def test_a_folder_gives_its_texts_by_name_and_names_them_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("z.txt", "a.md", "b/page.HTML", "b/notes.rst.txt"):
        (tmp_path / name).write_text("text")
    entries = [entry for entry in found(tmp_path) if isinstance(entry, Source)]
    assert [(entry.name, entry.kind) for entry in entries] == [
        ("a.md", "markdown"),
        ("z.txt", "text"),
        ("b/notes.rst.txt", "rst"),
        ("b/page.HTML", "html"),
    ]


def test_hidden_files_and_folders_are_passed_over_in_silence(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "a.md").write_text("text")
    (tmp_path / ".hidden.md").write_text("text")
    assert found(tmp_path) == []


def test_a_file_of_another_kind_in_a_folder_is_named_as_skipped(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"x")
    assert [entry.reason for entry in found(tmp_path) if isinstance(entry, Skipped)] == [
        "not HTML, Markdown, reStructuredText or text by its suffix (.png)"
    ]


def test_a_file_named_by_hand_is_taken_whatever_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "LICENSE"
    path.write_text("text")
    (entry,) = found(path)
    assert isinstance(entry, Source)
    assert sources.read_file(entry).body == b"text"


def test_a_path_that_does_not_exist_is_named_as_skipped(tmp_path: Path) -> None:
    (entry,) = found(tmp_path / "missing")
    assert isinstance(entry, Skipped)
    assert "no such file or folder" in entry.reason


def test_a_url_is_named_after_the_last_part_of_its_path() -> None:
    entries = found("https://example.org/docs/guide.md", "http://example.org/")
    assert [(entry.name, entry.kind) for entry in entries if isinstance(entry, Source)] == [
        ("guide.md", "markdown"),
        ("example.org", None),
    ]


def test_what_only_looks_like_a_url_is_named_as_skipped() -> None:
    (entry,) = found("http://[x")
    assert isinstance(entry, Skipped)
    assert entry.reason.startswith("no URL: ")


def read(path: Path) -> bytes:
    source = Source(name=path.name, location=str(path), kind="text", place=path)
    return sources.read_file(source).body


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DocumentError, match="not a regular file"):
        read(tmp_path / "pipe.txt")


def test_a_file_that_vanished_is_a_document_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: No such file"):
        read(tmp_path / "gone.txt")


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(sources.FILE_BYTES_MAX + 1)
    with pytest.raises(DocumentError, match="20,000,001 bytes, more than the 20,000,000 allowed"):
        read(tmp_path / "huge.txt")
