"""The command line: `python -m hybridrt COMMAND`.

Each command is a module with `add_to(commands)`, which declares its arguments and sets `run`, a
function of the parsed arguments that returns the exit code: 0, or 1 when the user's code failed. Wrong
arguments end with 2 and Ctrl-C with 130, as in a shell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hybridrt.cli import trial
from hybridrt.cli.target import UsageError

__all__ = ["main"]

_COMMANDS = (trial,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code; None takes `sys.argv`."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.command is None:
        parser.print_help()
        return 2
    try:
        code: int = asked.run(asked)
    except UsageError as error:
        print(f"{parser.prog} {asked.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hybridrt", description="An asyncio runtime whose event loop does not freeze."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in _COMMANDS:
        command.add_to(commands)
    return parser
