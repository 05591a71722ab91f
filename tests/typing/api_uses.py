"""Uses of the public API that must type-check under mypy strict.

Nothing here runs. An expected error carries a `type: ignore` with its code, and mypy complains about
one that is no longer needed, so a call that should be refused cannot become accepted unseen.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TextIO, TypeVar, assert_type

import hybridrt
from hybridrt import AdaptiveThreadPoolExecutor, CallEvent, OffloadTimeoutError, Runtime, offload

T = TypeVar("T")


@offload
def tokenize(text: str, *, lower: bool = False) -> list[int]:
    """Return numbers for a text."""
    return [ord(letter) for letter in (text.lower() if lower else text)]


@offload(pure=True, timeout=5.0, queue_timeout=1.0, limit=4, lane="parser", abandon_on_cancel=True)
def extract(html: bytes) -> list[str]:
    """Return the words of a page."""
    return html.decode().split()


def count(text: str) -> int:
    """Return the length of a text."""
    return len(text)


def first(items: Sequence[T]) -> T:
    """Return the first item: a generic function."""
    return items[0]


def open_page(path: str) -> TextIO:
    """Return a file, which is an iterator."""
    return open(path, encoding="utf-8")


def tokens_by_text(texts: list[str]) -> dict[str, int]:
    """Return a mapping, which is no batch of results."""
    return dict.fromkeys(texts, 1)


counted = offload(count, timeout=5)
"""The third spelling: a function that somebody else wrote."""


@offload
def pages(path: str, first: int = 1) -> Iterator[bytes]:
    """Yield the pages of a file."""
    yield path.encode()


@offload(buffer=8, timeout=5.0)
def words(text: str) -> Generator[str, None, None]:
    """Yield the words of a text."""
    yield from text.split()


@offload(batch=32, batch_wait=0.002)
def embed(texts: list[str]) -> list[list[float]]:
    """Return the vector of each text."""
    return [[float(len(text))] for text in texts]


class Vectors:
    """Rows, as in an array of numpy: it has a length and an order, and is no `Sequence`."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, row: int) -> list[float]:
        return [float(row)]


@offload(batch=32)
def embed_rows(texts: list[str]) -> Vectors:
    """Return the vector of each text."""
    return Vectors()


@offload
def load(text: str) -> Any:
    """Return what a text says: any type."""
    return text


@offload(pure=True)
def refuse(text: str) -> NoReturn:
    """Never return."""
    raise ValueError(text)


class Index:
    """Something with a method that computes."""

    @offload
    def search(self, query: str, top: int = 3) -> list[tuple[str, float]]:
        """Return the best passages and their scores."""
        return [(query, float(top))]

    @offload
    @classmethod
    def named(cls, name: str) -> Index:
        """Return the index of a name."""
        return cls()

    @offload
    @classmethod
    def names(cls, folder: str) -> Iterator[str]:
        """Yield the names of all indexes."""
        yield folder

    @offload
    @staticmethod
    def size(path: str) -> int:
        """Return the size of a file."""
        return len(path)

    @offload(batch=8)
    def score(self, texts: list[str]) -> list[float]:
        """Return the score of each text."""
        return [1.0 for _ in texts]

    @offload(batch=8)
    def score_rows(self, texts: list[str]) -> Vectors:
        """Return the vector of each text."""
        return Vectors()

    @offload(batch=8)
    @classmethod
    def lengths(cls, texts: list[str]) -> list[int]:
        """Return the length of each text."""
        return [len(text) for text in texts]

    @offload(buffer=2)
    def scan(self, query: str) -> Iterator[str]:
        """Yield what is found."""
        yield query


async def fetch(url: str) -> bytes:
    """Return what an address holds."""
    await asyncio.sleep(0)
    return url.encode()


async def decorated() -> None:
    """Await decorated functions."""
    assert_type(await tokenize("text", lower=True), list[int])
    submitted_when_awaited: Coroutine[Any, Any, list[int]] = tokenize("text")
    await submitted_when_awaited
    assert_type(await extract(b"<p>"), list[str])
    assert_type(await counted("text"), int)
    assert_type(tokenize.sync("text"), list[int])
    assert_type(await tokenize.options(timeout=1.0)("text"), list[int])
    assert_type(await asyncio.gather(tokenize("text"), counted("text")), tuple[list[int], int])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(counted("text")), asyncio.Task[int])


async def untold() -> None:
    """Await functions whose value has any type, or that never return: they are no generator functions."""
    assert_type(await load("text"), Any)
    assert_type(await refuse("text"), Any)


async def generators() -> None:
    """Iterate over decorated generator functions."""
    async with hybridrt.deadline(5.0) as scope:
        async for page in pages("path", first=2):
            assert_type(page, bytes)
        async for word in words("text"):
            assert_type(word, str)
        assert_type(scope.remaining(), float)
    assert_type(pages.sync("path"), Iterator[bytes])
    pages(1)  # type: ignore[arg-type]
    async for found in Index().scan("query"):
        assert_type(found, str)


async def batches() -> None:
    """Call batched functions with one item each."""
    assert_type(await embed("text"), list[float])
    assert_type(embed.sync("text"), list[float])
    assert_type(await Index().score("text"), float)
    assert_type(await embed_rows("text"), list[float])
    assert_type(await Index().score_rows("text"), list[float])
    assert_type(await Index().lengths("text"), int)
    await embed(["text"])  # type: ignore[arg-type]
    offload(tokens_by_text, batch=8)  # type: ignore[arg-type]


async def pipes() -> None:
    """Let items flow through functions of every kind."""
    fetching = hybridrt.stage(fetch, concurrency=8, buffer=16)
    assert_type(fetching, hybridrt.Stage)
    async with hybridrt.pipe(["url"], fetching, len, embed, pages, ordered=False, on_error="skip") as results:
        assert_type(results, hybridrt.Pipe)
        async for result in results:
            print(result)
        assert_type(results.skipped, list[hybridrt.SkippedItem])
        assert_type(results.statistics().bottleneck, str | None)
    hybridrt.pipe(5, len)  # type: ignore[arg-type]
    hybridrt.pipe([5], len, on_error="stop")  # type: ignore[arg-type]


async def methods() -> None:
    """Await decorated methods, bound and not."""
    index = Index()
    assert_type(await index.search("query"), list[tuple[str, float]])
    assert_type(await index.search("query", top=5), list[tuple[str, float]])
    assert_type(index.search.sync("query"), list[tuple[str, float]])
    assert_type(await Index.search(index, "query"), list[tuple[str, float]])
    assert_type(await index.search.options(limit=1)("query"), list[tuple[str, float]])
    assert_type(await index.named("name"), Index)
    assert_type(await Index.size("path"), int)
    async for name in index.names("folder"):
        assert_type(name, str)


async def misused() -> None:
    """Be refused by the type checker."""
    await tokenize(1)  # type: ignore[arg-type]
    await tokenize("text", upper=True)  # type: ignore[call-arg]
    tokenize.sync(b"text")  # type: ignore[arg-type]
    await Index().search(3)  # type: ignore[arg-type]
    offload(count, timeout="5")  # type: ignore[call-overload]
    offload(count, where="elsewhere")  # type: ignore[call-overload]


async def runtime() -> None:
    """Use a runtime inside a loop."""
    Runtime(isolate_initializer=print, isolate_initargs=("ready",), isolate_context=[], isolate_logging=False)
    async with Runtime(max_workers=64, queue_max=None, shutdown_timeout=5.0) as runtime:
        assert_type(runtime, Runtime)
        assert_type(await runtime.offload(count, "text"), int)
        assert_type(await runtime.offload(first, [1]), int)
        assert_type(await runtime.offload(open_page, "path"), TextIO)
        assert_type(await runtime.map(count, ["a", "b"], limit=32), list[int])
        assert_type(await runtime.map(fetch, ["a", "b"]), list[bytes])
        assert_type(await runtime.map(tokenize, ["a", "b"]), list[list[int]])
        await runtime.warm(tokenize, "a")
        assert_type(runtime.background(fetch("url")), asyncio.Task[bytes])
        assert_type(await runtime.spawn_background(fetch("url"), name="fetch"), asyncio.Task[bytes])
        statistics = runtime.statistics()
        assert_type(statistics, hybridrt.Statistics)
        assert_type(statistics.beta, float | None)
        assert_type(statistics.to_dict(), dict[str, Any])
        await runtime.offload(count, 1)  # type: ignore[call-overload]
        assert_type(await runtime.offload(tokenize, "a"), list[int])


async def main() -> int:
    """Do everything that needs a running loop."""
    await decorated()
    await methods()
    await runtime()
    assert_type(hybridrt.install(), Runtime)
    return 0


def plugged_in(loop: asyncio.AbstractEventLoop) -> None:
    """Use the executor by itself and as a loop's default."""
    loop.set_default_executor(AdaptiveThreadPoolExecutor())
    with AdaptiveThreadPoolExecutor(
        4, "parser", None, (), min_workers=1, policy="paper", queue_max=10
    ) as pool:
        assert_type(pool, AdaptiveThreadPoolExecutor)
        assert_type(pool.submit(count, "text"), Future[int])
        assert_type(list(pool.map(count, ["a", "b"])), list[int])
    AdaptiveThreadPoolExecutor(policy="guess")  # type: ignore[arg-type]
    AdaptiveThreadPoolExecutor(policy="throughput")
    AdaptiveThreadPoolExecutor(policy=Constant())


class Constant(hybridrt.Policy):
    """A policy of one size, asked ten times a second."""

    @property
    def interval(self) -> float:
        """Return a tenth of a second; pyright takes no plain attribute."""
        return 0.1

    def decide(
        self, limits: hybridrt.Limits, state: hybridrt.State, window: hybridrt.Window
    ) -> hybridrt.State:
        """Return the same size."""
        assert_type(window.moved, float | None)
        return hybridrt.State(workers=4, reason=hybridrt.Reason.HOLD)


def watch(event: CallEvent) -> None:
    """Hear of a call."""
    assert_type(event.id, int)
    assert_type(event.context.run(threading.get_ident), int)
    hybridrt.Hooks(on_event=watch)
    hybridrt.Hooks(on_event=count)  # type: ignore[arg-type]


@offload
def waits(gate: threading.Event) -> bool:
    """Speak to the runtime from inside a call."""
    hybridrt.check_cancelled()
    with hybridrt.blocking():
        return gate.wait()


def whole_program() -> None:
    """Run a program on the runtime, and handle what may go wrong."""
    try:
        assert_type(hybridrt.run(main()), int)
        hybridrt.run(main(), loop="uvloop")
    except OffloadTimeoutError as error:
        assert_type(error.started, bool)
    hybridrt.run(main(), loop="trio")  # type: ignore[arg-type]
    hybridrt.run(main)  # type: ignore[arg-type]
