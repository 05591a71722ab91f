"""How functions are named so that another interpreter finds them."""

from __future__ import annotations

import json
import weakref
import zlib
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import pytest

from hybridrt import NotPortableError
from hybridrt.isolates import remote_invocation
from hybridrt.isolates.reference import Reference, refer, resolve

from . import far


@pytest.mark.parametrize("fn", [far.add, json.loads, zlib.compress, str.upper, len, dict, far.Shape])
def test_what_has_a_name_at_the_top_of_a_module_is_found_by_it(fn: Callable[..., Any]) -> None:
    reference = refer(fn)
    assert reference.pickled is None
    assert resolve(*reference) is fn


def test_a_function_below_a_decorator_is_found_and_not_what_wraps_it() -> None:
    raw = far.double.__wrapped__  # type: ignore[attr-defined]
    assert refer(raw) == Reference(far.__name__, "double", depth=1)
    assert resolve(*refer(raw)) is raw


@pytest.mark.parametrize("name", ["count", "name", "twice"])
def test_offloaded_methods_of_every_kind_are_found(name: str) -> None:
    raw = getattr(far.Shape, name)._fn
    assert isinstance(raw, FunctionType)
    assert resolve(*refer(raw)) is raw


def test_bound_methods_and_partials_travel_pickled() -> None:
    assert resolve(*refer("a,b".split))(",") == ["a", "b"]
    assert resolve(*refer(partial(far.add, 2)))(3) == 5


def test_what_travels_pickled_is_named_after_the_function_below_it() -> None:
    inner = partial(far.add, 2)
    for fn in (inner, partial(inner, 3), partial(partial, far.add)):
        assert refer(fn).pickled is not None
    assert str(refer(inner)) == str(refer(partial(inner, 3))) == f"{far.__name__}:add"
    assert str(refer("a,b".split)) == "builtins:str.split"
    assert str(refer(far.Tally(1).add)) == f"{far.__name__}:Tally.add"
    assert str(refer(far.Tally(1))) == f"{far.__name__}:Tally"


def test_an_isolate_keeps_nothing_of_a_callable_that_came_pickled() -> None:
    tally = far.Tally(1)
    for fn in (tally.add, tally, partial(far.add, tally)):
        reference = refer(fn)
        first = resolve(*reference)
        assert resolve(*reference) is not first
        left = weakref.ref(first)
        del first
        assert left() is None


def test_what_one_call_does_to_a_callable_that_came_pickled_is_gone_with_it() -> None:
    reference = refer(far.Tally(1))
    assert [resolve(*reference)(2) for _ in range(2)] == [3, 3]


def test_what_is_noted_of_callables_does_not_grow_with_what_they_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_invocation, "_refused", set())
    for number in range(100):
        for fn in (partial(far.add, number), far.Tally(number), far.Tally(number).add):
            remote_invocation.refuse(refer(fn))
    assert len(remote_invocation._refused) == 3


def test_a_lambda_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        NotPortableError, match=r"it is a lambda; define it at the top level .*where='thread'"
    ):
        refer(lambda: None)


def test_a_function_inside_another_one_is_refused() -> None:
    def local() -> None: ...

    with pytest.raises(NotPortableError, match=r"test_reference:.*local.*defined inside another function"):
        refer(local)


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_a_function_of_the_main_module_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType(name)
    exec("def work(): pass", main.__dict__)
    monkeypatch.setitem(__import__("sys").modules, name, main)
    with pytest.raises(NotPortableError, match=rf"{name}:work .*the program's main module"):
        refer(main.work)


def test_what_stands_for_a_function_of_the_main_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    exec("import functools\n@functools.cache\ndef work(): pass\nclass Work: pass", main.__dict__)
    monkeypatch.setitem(__import__("sys").modules, "__main__", main)
    for fn in (main.work, main.Work):
        with pytest.raises(NotPortableError, match=r"__main__:[wW]ork .*the program's main module"):
            refer(fn)


def test_a_function_whose_name_now_stands_for_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    original = far.add
    monkeypatch.setattr(far, "add", far.pid)
    with pytest.raises(NotPortableError, match="not what its module has under that name"):
        refer(original)


def test_a_callable_without_a_name_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(NotPortableError, match="has no name there and cannot be pickled"):
        refer(partial(far.add, far.make_lock()))
