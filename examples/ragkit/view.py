"""What the terminal shows: progress, answers as they come, and the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .heartbeat import Phase
from .report import Answer, Report, most_threads, reasons, sizes
from .values import Cost, StepCost

__all__ = ["View", "comparison", "show_report"]

_NAMES_SHOWN = 3
_SIZES_SHOWN = 14
_SLICES = 10


class View:
    """Prints the job while it runs. Only the loop's thread may call it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._documents: TaskID | None = None
        self._chunks: TaskID | None = None

    @contextlib.contextmanager
    def indexing(self) -> Iterator[None]:
        """Show progress bars during the block."""
        with self._progress:
            yield

    def expect_documents(self, count: int) -> None:
        """Start the bar for documents."""
        self._documents = self._progress.add_task("read and parse documents", total=count)

    def advance_documents(self) -> None:
        """Count one document, used or skipped."""
        if self._documents is not None:
            self._progress.advance(self._documents)

    def expect_chunks(self, count: int) -> None:
        """Start the bar for chunks."""
        self._chunks = self._progress.add_task("embed chunks            ", total=count)

    def advance_chunks(self) -> None:
        """Count an embedded chunk."""
        if self._chunks is not None:
            self._progress.advance(self._chunks)

    def prompt(self) -> None:
        """Ask for a question."""
        self._console.print("\nquestion (Ctrl-D ends): ", end="", style="bold")

    def question(self, text: str) -> None:
        """Show the question that is answered next."""
        self._console.print(Text(f"\n? {text}", style="bold cyan"))

    def tool(self, name: str, arguments: str) -> None:
        """Show that the model used a tool."""
        line = Text(f"  · {name} {arguments}", style="dim")
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def text(self, piece: str) -> None:
        """Show a piece of the answer at once."""
        self._console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)

    def answered(self, answer: Answer) -> None:
        """Close an answer: its sources and how long it took."""
        self._console.print()
        for title, location in answer.cited.items():
            self._console.print(Text(f"  [{title}] {location}", style="green"))
        first = "-" if answer.first_word is None else f"{answer.first_word:.2f} s"
        told = f"  first word {first}, whole answer {answer.seconds:.2f} s, {answer.tools} tool calls"
        self._console.print(Text(told, style="dim"))


def show_report(console: Console, report: Report) -> None:
    """Print what the run cost."""
    console.print(Text(f"\nReport: {report.cost.executor}", style="bold"))
    console.print(_summary(report))
    console.print(_steps_table(report.cost))
    console.print(_phases_table(report.phases))
    console.print(_pool(report))
    if report.skipped:
        console.print(_skips(report))


def comparison(left: Report, right: Report) -> Group:
    """Return two reports side by side."""
    return Group(
        Text("\nThe same job on two executors", style="bold"),
        _summary(left),
        _compared_phases(left, right),
        _compared_answers(left, right),
        _compared_steps(left, right),
        Text(
            "One run each, in a process of its own, one after the other; expect some 10 % between runs of "
            "the same thing. beta counts waiting for the GIL and for a core as blocking.",
            style="dim",
        ),
    )


def _summary(report: Report) -> Text:
    fetched = f" ({report.fetched} over HTTP)" if report.fetched else ""
    return Text(
        f"{report.documents} documents{fetched}, {report.chunks} chunks, {report.repeats} repeats dropped, "
        f"{len(report.skipped)} skipped; embedded by {report.model}, answered by {report.answerer}"
    )


def _steps_table(cost: Cost) -> Table:
    table = _table("step", "calls", "wall s", "CPU s", "beta", "queue wait ms/call")
    for step in cost.steps:
        table.add_row(step.name, *_figures(step))
    return table


def _figures(step: StepCost) -> tuple[str, ...]:
    failed = f" ({step.failed} failed)" if step.failed else ""
    beta = "-" if step.beta is None else f"{step.beta:.2f}"
    wait = _ms(step.queue_wait / step.calls) if step.calls else "-"
    return f"{step.calls}{failed}", f"{step.wall:.3f}", f"{step.cpu:.3f}", beta, wait


def _phases_table(phases: tuple[Phase, ...]) -> Table:
    table = _table("phase", "wall s", "CPU s", "threads", "loop delay p50 ms", "p99 ms", "max ms")
    for phase in phases:
        table.add_row(
            phase.name,
            f"{phase.wall:.2f}",
            f"{phase.cpu:.2f}",
            str(phase.threads_max),
            _ms(phase.delay_p50),
            _ms(phase.delay_p99),
            _ms(phase.delay_max),
        )
    return table


def _pool(report: Report) -> Group:
    pool = report.cost.pool
    lines = [f"Pool: policy {pool.policy}, {pool.workers} threads now, at most {pool.max_workers}"]
    if pool.overdrafts:
        lines[0] += f", {pool.overdrafts} calls started without a permit after waiting too long"
    most = " ".join(map(str, most_threads(report, _SLICES)))
    lines.append(f"Threads of the process, the most in each tenth of the run: {most}")
    if pool.loop_delay is not None:
        p50, p99, worst, window = pool.loop_delay
        lines.append(
            f"Loop delay as the runtime saw it over its last {window:.1f} s: "
            f"p50 {_ms(p50)}, p99 {_ms(p99)}, max {_ms(worst)} ms"
        )
    runs = list(sizes(pool.decisions))
    if not runs:
        return Group(Text("\n".join(lines)))
    table = _table("at s", "size", "why", "queued", "running", "decisions")
    for decision, count in runs[:_SIZES_SHOWN]:
        table.add_row(
            f"{decision.at:.2f}",
            str(decision.workers),
            decision.reason,
            str(decision.queued),
            str(decision.running),
            str(count),
        )
    hidden = len(runs) - _SIZES_SHOWN
    more = [Text(f"... and {hidden} more changes; --json has them all", style="dim")] if hidden > 0 else []
    return Group(Text("\n".join(lines)), table, *more)


def _skips(report: Report) -> Text:
    lines = [f"Skipped {len(report.skipped)}:"]
    for reason, locations in reasons(report.skipped):
        hidden = len(locations) - _NAMES_SHOWN
        names = ", ".join(locations[:_NAMES_SHOWN]) + (f" and {hidden} more" if hidden > 0 else "")
        lines.append(f"  {reason}: {names}")
    return Text("\n".join(lines), style="yellow")


def _compared_phases(left: Report, right: Report) -> Table:
    table = _compared(left, right)
    for one, other in zip(left.phases, right.phases, strict=True):
        for name, value, other_value in (
            ("wall s", f"{one.wall:.2f}", f"{other.wall:.2f}"),
            ("CPU s", f"{one.cpu:.2f}", f"{other.cpu:.2f}"),
            ("threads at most", str(one.threads_max), str(other.threads_max)),
            ("loop delay p50 ms", _ms(one.delay_p50), _ms(other.delay_p50)),
            ("loop delay p99 ms", _ms(one.delay_p99), _ms(other.delay_p99)),
            ("loop delay max ms", _ms(one.delay_max), _ms(other.delay_max)),
        ):
            table.add_row(f"{one.name}: {name}", value, other_value)
        table.add_section()
    return table


def _compared_answers(left: Report, right: Report) -> Table:
    table = _compared(left, right)
    for number, (one, other) in enumerate(zip(left.answers, right.answers, strict=True), start=1):
        same = "same text" if one.text == other.text else "texts differ"
        table.add_row(
            f"question {number}, s to the end ({same})", f"{one.seconds:.2f}", f"{other.seconds:.2f}"
        )
    return table


def _compared_steps(left: Report, right: Report) -> Table:
    table = Table("step", "executor", show_edge=False, pad_edge=False)
    for name in ("calls", "wall s", "CPU s", "beta", "queue wait ms/call"):
        table.add_column(name, justify="right")
    others = {step.name: step for step in right.cost.steps}
    for step in left.cost.steps:
        table.add_row(step.name, "asyncio", *_figures(step))
        if step.name in others:
            table.add_row("", "hybridrt", *_figures(others[step.name]))
        table.add_section()
    return table


def _compared(left: Report, right: Report) -> Table:
    return _table("", left.cost.executor, right.cost.executor)


def _table(first: str, *others: str) -> Table:
    table = Table(first, show_edge=False, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
