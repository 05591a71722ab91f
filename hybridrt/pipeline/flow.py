"""A pipe that runs: its stages, its source, what the consumer asks of them, and its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from hybridrt.errors import HybridrtError
from hybridrt.loop.binding import current_binding
from hybridrt.loop.cancel_scopes import wait_out
from hybridrt.pipeline.course import CHUNK_MAX, CHUNK_NS, StageCourse
from hybridrt.pipeline.failures import whole
from hybridrt.pipeline.joint import Joint
from hybridrt.pipeline.source import SOURCE, SourceCourse, is_bulk
from hybridrt.pipeline.stage import Stage
from hybridrt.pipeline.values import PipeStatistics, SkippedItem, bottleneck, stage_row

__all__ = ["Flow"]

logger = logging.getLogger("hybridrt")


class Flow:
    """A pipe that runs; on its loop.

    Args:
        source: What it is fed from.
        stages: What the items go through.
        ordered: Results leave in the order of the items.
        skips: Items that fail are noted, and left out.

    Attributes:
        skipped: Those.
        items_out: Items that the consumer has got.
    """

    def __init__(self, source: Any, stages: tuple[Stage, ...], *, ordered: bool, skips: bool) -> None:
        self._given, self._stages = source, stages
        self._ordered, self._skips = ordered, skips
        self.skipped: list[SkippedItem] = []
        self.items_out = 0
        self._joints: list[Joint] = []
        self._courses: list[StageCourse] = []
        self._source: SourceCourse | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        """What the consumer is to get. The task does not raise it: its frames refer to the task."""
        self._begun = 0.0
        self._ended: float | None = None
        self._each = self._work = 0.0

    def start(self) -> None:
        """Start the stages."""
        source, stages, loop_binding = self._given, self._stages, current_binding()
        self._given = None
        self._begun = time.perf_counter()
        bulk = is_bulk(source)
        for stage in stages:
            self._joints.append(Joint(bulk=bulk, buffer=stage.buffer))
            bulk = stage.kind in ("chunks", "batches", "generator")
        self._joints.append(Joint(bulk=bulk, buffer=None))
        self._source = SourceCourse(source, loop_binding, self._joints[0])
        self._courses = [
            StageCourse(
                stage,
                loop_binding,
                into,
                out,
                ordered=self._ordered,
                skips=self._skips,
                on_failure=self.skipped.append,
            )
            for stage, into, out in zip(stages, self._joints, self._joints[1:], strict=False)
        ]
        self._task = asyncio.get_running_loop().create_task(self._run(), name="hybridrt pipe")

    async def take(self) -> list[Any]:
        """Return some results, or none at the end.

        Raises:
            BaseException: What a stage or the source raised.
        """
        task, last = self._task, self._joints[-1]
        assert task is not None
        wanted = CHUNK_MAX if self._each <= 0 else int(CHUNK_NS / 1e9 / self._each)
        last.wants = max(1, min(wanted, CHUNK_MAX))
        some = await last.take(last.wants)
        if not some:
            await asyncio.wait([task])
        if task.cancelled():  # by the end of its loop: that is no end of its items
            raise asyncio.CancelledError("the pipe was cancelled")
        if task.done():
            task.result()
            failed, self._failed = self._failed, None
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed, some
        return some

    def consumed(self, items: int, seconds: float) -> None:
        """Learn what the consumer took for some items."""
        self._work += seconds
        self._each = 0.7 * self._each + 0.3 * seconds / items

    async def end(self) -> None:
        """Cancel what is under way, and wait for it, even if that is cancelled."""
        task = self._task
        assert task is not None
        self._stop()
        under_way = not task.done()
        task.cancel()
        cancelled = await wait_out([task])
        failed, self._failed = self._failed, None
        with suppress(asyncio.CancelledError):  # once asked, the task drops what has cancelled it
            failed = task.exception() or failed
        # Of a call that is late, by a deadline for one, or refused its consumer hears otherwise.
        if under_way and failed is not None and not isinstance(failed, HybridrtError):
            logger.warning("the pipe raised after its consumer was gone", exc_info=failed)
        for joint in self._joints:
            joint.close()
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled  # its traceback holds this frame

    def _stop(self) -> None:
        for course in self._courses:
            course.stopped = True

    async def _run(self) -> None:
        pipe = asyncio.current_task()  # `start` may not have it yet
        assert pipe is not None
        assert self._source is not None
        try:
            async with asyncio.TaskGroup() as group:
                for course in self._courses:
                    group.create_task(self._guard(partial(course.run, group, pipe), pipe))
                group.create_task(self._guard(partial(self._source.run, pipe), pipe))
        except asyncio.CancelledError as error:
            raise error.with_traceback(None) from None  # as below
        except BaseExceptionGroup as errors:
            self._failed = errors.exceptions[0]  # a group below that is the user's own
            errors.__traceback__ = None  # up to Python 3.13.0 its last frame refers to it
        finally:
            self._stop()
            self._ended = time.perf_counter()
            for joint in self._joints:
                joint.end()

    async def _guard(self, work: Callable[[], Awaitable[None]], pipe: asyncio.Task[None]) -> None:
        try:
            await whole(work, pipe)
        except BaseException:
            self._stop()
            raise

    # ------------------------------------------------------------------ told

    def statistics(self) -> PipeStatistics:
        """Return how far it is."""
        if self._source is None:
            return PipeStatistics(elapsed=0.0, items_in=0, items_out=0, skipped=0, stages=(), bottleneck=None)
        now = self._ended or time.perf_counter()
        elapsed = now - self._begun

        def lasted(ended: float | None) -> float:
            return (ended or now) - self._begun

        source, first, last = self._source, self._joints[0], self._joints[-1]
        rows = [
            stage_row(
                course.stage.name,
                elapsed,
                items=(into.taken, out.given),
                lasted=lasted(course.ended),
                failed=course.failed,
                concurrency=course.most_at_once,
                work=course.work_ns / 1e9,
                waiting=into.waiting.seconds,
                blocked=out.blocked.seconds,
            )
            for course, into, out in zip(self._courses, self._joints, self._joints[1:], strict=False)
        ]
        made, blocked = lasted(source.ended), first.blocked.seconds
        fed, got = (source.items, source.items), (self.items_out, self.items_out)
        stages = (
            stage_row(SOURCE, elapsed, items=fed, lasted=made, work=made - blocked, blocked=blocked),
            *rows,
            stage_row(
                "consumer", elapsed, items=got, lasted=elapsed, work=self._work, waiting=last.waiting.seconds
            ),
        )
        return PipeStatistics(
            elapsed=elapsed,
            items_in=source.items,
            items_out=self.items_out,
            skipped=len(self.skipped),
            stages=stages,
            bottleneck=bottleneck(stages),
        )
