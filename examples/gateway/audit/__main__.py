"""The commands: `verify`, `repair`, `prove`, `check`.

verify FOLDER [--head COUNT:HEX]    read a log, or each log in the folders below; exit 1 if one is unsound
repair FOLDER                       move what follows the first damage in each aside; stop the writers first
prove FOLDER INDEX                  print the proof that a record is in the log, as JSON
check PROOF COUNT:HEX               check such a proof with the head alone
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .errors import AuditError
from .mountains import Proof, head_of, leaf_hash, prove, proves
from .records import Chain
from .recovery import repair
from .scan import Scan, chain_folders, records_of, scan

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 sound, 1 not, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (AuditError, OSError, ValueError, KeyError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    return code


def _verify(options: argparse.Namespace) -> int:
    named = options.head is not None
    folders = [_one_log(options.folder, "--head")] if named else _logs(options.folder)
    sound = True
    for folder in folders:
        found = scan(folder)
        print(_describe(folder, found))
        sound &= found.fault is None
        if options.head is not None:
            sound &= _agrees(found, *_parse_head(options.head))
    return 0 if sound else 1


def _logs(folder: Path) -> list[Path]:
    folders = chain_folders(folder)
    if not folders:
        raise ValueError(f"there is no audit log in {folder}, nor in the folders in it")
    return folders


def _one_log(folder: Path, what: str) -> Path:
    folders = _logs(folder)
    if len(folders) > 1:
        raise ValueError(f"{what} belongs to one log, and {folder} holds {len(folders)}; name one")
    return folders[0]


def _agrees(found: Scan, count: int, head: bytes) -> bool:
    chain = Chain()
    for leaf in found.leaves[:count]:
        chain.mountains.add(leaf)
    agrees = chain.count == count and chain.mountains.head == head
    print(f"  the head of its first {count} records {'is' if agrees else 'is NOT'} {head.hex()}")
    return agrees


def _describe(folder: Path, found: Scan) -> str:
    mountains = found.chain.mountains
    state = "sound" if found.fault is None else f"{'TORN' if found.torn else 'BROKEN'}: {found.fault}"
    return (
        f"{folder}: chain {found.name}, {found.segments} segments, {mountains.count} records, "
        f"head {mountains.count}:{mountains.head.hex()}\n  {state}"
    )


def _repair(options: argparse.Namespace) -> int:
    for folder in _logs(options.folder):
        cuts = repair(folder)
        print(f"{folder}: {'; '.join(map(str, cuts)) or 'nothing to repair'}")
    return 0


def _prove(options: argparse.Namespace) -> int:
    folder = _one_log(options.folder, "a proof")
    found = scan(folder)
    if found.fault is not None:
        print(f"audit: {found.fault}; repair it first", file=sys.stderr)
        return 1
    proof = prove(found.leaves, options.index)
    payload = next(islice(records_of(folder), proof.index, None))
    fields = {
        "index": proof.index,
        "count": proof.count,
        "path": [node.hex() for node in proof.path],
        "peaks": [peak.hex() for peak in proof.peaks],
        "record": payload.decode(),
        "head": f"{proof.count}:{head_of(proof.count, proof.peaks).hex()}",
    }
    print(json.dumps(fields, indent=1))
    return 0


def _check(options: argparse.Namespace) -> int:
    text = options.proof.read_text()
    count, head = _parse_head(options.head)
    try:
        fields: dict[str, Any] = json.loads(text)
        proof = Proof(
            index=fields["index"],
            count=count,
            path=tuple(bytes.fromhex(node) for node in fields["path"]),
            peaks=tuple(bytes.fromhex(peak) for peak in fields["peaks"]),
        )
        proven = proves(proof, leaf_hash(fields["record"].encode()), head)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a proof as `prove` prints it, got {text!r:.100}") from error
    print(f"record {proof.index} {'is' if proven else 'is NOT'} among the {count} of this head")
    return 0 if proven else 1


def _parse_head(text: str) -> tuple[int, bytes]:
    count, colon, head = text.partition(":")
    if not colon or not count.isdigit() or len(head) != 64:
        raise ValueError(f"a head is COUNT:HEX with 64 hexadecimal digits, as verify prints it, got {text!r}")
    return int(count), bytes.fromhex(head)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.gateway.audit", description="Checks audit logs."
    )
    commands = parser.add_subparsers(required=True)
    verify = commands.add_parser("verify", help="read a log, or each in the folders below, and check it")
    verify.add_argument("folder", type=Path)
    verify.add_argument("--head", metavar="COUNT:HEX", help="a head that was kept elsewhere")
    verify.set_defaults(run=_verify)
    mend = commands.add_parser("repair", help="move what follows the first damage in each aside")
    mend.add_argument("folder", type=Path)
    mend.set_defaults(run=_repair)
    proof = commands.add_parser("prove", help="print the proof that a record is in the log")
    proof.add_argument("folder", type=Path)
    proof.add_argument("index", type=int)
    proof.set_defaults(run=_prove)
    check = commands.add_parser("check", help="check a proof with the head alone")
    check.add_argument("proof", type=Path)
    check.add_argument("head", metavar="COUNT:HEX")
    check.set_defaults(run=_check)
    return parser


if __name__ == "__main__":
    sys.exit(main())
