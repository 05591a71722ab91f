"""One decorator: what computes leaves the event loop, and the loop goes on.

    python examples/offload.py

Forty documents are parsed, first on the loop and then offloaded, while a timer of 5 ms ticks there. What
the program prints is how late the timer came at worst.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import hybridrt
from hybridrt import offload

TICK = 0.005
Document = bytes


def count_words(document: Document) -> Counter[str]:
    """Return how often each word stands in a document."""
    return Counter(word for line in json.loads(document)["lines"] for word in line.lower().split())


@offload
def in_a_thread(document: Document) -> Counter[str]:
    """Count on a thread of the runtime, which computes a little at a time."""
    return count_words(document)


@offload(pure=True)
def anywhere(document: Document) -> Counter[str]:
    """Count where it is cheapest: the function shares no state.

    In a module that is imported another process may run it, too; in the script that is started none can.
    """
    return count_words(document)


async def on_the_loop(document: Document) -> Counter[str]:
    """Count here, as many programs do."""
    return count_words(document)


async def worst_delay(work: Awaitable[object]) -> float:
    """Return by how many seconds a timer of the loop was late at worst while the work was done."""
    task, worst = asyncio.ensure_future(work), 0.0
    while not task.done():
        due = time.perf_counter() + TICK
        await asyncio.wait({task}, timeout=TICK)
        worst = max(worst, time.perf_counter() - due)
    await task
    return worst


async def count_all(
    count: Callable[[Document], Awaitable[Counter[str]]], documents: list[Document]
) -> Counter[str]:
    """Return the words of all documents, of which eight at a time are counted."""
    counted = await hybridrt.Runtime.current().map(count, documents, limit=8)
    return sum(counted, start=Counter())


async def main() -> None:
    """Count three times and say what that did to the loop."""
    line = "the quick brown fox jumps over the lazy dog and hides in the den it dug in spring"
    documents = [json.dumps({"lines": [f"{line} {n}"] * 2_000}).encode() for n in range(40)]
    totals = []
    for name, count in (("on the loop", on_the_loop), ("in threads", in_a_thread), ("anywhere", anywhere)):
        work = asyncio.ensure_future(count_all(count, documents))
        delay = await worst_delay(work)
        totals.append(work.result())
        print(f"{name:>12}: a timer came {1000 * delay:6.1f} ms late at worst")
    assert totals[0] == totals[1] == totals[2]
    print(f"{totals[0].total():,} words; each way counted the same")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    hybridrt.run(main())
