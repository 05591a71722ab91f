"""The holder: a remote invocation that keeps its isolate from the first step of a generator to its end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import Context
from typing import Any

from hybridrt.errors import WorkerLostError
from hybridrt.isolates.context import Variables
from hybridrt.isolates.generators import finish, step
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.isolate_pool import IsolatePool
from hybridrt.isolates.packing import Packed
from hybridrt.isolates.reference import Reference, refer
from hybridrt.isolates.remote_invocation import RemoteInvocation
from hybridrt.isolates.setup import Setup

__all__ = ["Holder"]

_numbers = itertools.count(1)


class Holder(RemoteInvocation):
    """Runs the steps of one generator in one isolate; in worker threads, one at a time.

    Args:
        reference: The generator function.
        args: Its arguments.
        kwargs: Its keyword arguments.
        isolate_pool: Lends the isolate.
        setup: Prepares the isolate; None for what all have.
        variables: Context variables that cross.
        context: The caller's, if anything of it is to cross.
    """

    def __init__(
        self,
        reference: Reference,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        isolate_pool: IsolatePool,
        setup: Setup | None = None,
        variables: Variables = (),
        context: Context | None = None,
    ) -> None:
        super().__init__(reference, isolate_pool, None, setup, variables, context)
        self._args, self._kwargs = args, kwargs
        self._number = next(_numbers)
        self._begun = False
        self._held: tuple[IsolatePool, Isolate] | None = None

    def step(self, most: int, slice_ns: int) -> tuple[list[Any], bool]:
        """Return what the generator yields next, and whether it has ended.

        Raises:
            NotPortableError: An argument, or what it yields, cannot cross.
            WorkerLostError: The isolate has ended.
            BaseException: What the generator raises.
        """
        beginning = None if self._begun else (tuple(self._reference), self._args, self._kwargs)
        items, ended = self(step, self._number, beginning, most, slice_ns)
        self._begun = True
        return items, ended

    def finish(self) -> None:
        """Close the generator over there, if the isolate is still held; raises what its `finally` raises."""
        if self._held is not None:
            self(finish, self._number)

    def release(self) -> None:
        """Give the isolate back, or end it if the generator was left in it, which takes long."""
        held, self._held = self._held, None
        if held is not None:
            isolate_pool, isolate = held
            (isolate_pool.discard if self.stopped else isolate_pool.give_back)(isolate)

    def _pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Packed:
        what, *rest = args
        return self._pack_call(refer(what), tuple(rest), {}, (self._args, self._kwargs))

    def _lease(self) -> Isolate:
        if self._held is not None and self._held[0] is not self.isolate_pool:
            self.release()  # the function does not work in sub-interpreters
        if self._held is None:
            if self._begun:
                raise WorkerLostError(f"the isolate of {self._reference} has ended between two of its steps")
            isolate = super()._lease()
            self._held = self.isolate_pool, isolate
            return isolate
        isolate = self._held[1]
        with self._lock:
            self._raise_if_stopped()
            self.isolate = isolate
        return isolate

    def _let_go(self, isolate: Isolate, *, fit: bool) -> None:
        with self._lock:
            self.isolate = None
            fit = fit and not self.stopped
        if not fit:
            self._held = None
            self.isolate_pool.discard(isolate)
