"""How near does an untuned pool come to the best static size, load by load?

For each load a sweep finds the static size with the highest throughput. Then the best static pool, ours,
BetaPool, anyio and `policy="paper"` run in turn, each in a fresh process, from a cold start and for the same
time; the sizes that people use without a sweep are read from it. All loads take some two and three quarter
hours; with `--short`, which means fewer and shorter runs, one. A load's findings are written as
soon as they are complete, and the report is made of all that there are: `--resume` goes on after an
interruption, `--only LOAD --out DIR` takes up single loads.
"""

from __future__ import annotations

from benchmarks.harness import Options, Progress, Report, header
from benchmarks.loads import plan, report
from benchmarks.loads.running import measure
from benchmarks.loads.store import Store

__all__ = ["run"]


def run(options: Options) -> Report:
    """Measure what is asked for, keep it, and report on all that is kept."""
    wanted, absent = plan.choose(options.only)
    timing = plan.QUICK if options.quick else plan.SHORT if options.short else plan.OFFICIAL
    head = header(__doc__, options, timing.pairs, absent)
    store = Store(options.folder)
    for number, load in enumerate(wanted, start=1):
        if not (options.resume and plan.is_measured(store.found.get(load.name), timing)):
            progress = Progress(f"loads {number}/{len(wanted)} {load.name}")
            store.keep(load.name, measure(load, timing, progress))
    return report.make(head, timing, store.found)
