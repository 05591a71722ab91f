"""Kills and faults by the thousand.

PYTHONPATH=examples python -m tests.examples.gateway.audit.kills --rounds 10000 --kills 100
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gateway.audit.recovery import recover
from gateway.audit.scan import scan

from tests.examples.gateway.audit.faults import one_round

ROOT = Path(__file__).resolve().parents[4]


def kill_a_writer(folder: Path, dice: random.Random) -> int:
    """Start a process that writes to the log, kill it after some records, and check what it left.

    Returns:
        How many records it had acknowledged.
    """
    command = [sys.executable, "-m", "tests.examples.gateway.audit.writing", str(folder)]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=path, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(dice.randrange(1, 60))]
        child.kill()
        acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    recover(folder)
    found = scan(folder)
    assert found.fault is None, found.fault
    assert found.chain.count > max(acknowledged)
    return len(acknowledged)


def main() -> None:
    """Run the rounds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="faults on copies (default 10000)")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs of a writing process (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        struck = Counter(
            one_round(Path(home) / "log", options.seed + number) for number in range(options.rounds)
        )
        for name, count in struck.most_common():
            print(f"{name.replace('_', ' ')}: {count} rounds, every acknowledged record there")
        dice, total = random.Random(options.seed), 0
        for _ in range(options.kills):  # one log, so that each kill meets what the one before left
            total += kill_a_writer(Path(home) / "killed", dice)
        if options.kills:
            print(f"SIGKILL: {options.kills} times, {total} records acknowledged, every one there")


if __name__ == "__main__":
    main()
