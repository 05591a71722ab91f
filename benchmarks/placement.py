"""Does `auto` choose the cheapest placement?

Twenty functions, each run inline, in threads and in isolates with eight callers at once, and left to
choose. Cost is the time per call: how long the callers needed, divided by the calls they made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.children.functions import FUNCTIONS
from benchmarks.children.placement import CALLERS, PLACES
from benchmarks.figures import Target, spread, table
from benchmarks.harness import (
    Candidate,
    Options,
    Progress,
    Report,
    Sample,
    collect,
    describe,
    header,
    select,
)

__all__ = ["Row", "candidates", "judge", "run"]

INLINE_MAX_US = 100.0
"""A longer call keeps the loop, so inline is no choice for it, however cheap."""
NEAR = 1.10
"""What a choice may cost of the cheapest one."""
SHARE = 0.95
"""Share of the functions for which it must not cost more."""

_NOTE = """\
Microseconds per call with {callers} callers at once: the median over {count} fresh processes of
{seconds} s per placement. *auto* is what it cost to leave the choice to the runtime, *chosen* where most
of those calls ran after {learning} s, *regret* what the forced placement of that name costs of the cheapest
one. Inline is shown in brackets where it would keep the loop for more than {inline_max:.0f} us; it is no
choice there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One function: what each placement costs in microseconds, and what the choice comes to.

    Attributes:
        name: The function.
        kind: What it stands for.
        us: Cost by placement, `auto` included.
        chosen: Where most calls of `auto` ran in most repetitions.
        regret: Cost of that placement by the cheapest that is allowed.
    """

    name: str
    kind: str
    us: Mapping[str, float]
    chosen: str
    regret: float

    @property
    def is_near(self) -> bool:
        """Return True if the choice is allowed, and the cheapest or nearly so."""
        return self.regret <= NEAR and _may_choose(self.chosen, self.us)

    def to_dict(self) -> dict[str, object]:
        """Return the figures by name, for JSON."""
        return asdict(self)


def candidates(*, quick: bool, repetition: int = 0) -> list[Candidate]:
    """Return every function; the placements take turns at coming first."""
    return [
        Candidate(
            name=name,
            job="placement",
            arguments={"function": name, "first": repetition % len(PLACES), **_timing(quick=quick)},
            needs=("hybridrt",),
        )
        for name in FUNCTIONS
    ]


def _timing(*, quick: bool) -> dict[str, float]:
    return {"seconds": 0.15, "learning": 0.5} if quick else {"seconds": 0.4, "learning": 1.5}


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 3
    chosen: list[Candidate] = []
    absent: list[str] = []
    for repetition in range(repetitions):
        able, absent = select(candidates(quick=options.quick, repetition=repetition), options.only)
        chosen += able
    head = header(__doc__, options, repetitions, absent)
    samples = collect(chosen, Progress("placement"))
    rows = [judge(name, taken) for name, taken in samples.items()]
    share = sum(row.is_near for row in rows) / len(rows)
    claim = f"share of {len(rows)} functions with a regret of at most {NEAR:.2f}"
    target = Target(claim=claim, figure=spread([share]), limit=SHARE, at_least=True)
    data = {
        **head,
        "rows": [row.to_dict() for row in rows],
        "targets": [target.to_dict()],
        "samples": samples,
    }
    text = _text(rows, target, _note(options, repetitions), head)
    return Report(name="placement", text=text, data=data)


def _note(options: Options, count: int) -> str:
    timing = _timing(quick=options.quick)
    return _NOTE.format(callers=CALLERS, count=count, inline_max=INLINE_MAX_US, **timing)


def judge(name: str, taken: Sequence[Sample]) -> Row:
    """Return what the samples of one function come to."""
    us = {place: median(sample["us"][place] for sample in taken) for place in PLACES}
    allowed = {place: us[place] for place in ("inline", "thread", "isolate") if _may_choose(place, us)}
    (chosen, _), *_ = Counter(_most(sample["chosen"]) for sample in taken).most_common()
    return Row(
        name=name,
        kind=FUNCTIONS[name][0],
        us=us,
        chosen=chosen,
        regret=us[chosen] / min(allowed.values()),
    )


def _may_choose(place: str, us: Mapping[str, float]) -> bool:
    return place != "inline" or us["inline"] <= INLINE_MAX_US


def _most(counts: Mapping[str, int]) -> str:
    return max(counts, key=lambda place: counts[place])


def _text(rows: Sequence[Row], target: Target, note: str, head: Mapping[str, Any]) -> str:
    columns = ("us per call", "kind", "inline", "thread", "isolate", "auto", "chosen", "regret")
    found = table(columns, [_cells(row) for row in rows])
    promises = table(("figure", "limit", "measured", ""), [target.row(2)])
    title = "# Placement: what each costs, and what is chosen"
    return "\n\n".join([title, note, found, "## Promises", promises, describe(head)])


def _cells(row: Row) -> list[str]:
    inline = _number(row.us["inline"])
    return [
        row.name,
        row.kind,
        inline if _may_choose("inline", row.us) else f"({inline})",
        *(_number(row.us[place]) for place in ("thread", "isolate", "auto")),
        row.chosen,
        f"{row.regret:.2f}",
    ]


def _number(us: float) -> str:
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"
