"""Which bytes are text, and in which encoding."""

from __future__ import annotations

import pytest
from ragkit.decode import decode
from ragkit.errors import DocumentError


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_is_read_with_and_without_a_mark(encoding: str) -> None:
    assert decode("Grüße, 世界".encode(encoding)) == "Grüße, 世界"


def test_the_charset_that_a_server_names_is_used_when_utf_8_does_not_fit() -> None:
    assert decode("Привет".encode("koi8-r"), "koi8-r") == "Привет"


def test_the_charset_in_an_html_head_is_used_when_the_server_names_none() -> None:
    page = '<meta charset="iso-8859-7"><p>αβγ'.encode("iso-8859-7")
    assert decode(page).endswith("αβγ")


def test_a_charset_nobody_knows_is_ignored() -> None:
    assert decode(b"caf\xe9", "no-such-charset") == "café"


@pytest.mark.parametrize(
    "body", [b"\x7fELF\x02\x01\x01\x00\x00", b"PK\x03\x04\x14\x00", bytes(range(1, 32)) * 9]
)
def test_bytes_that_are_no_text_are_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="binary"):
        decode(body)
