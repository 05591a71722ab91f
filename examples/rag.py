"""Index documents and answer questions about them, with citations, on hybridrt.

    uv run --extra rag examples/rag.py
    uv run --extra rag examples/rag.py --help

The steps that leave the event loop are in `ragkit/steps.py`, the job itself in `ragkit/job.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragkit.errors import RagError
from ragkit.options import Options, parse_options

import hybridrt

if TYPE_CHECKING:
    from ragkit.report import Report
    from ragkit.view import View

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


async def on_hybridrt(options: Options, view: View) -> Report:
    """Run the job on hybridrt."""
    from ragkit.job import Job
    from ragkit.runners import OnHybridrt

    async with hybridrt.Runtime() as runtime:
        return await Job(options, OnHybridrt(runtime), view).run()


async def on_default_executor(options: Options, view: View) -> Report:
    """Run the very same job on asyncio's default executor."""
    from ragkit import steps
    from ragkit.encoder import BATCH
    from ragkit.job import Job
    from ragkit.runners import OnDefaultExecutor

    runner = OnDefaultExecutor(lanes=(steps.keyword_search,), batch=BATCH)
    return await Job(options, runner, view).run()


def run(options: Options, arguments: Sequence[str]) -> None:
    """Do what the command line asks for.

    Raises:
        RagError: It cannot be done.
    """
    from ragkit.compare import compare
    from ragkit.report import write_report
    from ragkit.view import View, show_report
    from rich.console import Console

    console = Console()
    if options.compare:
        compare(Path(__file__).resolve(), arguments, options, console)
        return
    import ragkit.job  # noqa: F401  here, because an import on the loop would stop it

    main = on_hybridrt if options.executor == "hybridrt" else on_default_executor
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:  # the same loop for both
        report = runner.run(main(options, View(console)))
    if options.json is not None:
        write_report(report, options.json)
    show_report(console, report)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where there is one, as `hybridrt.run` does."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


def main(arguments: Sequence[str]) -> int:
    """Run, and turn what goes wrong into a sentence and an exit code."""
    options = parse_options(arguments)
    try:
        run(options, arguments)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        message = f"expected the packages of the extra `rag`, got no {error.name}"
        print(f"error: {message}; run `uv run --extra rag examples/rag.py`", file=sys.stderr)
        return EXIT_FAILED
    except (RagError, hybridrt.HybridrtError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
