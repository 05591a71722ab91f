"""Context variables: a copy of the submitter's for each call, or none."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from .conftest import Make
from .support import DEADLINE, until

variable: ContextVar[Any] = ContextVar("variable", default="unset")


def see_and_set(value: str) -> str:
    seen: str = variable.get()
    variable.set(value)
    return seen


@pytest.mark.parametrize("workers", [1, 4])
def test_each_call_sees_the_variables_of_its_submit_and_keeps_its_own_to_itself(
    make: Make, workers: int
) -> None:
    executor = make(workers)
    seen = []
    for number in range(20):
        variable.set(number)
        seen.append(executor.submit(see_and_set, "from a call"))
        seen.append(executor.submit(variable.get))
    assert [future.result(DEADLINE) for future in seen] == [n // 2 for n in range(40)]
    assert variable.get() == 19


def test_calls_of_a_batch_see_the_variables_of_their_own_submit(make: Make) -> None:
    executor = make()
    futures = []
    for number in range(600):
        variable.set(number)
        futures.append(executor.submit(variable.get))
    assert [future.result(DEADLINE) for future in futures] == list(range(600))


def test_without_context_a_call_sees_the_variables_of_its_thread(make: Make) -> None:
    executor = make(1, context="none")
    variable.set("submitter's")
    assert executor.submit(see_and_set, "thread's").result(DEADLINE) == "unset"
    assert executor.submit(variable.get).result(DEADLINE) == "thread's"
    assert variable.get() == "submitter's"


@pytest.mark.parametrize(("context", "seen"), [(None, "initializer's"), ("copy", "submitter's")])
def test_an_initializer_turns_the_copy_off_unless_it_is_asked_for(
    make: Make, context: Any, seen: str
) -> None:
    executor = make(1, initializer=variable.set, initargs=("initializer's",), context=context)
    variable.set("submitter's")
    assert executor.submit(variable.get).result(DEADLINE) == seen


def test_the_copied_context_dies_with_the_call(make: Make) -> None:
    class Thing: ...

    executor = make()
    thing = Thing()
    token = variable.set(thing)
    future = executor.submit(len, "ab")
    future.result(DEADLINE)
    variable.reset(token)
    remains = weakref.ref(thing)
    del thing, token
    gc.collect()
    until(lambda: remains() is None, "the context is let go though the future lives")
    assert future.done()


@pytest.mark.parametrize("context", ["", "inherit", 3])
def test_an_unknown_context_is_refused_with_those_there_are(make: Make, context: Any) -> None:
    with pytest.raises(ValueError, match="context must be one of 'copy', 'none', None, got"):
        make(context=context)
