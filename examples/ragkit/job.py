"""The job: find, fetch, parse, chunk, embed and index documents, then answer questions about them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import aiohttp
import numpy as np

from hybridrt import Agent
from hybridrt.agents import AgentTimeoutError, Event, ModelError, Text, ToolCall

from . import preparing, steps
from .encoder import Encoder, Vectors, by_length
from .endpoint_process import extractive_endpoint
from .errors import DocumentError, EndpointError, UsageError
from .fetch import fetch, open_session
from .heartbeat import Heartbeat
from .index import Index
from .lines import stdin_lines
from .llm import Llm, choose_model
from .model import Model, find_model
from .options import Options
from .parsing import parse
from .report import Answer, Report
from .retrieval import search_tools
from .runners import Runner
from .values import Chunk, Document, Raw, Skipped, Source
from .view import View

__all__ = ["Job"]

INSTRUCTIONS = (
    "Answer the question from the documents that your tools search, and from nothing else. "
    "Search first, in parallel and in different words where that helps, and read on around a passage "
    "when it is cut off. Put the title of the passage in square brackets after each statement, "
    "as in [title]. Say so when the documents do not answer."
)

Parsed = tuple[Document, list[Chunk]]


class Job:
    """One run. Everything heavy goes through `runner`; everything else stays on the loop."""

    def __init__(self, options: Options, runner: Runner, view: View) -> None:
        self._options = options
        self._run = runner
        self._view = view
        self._heartbeat = Heartbeat()
        self._skipped: list[Skipped] = []
        self._documents = self._fetched = self._chunks = self._repeats = 0
        self._answers: list[Answer] = []

    async def run(self) -> Report:
        """Do it all.

        Raises:
            RagError: It cannot be done; the message says what was expected, what came, what to do.
        """
        model = find_model(self._options.model)  # first, so that what is missing is said at once
        async with contextlib.AsyncExitStack() as stack:
            with self._heartbeat.phase("prepare"):
                llm = await self._connect_given(stack)
                onnx_file = await self._onnx_file(model)
                encoder = await self._run.call(steps.load_encoder, model, onnx_file)
            address = None
            if llm is None:  # our own endpoint comes up while the documents are indexed
                own = extractive_endpoint(self._options.model, onnx_file)
                address = await stack.enter_async_context(own)
            with self._heartbeat.phase("index"):
                index = await self._index(encoder)
            stack.callback(index.close)
            with self._heartbeat.phase("answer"):
                if llm is None:
                    assert address is not None
                    llm = await self._connect(stack, await address(), None, None, local=True)
                await self._answer(llm, encoder, index)
        return self._report(encoder.name, llm.model)

    def _report(self, embedder: str, llm: str) -> Report:
        return Report(
            cost=self._run.cost(),
            phases=tuple(self._heartbeat.phases),
            threads=tuple(self._heartbeat.threads),
            model=embedder + (" int8" if self._options.int8 else ""),
            answerer=llm,
            documents=self._documents,
            fetched=self._fetched,
            chunks=self._chunks,
            repeats=self._repeats,
            skipped=tuple(self._skipped),
            answers=tuple(self._answers),
        )

    async def _onnx_file(self, model: Model) -> Path:
        """Return the model's ONNX file; to build it in a thread would stop the loop."""
        int8 = self._options.int8
        found: Path | None = await self._run.call(preparing.find_onnx, model, int8)
        return await self._run.call(preparing.build_onnx, model, int8) if found is None else found

    async def _connect_given(self, stack: contextlib.AsyncExitStack) -> Llm | None:
        """Connect to the endpoint that was named, before an hour of indexing, not after it."""
        base_url = self._options.base_url
        if base_url is None:
            return None
        key = os.environ.get("OPENAI_API_KEY")
        return await self._connect(stack, base_url, key, self._options.llm_model, local=False)

    async def _connect(
        self, stack: contextlib.AsyncExitStack, url: str, key: str | None, model: str | None, *, local: bool
    ) -> Llm:
        client = await self._run.call(steps.open_client, url, key, local)
        stack.push_async_callback(client.close)
        return Llm(client, await choose_model(client, model))

    async def _index(self, encoder: Encoder) -> Index:
        found = await self._run.call(steps.find_documents, self._options.documents)
        self._skipped += [entry for entry in found if isinstance(entry, Skipped)]
        sources = [entry for entry in found if isinstance(entry, Source)][: self._options.limit]
        with self._view.indexing():
            parsed = await self._load(sources)
            if not parsed:
                raise UsageError(self._nothing_left())
            chunks, self._repeats = await self._run.call(steps.merge, parsed)
            self._documents, self._chunks = len(parsed), len(chunks)
            vectors = await self._embed(encoder, chunks)
        return await self._run.call(steps.build_index, chunks, vectors)

    async def _load(self, sources: Sequence[Source]) -> list[Parsed]:
        self._view.expect_documents(len(sources))
        async with open_session() as session:

            async def load(source: Source) -> Raw:
                return await self._bytes_of(session, source)

            parsed = []
            async for document in self._run.pipe(sources, load, parse, skip=self._skip):
                parsed.append(document)
                self._view.advance_documents()
        return parsed

    def _skip(self, item: Source | Raw, error: Exception) -> None:
        """Leave out a document that cannot be had, or breaks a parser."""
        source = item.source if isinstance(item, Raw) else item
        known = isinstance(error, DocumentError)
        reason = str(error) if known else f"cannot be parsed: {type(error).__name__}: {error}"
        self._skipped.append(Skipped(source.location, reason))
        self._view.advance_documents()

    async def _bytes_of(self, session: aiohttp.ClientSession, source: Source) -> Raw:
        if isinstance(source.place, bytes):
            return Raw(source=source, kind=source.kind or "text", body=source.place)
        if isinstance(source.place, Path):
            return await self._run.call(steps.read, source)
        raw = await fetch(session, source)
        self._fetched += 1
        return raw

    async def _embed(self, encoder: Encoder, chunks: Sequence[Chunk]) -> Vectors:
        """Embed chunks, those of like length together; the title goes with the text."""
        self._view.expect_chunks(len(chunks))
        texts = [f"{chunk.title}\n{chunk.text}" for chunk in chunks]
        tokens = [each async for each in self._run.pipe(texts, encoder.tokenise_one)]
        order = by_length(tokens)
        vectors = np.empty((len(chunks), encoder.dimensions), np.float32)
        embedded = self._run.pipe([tokens[i] for i in order], encoder.embed_one)
        place = iter(order)
        async for vector in embedded:
            vectors[next(place)] = vector
            self._view.advance_chunks()
        return vectors

    async def _answer(self, llm: Llm, encoder: Encoder, index: Index) -> None:
        tools = search_tools(self._run, encoder, index)
        agent = Agent(llm.client, llm.model, tools, instructions=INSTRUCTIONS, max_turns=6)
        titles = {chunk.title: chunk.location for chunk in index.chunks}

        async def ask(question: str) -> Answer:
            return await self._ask(agent, question, titles)

        questions, limit = self._options.questions, self._options.concurrency
        self._answers += [answer async for answer in self._run.pipe(questions, ask, limit=limit)]
        async for question in self._asked_for():
            self._answers.append(await ask(question))

    async def _asked_for(self) -> AsyncIterator[str]:
        """Yield the lines of the terminal, if questions may come from there."""
        if self._options.interactive:
            self._view.prompt()
            async for line in stdin_lines():
                if line:
                    yield line
                self._view.prompt()

    async def _ask(self, agent: Agent, question: str, titles: dict[str, str]) -> Answer:
        """Answer a question, shown as it comes where no other one is answered meanwhile, else at its end."""
        alone = self._options.concurrency == 1 or len(self._options.questions) <= 1
        events: list[Event] = []
        if alone:
            self._view.question(question)
        started = time.perf_counter()
        first: float | None = None
        try:
            async with contextlib.aclosing(agent.stream(question)) as stream:
                async for event in stream:
                    if isinstance(event, Text) and first is None:
                        first = time.perf_counter() - started
                    events.append(event)
                    if alone:
                        self._show(event)
        except (ModelError, AgentTimeoutError) as error:
            raise EndpointError(f"{error}; choose one with --base-url and --llm-model") from error
        seconds = time.perf_counter() - started
        if not alone:
            self._view.question(question)
            for event in events:
                self._show(event)
        text = "".join(event.text for event in events if isinstance(event, Text))
        tools = sum(isinstance(event, ToolCall) for event in events)
        cited = {title: titles[title] for title in _citations(text, titles)}
        answer = Answer(
            question=question,
            text=text.strip(),
            cited=cited,
            tools=tools,
            first_word=first,
            seconds=seconds,
        )
        self._view.answered(answer)
        return answer

    def _show(self, event: Event) -> None:
        if isinstance(event, Text):
            self._view.text(event.text)
        elif isinstance(event, ToolCall):
            self._view.tool(event.name, event.arguments)

    def _nothing_left(self) -> str:
        reasons = "; ".join(f"{skipped.location}: {skipped.reason}" for skipped in self._skipped[:5])
        return (
            f"expected at least one document with text, got none ({reasons or 'the folder is empty'}); "
            "name a folder, file or URL of HTML, Markdown, reStructuredText or text"
        )


def _citations(text: str, titles: Iterable[str]) -> list[str]:
    """Return the titles that a text cites, in the order of their first citation."""
    places = ((text.find(f"[{title}]"), title) for title in titles)
    return [title for place, title in sorted(places) if place >= 0]
