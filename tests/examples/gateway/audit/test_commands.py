"""The commands: verify, repair, prove, check."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from gateway.audit.__main__ import main
from gateway.audit.scan import scan, segments_of
from gateway.audit.writer import Writer

from tests.examples.gateway.audit.faults import write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "worker-0"
    write_log(folder, random.Random(0))
    return folder


def head_of(folder: Path) -> str:
    mountains = scan(folder).chain.mountains
    return f"{mountains.count}:{mountains.head.hex()}"


def test_verify_reads_one_log_or_all_in_a_folder(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(log.parent / "worker-1", random.Random(3))
    assert main(["verify", str(log)]) == 0
    assert main(["verify", str(log.parent)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("sound") == 3
    assert head_of(log) in printed


def test_verify_compares_with_a_head_that_was_kept(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(log), "--head", head_of(log)]) == 0
    assert main(["verify", str(log), "--head", f"1:{'0' * 64}"]) == 1
    assert "is NOT" in capsys.readouterr().out


def test_a_changed_record_is_named_and_repair_moves_it_aside(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segments_of(log)[0]
    path.write_bytes(path.read_bytes().replace(b'"tokens"', b'"Tokens"', 1))
    assert main(["verify", str(log)]) == 1
    assert "BROKEN: record 0" in capsys.readouterr().out
    assert main(["repair", str(log)]) == 0
    assert "from record 0 on" in capsys.readouterr().out
    assert main(["verify", str(log)]) == 0


def test_repair_mends_each_log_in_a_folder(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(log.parent / "worker-1", random.Random(3))
    path = segments_of(log)[0]
    path.write_bytes(path.read_bytes().replace(b'"tokens"', b'"Tokens"', 1))
    assert main(["repair", str(log.parent)]) == 0
    moved, nothing = capsys.readouterr().out.splitlines()
    assert "worker-0: moved" in moved
    assert "worker-1: nothing to repair" in nothing
    assert main(["verify", str(log.parent)]) == 0


def test_repair_leaves_a_log_alone_that_is_written_to(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(log)
    path = segments_of(log)[0]
    changed = path.read_bytes().replace(b'"tokens"', b'"Tokens"', 1)
    path.write_bytes(changed)
    assert main(["repair", str(log)]) == 2
    assert "another process writes to the audit log" in capsys.readouterr().err
    assert path.read_bytes() == changed
    writer.close()
    assert main(["repair", str(log)]) == 0


@pytest.mark.parametrize("command", [["verify"], ["repair"], ["prove", "0"]])
def test_a_folder_without_a_log_is_told(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = command
    assert main([name, str(tmp_path), *rest]) == 2
    assert "there is no audit log in" in capsys.readouterr().err
    assert main([name, str(tmp_path / "missing"), *rest]) == 2


def test_a_proof_is_checked_with_the_head_alone(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", str(log), "0"]) == 0
    proof = json.loads(capsys.readouterr().out)
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof))
    assert main(["check", str(file), proof["head"]]) == 0
    file.write_text(json.dumps(proof | {"record": proof["record"].replace("tokens", "Tokens")}))
    assert main(["check", str(file), proof["head"]]) == 1
    assert "is NOT" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["[]", "{}", "no JSON", '{"index": "a", "path": [], "peaks": [], "record": ""}']
)
def test_what_is_no_proof_is_said_to_be_none(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "proof.json"
    file.write_text(text)
    assert main(["check", str(file), f"1:{'0' * 64}"]) == 2
    assert f"audit: expected a proof as `prove` prints it, got {text!r}" in capsys.readouterr().err


def test_wrong_use_says_what_was_expected(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", str(log), "99999"]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["verify", str(tmp_path / "empty")]) == 2
    assert main(["verify", str(log), "--head", "12"]) == 2
    error = capsys.readouterr().err
    assert "got 99999" in error
    assert "there is no audit log in" in error
    assert "a head is COUNT:HEX" in error
