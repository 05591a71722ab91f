"""`python -m hybridrt trial module:function`: the table of `hybridrt.trial` for a function of the user's."""

from __future__ import annotations

import argparse
import json
import traceback
from functools import partial
from types import TracebackType
from typing import Any

from hybridrt.cli.target import VALUES, UsageError, find_function, parse_arguments
from hybridrt.trial import trial

__all__ = ["add_to"]

_BETWEEN = ("hybridrt.", "importlib", "_frozen_importlib")
"""Modules whose frames lie between the command line and the user's code."""


def add_to(commands: Any) -> None:
    """Declare the command and its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trial",
        help="run a function inline, in a thread and in an isolate, and say where it belongs",
        description="Run a function inline, in a thread and in an isolate, many times each, and say what "
        "every placement does to the event loop.",
        epilog=VALUES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("function", metavar="module:function", help="as in json:loads; dots may follow")
    parser.add_argument("--args", nargs="*", default=[], metavar="VALUE", help="its arguments; see below")
    parser.add_argument("--calls", type=int, metavar="N", help="calls per half and placement, not by time")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    if asked.calls is not None and asked.calls < 1:
        raise UsageError(f"--calls must be at least 1, got {asked.calls}")
    args, kwargs = parse_arguments(asked.args)
    try:
        function = find_function(asked.function)
        if "calls" in kwargs:  # which would be taken for the trial's
            function = partial(function, calls=kwargs.pop("calls"))
        found = trial(function, *args, calls=asked.calls, **kwargs)
    except UsageError:
        raise
    except Exception as error:
        traceback.print_exception(type(error), error, _of_user(error.__traceback__))
        return 1
    if asked.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        print(f"{found.function}\n\n{found}")
    return 0


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is neither ours nor the import system's."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        trace = trace.tb_next
    return trace
