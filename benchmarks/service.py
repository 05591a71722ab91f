"""How many chats does a service with synchronous tools serve, and does it answer from the first second on?

FastAPI on uvicorn, 32 chats at once. Each asks a local model server through the openai client, which has it
call six synchronous tools: a search in sqlite, an HTTP request, BeautifulSoup on 200 kB, `json.loads` with
pydantic on 1 MB, a tokenizer on 200 kB, and a search among vectors with numpy. Another process asks /health
50 times a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Target, percentile, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "figures_of", "run"]

CHATS, RATE, BEGINNING = 32, 50.0, 8.0
WAYS = {
    "to_thread": "`asyncio.to_thread`, asyncio's default pool",
    "runtime": "the same code in a `Runtime`",
    "pure": "in a `Runtime`, parsing and search `pure`",
    "pure, one BLAS thread": "the same with `OPENBLAS_NUM_THREADS=1`",
}
_NEEDS = ("aiohttp", "bs4", "fastapi", "numpy", "openai", "pydantic", "tokenizers", "uvicorn")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}

_NOTE = """\
{chats} chats at once, {rate:.0f} requests of /health a second, for {seconds:.0f} s from a cold start, each
from a process of its own. Chats are those that ended after the first {beginning:.0f} s, per second. Times of
/health are milliseconds from when a request was due, over the whole run; *beginning* is the slowest of the
first {beginning:.0f} s, *then* the 99th percentile after them. The median over {count} fresh services, then
lowest and highest. A ratio is formed within one repetition, then summarised."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way."""
    return [
        Candidate(
            name=way,
            job="service",
            arguments={
                "way": way.partition(",")[0],
                "seconds": _seconds(quick=quick),
                "chats": CHATS,
                "rate": RATE,
            },
            needs=_NEEDS,
            environment=_ONE_THREAD if "," in way else {},
        )
        for way in WAYS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    seconds = _seconds(quick=options.quick)
    head, samples = measure("service", __doc__, options, candidates(quick=options.quick), repetitions)
    found = {name: figures_of(taken, seconds) for name, taken in samples.items()}
    targets = list(_targets(found))
    note = _NOTE.format(
        chats=CHATS, rate=RATE, seconds=seconds, beginning=_beginning(seconds), count=repetitions
    )
    data = {
        **head,
        "figures": {name: {k: spread(v).to_dict() for k, v in f.items()} for name, f in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": found,  # of each repetition; the times of all requests would be megabytes
    }
    return Report(name="service", text=_text(found, targets, note, head), data=data)


def _seconds(*, quick: bool) -> float:
    return 6.0 if quick else 40.0


def _beginning(seconds: float) -> float:
    """Return how many of the seconds are the beginning: a quick run has fewer."""
    return min(BEGINNING, seconds / 2.0)


Figures = Mapping[str, Sequence[float]]
"""Values of one candidate by name, one per repetition."""


def figures_of(taken: Sequence[Sample], seconds: float) -> Figures:
    """Return what the samples of one candidate say.

    Args:
        taken: Its samples: end and length of each chat, and of each request of /health when it was due and
            how long it took, all in seconds.
        seconds: For how long the service was asked.
    """
    beginning = _beginning(seconds)
    rows = [_figures_of_one(sample, seconds, beginning) for sample in taken]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _figures_of_one(sample: Sample, seconds: float, beginning: float) -> dict[str, float]:
    took = [late * 1e3 for _, late in sample["health"]]
    first = [late * 1e3 for due, late in sample["health"] if due < beginning]
    then = [late * 1e3 for due, late in sample["health"] if due >= beginning]
    settled = sum(end >= beginning for end, _ in sample["chats"])
    return {
        "chats": settled / (seconds - beginning),
        "health_p50": percentile(took, 0.5),
        "health_p99": percentile(took, 0.99),
        "health_max": max(took),
        "beginning": max(first),
        "then": percentile(then, 0.99),
    }


def _targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    plain, ours, pure = found.get("to_thread"), found.get("runtime"), found.get("pure")
    if plain and ours:
        gain = ratios(ours["chats"], plain["chats"])
        yield Target(claim="chats, runtime / to_thread", figure=gain, limit=1.2, at_least=True)
        delay = ratios(ours["health_p99"], plain["health_p99"])
        yield Target(claim="/health p99, runtime / to_thread", figure=delay, limit=0.2)
    if plain and pure:
        gain = ratios(pure["chats"], plain["chats"])
        yield Target(claim="chats, pure / to_thread", figure=gain, limit=2.0, at_least=True)
    if pure:
        yield Target(claim="/health p99, pure, in ms", figure=spread(pure["health_p99"]), limit=30.0)
    for way, figures in (("runtime", ours), ("pure", pure)):
        if figures:
            slowest = spread(figures["beginning"])
            yield Target(claim=f"slowest /health of the beginning, {way}, in ms", figure=slowest, limit=200.0)
    bounded = found.get("pure, one BLAS thread")
    if pure and bounded:
        share = ratios(pure["chats"], bounded["chats"])
        yield Target(claim="chats, pure / one BLAS thread", figure=share, limit=0.95, at_least=True)


def _text(found: Mapping[str, Figures], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    digits = {"chats": 1, "health_p50": 1, "health_p99": 0, "health_max": 0, "beginning": 0, "then": 0}
    columns = ("", "chats/s", "/health p50", "/health p99", "/health max", "beginning", "then")
    rows = [
        [title, *(spread(found[way][name]).text(places) for name, places in digits.items())]
        for way, title in WAYS.items()
        if way in found
    ]
    parts = ["# Service: a FastAPI service with synchronous tools", note, table(columns, rows)]
    if targets:
        parts += ["## Promises", table(("", "limit", "measured", ""), [t.row(2) for t in targets])]
    return "\n\n".join([*parts, describe(head)])
