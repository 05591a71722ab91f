"""Child: MiniLM embeddings of single sentences, batched and one by one, by many callers and by one."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.children.protocol import run_on, serve

__all__ = ["measure"]

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

SENTENCES = [
    "How do bridges stay up?",
    "What is a semaphore?",
    "Bananas are rich in potassium.",
    "Rain is expected tonight.",
    "Who wrote this letter?",
    "Restart the failed job.",
    "Where is my parcel now?",
    "Compare the two contracts.",
]
"""What people ask a search: a handful of words each."""

Embed = Callable[[str], Awaitable[Any]]


def measure(*, loop: str, callers: int, seconds: float, turns: int) -> Mapping[str, Any]:
    """Measure on a new loop.

    Args:
        loop: Its kind.
        callers: How many embed a sentence each, again and again.
        seconds: Of one block.
        turns: Blocks of each way.
    """
    return run_on(loop, _measure(callers, seconds, turns))


async def _measure(callers: int, seconds: float, turns: int) -> Mapping[str, Any]:
    from ragkit.encoder import Encoder
    from ragkit.model import find_model, prepare_onnx

    import hybridrt

    model = find_model()
    encoder = Encoder(model, prepare_onnx(model))

    def embed_all(texts: list[str]) -> Any:
        return encoder.embed(encoder.tokenise(texts))

    batched = hybridrt.offload(embed_all, batch=32, limit=2)
    each = hybridrt.offload(lambda text: embed_all([text])[0])
    ways: dict[str, Embed] = {"batch": batched, "each": each}
    crowd: dict[str, list[float]] = {way: [] for way in ways}
    alone: dict[str, list[float]] = {way: [] for way in ways}
    async with hybridrt.Runtime() as runtime:
        for turn in range(turns + 1):
            for way, embed in ways.items():
                rate = await _rate(embed, callers, seconds)
                took = await _alone(embed, seconds / 2)
                if turn:
                    crowd[way].append(rate)
                    alone[way].append(took)
        figures = [row.batches.gain for row in runtime.statistics().functions if row.batches is not None]
    return {"sentences_per_s": crowd, "alone_ms": alone, "gain": figures[0] if figures else None}


async def _rate(embed: Embed, callers: int, seconds: float) -> float:
    """Return the sentences per second of so many callers."""
    done, until = 0, time.perf_counter() + seconds

    async def call(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await embed(SENTENCES[number % len(SENTENCES)])
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*map(call, range(callers)))
    return done / (time.perf_counter() - begun)


async def _alone(embed: Embed, seconds: float) -> float:
    """Return the milliseconds of one call of a lone caller, the median."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    while not took or time.perf_counter() < until:
        begun = time.perf_counter()
        await embed(SENTENCES[len(took) % len(SENTENCES)])
        took.append((time.perf_counter() - begun) * 1e3)
    return median(took)


if __name__ == "__main__":
    serve(measure)
