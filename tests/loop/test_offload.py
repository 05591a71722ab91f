"""What `offload` makes of a function: something to await that looks like the function."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import sys
import threading
import typing
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

import hybridrt
from hybridrt import Offloaded, offload


@offload
def double(number: int, *, plus: int = 0) -> int:
    """Return twice the number."""
    return 2 * number + plus


class Scale:
    """A class with offloaded functions of every kind."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    @offload
    def times(self, number: int) -> int:
        """Scale a number."""
        return self.factor * number

    @offload(limit=1)
    def one_by_one(self, number: int) -> int:
        return self.factor * number

    @offload
    @classmethod
    def name_of(cls, suffix: str = "") -> str:
        return cls.__name__ + suffix

    @offload(timeout=30.0)
    @classmethod
    def limited_name_of(cls) -> str:
        return cls.__name__

    timed_name_of = name_of.options(timeout=30.0)

    @classmethod
    @offload
    def name_below(cls) -> str:
        return cls.__name__

    @offload
    @staticmethod
    def half(number: int) -> int:
        return number // 2

    @staticmethod
    @offload
    def half_below(number: int) -> int:
        return number // 2


class Double(Scale):
    """A subclass that offloads its own version."""

    @offload
    def times(self, number: int) -> int:
        return 2 * super().times.sync(number)


# ---------------------------------------------------------------------- forms


async def test_a_decorated_function_is_awaited() -> None:
    assert await double(21) == 42


async def test_it_runs_in_another_thread() -> None:
    assert await offload(threading.get_ident)() != threading.get_ident()


async def test_the_decorator_takes_options() -> None:
    @offload(pure=True, where="thread", timeout=30.0, queue_timeout=30, limit=2, lane="a")
    def triple(number: int) -> int:
        return 3 * number

    assert await triple(2) == 6


async def test_offload_takes_a_function_and_options_at_once() -> None:
    assert await offload(len, timeout=30.0)("abc") == 3


async def test_options_makes_the_same_function_with_other_options() -> None:
    changed = double.options(timeout=30.0, pure=True)
    assert isinstance(changed, Offloaded)
    assert changed is not double
    assert await changed(1, plus=1) == 3


@pytest.mark.parametrize("fn", [partial(pow, 2), int.__add__, complex, Scale(1).__init__, lambda *_: None])
async def test_whatever_is_called_synchronously_can_be_offloaded(fn: Callable[..., object]) -> None:
    args = (3,) if not isinstance(fn, type(int.__add__)) else (3, 4)
    assert await offload(fn)(*args) == fn(*args)


async def test_keyword_arguments_of_any_name_travel() -> None:
    names = {"self": 1, "fn": 2, "args": 3, "port": 4, "timeout": 5}
    assert await offload(dict)(**names) == names
    assert offload(dict).sync(**names) == names


async def test_a_runtime_passes_keyword_arguments_of_any_name() -> None:
    names = {"self": 1, "fn": 2, "args": 3, "port": 4, "timeout": 5}
    async with hybridrt.Runtime() as runtime:
        assert await runtime.offload(dict, **names) == names


# ---------------------------------------------------------------------- calling


def test_calling_gives_a_coroutine_without_a_loop() -> None:
    coro = double(1)
    assert inspect.iscoroutine(coro)
    coro.close()


async def test_a_call_is_submitted_only_when_it_is_awaited() -> None:
    async with hybridrt.Runtime() as runtime:
        coro = double(1)
        assert runtime.statistics().submitted == 0
        assert await coro == 2
        assert runtime.statistics().submitted == 1


async def test_a_task_group_takes_its_calls() -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(n)) for n in range(10)]
    assert [task.result() for task in tasks] == list(range(0, 20, 2))


async def test_gather_takes_its_calls() -> None:
    assert await asyncio.gather(*map(double, range(300))) == list(range(0, 600, 2))


def test_sync_is_the_plain_call() -> None:
    assert double.sync(2, plus=1) == 5


async def test_sync_runs_in_the_calling_thread() -> None:
    assert offload(threading.get_ident).sync() == threading.get_ident()


# ---------------------------------------------------------------------- methods


async def test_a_method_binds_to_its_object() -> None:
    assert await Scale(3).times(5) == 15
    assert await Scale.times(Scale(4), 5) == 20
    assert await partial(Scale(5).times, 5)() == 25


async def test_sync_of_a_method_binds_too() -> None:
    assert Scale(3).times.sync(5) == 15
    assert Scale.times.sync(Scale(4), 5) == 20


async def test_options_of_a_method_keep_the_object() -> None:
    assert await Scale(3).times.options(timeout=30.0)(5) == 15


async def test_a_bound_method_is_not_bound_again() -> None:
    class Other:
        times = Scale(3).times

    assert await Other().times(5) == 15
    assert Other().times.sync(5) == 15


class Twice:
    """A callable object, which binds to nothing."""

    def __call__(self, number: int) -> int:
        return 2 * number

    def method(self, number: int) -> int:
        return 3 * number


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [(Twice(), 8), (Twice().method, 12), (abs, 4), (itemgetter(4), 50), (str, "4")],
    ids=["object", "bound method", "builtin", "itemgetter", "class"],
)
async def test_what_does_not_bind_as_a_class_attribute_does_not_bind_offloaded(
    fn: Any, wanted: object
) -> None:
    argument = range(10, 100, 10) if isinstance(fn, itemgetter) else 4
    plain, offloaded = type("Plain", (), {"of": fn}), type("Owner", (), {"of": offload(fn)})
    assert plain().of(argument) == wanted  # type: ignore[attr-defined]  # set above
    assert await offloaded().of(argument) == wanted  # type: ignore[attr-defined]  # set above


@pytest.mark.filterwarnings("ignore:functools.partial will be:FutureWarning")
async def test_a_partial_binds_as_a_class_attribute_where_python_binds_it() -> None:
    fn = partial(lambda *args: len(args))
    plain, offloaded = type("Plain", (), {"of": fn}), type("Owner", (), {"of": offload(fn)})
    assert await offloaded().of(4) == plain().of(4)  # type: ignore[attr-defined]  # set above


async def test_a_subclass_overrides_a_method() -> None:
    assert await Double(3).times(5) == 30


async def test_a_class_method_offloads_above_classmethod() -> None:
    assert await Double.name_of() == "Double"
    assert await Scale(1).name_of("!") == "Scale!"
    assert await Double(1).name_of("!") == "Double!"


def test_sync_of_a_class_method_binds_too() -> None:
    assert Double.name_of.sync("!") == "Double!"
    assert Double(1).name_of.sync("!") == "Double!"


async def test_options_of_a_class_method_keep_the_class() -> None:
    assert await Double.name_of.options(timeout=30.0)("!") == "Double!"
    assert await Double.limited_name_of() == "Double"
    assert await Double.timed_name_of("!") == "Double!"


async def test_a_subclass_calls_the_class_method_of_its_base() -> None:
    class Loud(Double):
        @offload
        @classmethod
        def name_of(cls, suffix: str = "") -> str:
            return super().name_of.sync(suffix).upper()

    assert await Loud.name_of("!") == "LOUD!"


async def test_a_class_method_below_classmethod_can_be_awaited() -> None:
    assert await Double.name_below() == "Double"
    assert await Double(1).name_below() == "Double"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there classmethod hides the class")
def test_sync_of_a_class_method_below_classmethod_binds_too() -> None:
    assert Double.name_below.sync() == "Double"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="there classmethod hides nothing")
def test_sync_and_options_of_a_class_method_below_classmethod_are_refused() -> None:
    for use in (Double.name_below.sync, Double(1).name_below.sync, Double.name_below.options):
        with pytest.raises(
            TypeError, match=r"Scale\.name_below is offloaded below @classmethod, .* above @classmethod"
        ):
            use()


async def test_a_static_method_offloads_above_and_below_staticmethod() -> None:
    for half in (Scale.half, Scale(1).half, Scale.half_below, Scale(1).half_below):
        assert await half(5) == 2
        assert half.sync(5) == 2
        assert await half.options(timeout=30.0)(5) == 2


def test_the_class_gives_the_offloaded_function_itself() -> None:
    assert isinstance(Scale.times, Offloaded)
    assert Scale.times is Scale.__dict__["times"]


# ---------------------------------------------------------------------- what survives


def test_name_docstring_and_module_survive() -> None:
    assert double.__name__ == "double"
    assert Scale.times.__qualname__ == "Scale.times"
    assert double.__doc__ == "Return twice the number."
    assert Scale(1).times.__doc__ == "Scale a number."
    assert double.__module__ == __name__


def test_the_signature_survives() -> None:
    assert str(inspect.signature(double)) == "(number: 'int', *, plus: 'int' = 0) -> 'int'"
    assert list(inspect.signature(Scale.times).parameters) == ["self", "number"]


def test_the_signature_of_the_class_is_the_one_that_makes_it() -> None:
    assert list(inspect.signature(type(double)).parameters)[:2] == ["fn", "options"]


def test_the_signature_of_a_bound_method_has_no_self() -> None:
    assert list(inspect.signature(Scale(1).times).parameters) == ["number"]
    assert list(inspect.signature(Scale.name_of).parameters) == ["suffix"]


def test_the_signature_of_a_bound_method_of_any_arguments_keeps_them() -> None:
    class Any:
        @offload
        def method(*args: int, **options: int) -> int:
            return len(args)

    assert str(inspect.signature(Any().method)) == "(*args: 'int', **options: 'int') -> 'int'"
    assert str(inspect.signature(Any.method)) == "(*args: 'int', **options: 'int') -> 'int'"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there hints are evaluated with the function")
@pytest.mark.parametrize("hint", ["Later", "inspect.Later"])
def test_the_signature_has_hints_that_name_what_is_not_there_yet(hint: str) -> None:
    found: dict[str, Any] = {"inspect": inspect}
    source = f"def plain(self, number: {hint}) -> int: return number"
    exec(compile(source, "<here>", "exec", dont_inherit=True), found)  # without this file's __future__
    lazy: Any = offload(found["plain"])
    assert str(inspect.signature(lazy)) == f"(self, number: {hint}) -> int"
    assert str(inspect.signature(lazy.__get__(Scale(1)))) == f"(number: {hint}) -> int"
    if hint == "Later":
        found["Later"] = float
        assert inspect.signature(lazy).parameters["number"].annotation is float


def test_type_hints_survive() -> None:
    assert typing.get_type_hints(double) == {"number": int, "plus": int, "return": int}
    assert typing.get_type_hints(Scale(1).times) == {"number": int, "return": int}


def test_the_wrapped_function_can_be_found() -> None:
    assert inspect.unwrap(double)(3) == 6


@pytest.mark.parametrize(
    "fn",
    [double, Scale.times, Scale(1).times, Scale.name_of, Scale.half, partial(double, 1), offload(len)],
    ids=["function", "of class", "bound", "class method", "static method", "partial", "builtin"],
)
def test_inspect_sees_a_coroutine_function(fn: object) -> None:
    assert inspect.iscoroutinefunction(fn)


def test_it_says_what_it_is() -> None:
    assert "double" in repr(double)
    assert repr(double).startswith("<offloaded ")
    assert "Scale.times" in repr(Scale(1).times)


# ---------------------------------------------------------------------- pickling


def test_a_module_level_function_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(double)) is double
    assert pickle.loads(pickle.dumps(Scale.times)) is Scale.times


async def test_a_bound_method_is_pickled_with_its_object() -> None:
    times = pickle.loads(pickle.dumps(Scale(7).times))
    assert await times(6) == 42
    assert times.sync(6) == 42


def test_a_local_function_is_not_pickled() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(offload(lambda: None))


def test_a_function_with_changed_options_is_not_pickled_without_them() -> None:
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(double.options(timeout=1.0))


async def test_a_bound_method_is_pickled_with_its_options() -> None:
    times = Scale(7).times.options(timeout=30.0, limit=1)
    again = pickle.loads(pickle.dumps(times))
    assert again._options == times._options
    assert await again(6) == 42


@pytest.mark.parametrize("fn", [partial(pow, 3), Twice()], ids=["partial", "object"])
async def test_what_has_no_name_is_pickled_with_what_is_offloaded(fn: Any) -> None:
    again = pickle.loads(pickle.dumps(offload(fn, timeout=30.0)))
    assert again._options.timeout == 30.0
    assert await again(2) == fn(2)


@pytest.mark.parametrize("fn", [partial(pow, 3), Twice(), lambda: None], ids=["partial", "object", "lambda"])
def test_a_copy_of_an_offloaded_function_is_itself(fn: Any) -> None:
    offloaded = offload(fn, limit=1)
    assert copy.copy(offloaded) is offloaded
    assert copy.deepcopy({"fn": offloaded})["fn"] is offloaded


async def test_a_copy_of_a_bound_method_keeps_its_options_and_a_deep_one_copies_its_object() -> None:
    scale = Scale(7)
    times = scale.times.options(timeout=30.0)
    assert copy.copy(times) == times
    again, copied = copy.deepcopy((times, scale))
    assert again._options is times._options
    assert again._head[0] is copied is not scale
    assert await again(6) == 42


# ---------------------------------------------------------------------- callable objects


class Cached:
    """A decorator of a user's, whose attributes have the names of ours."""

    def __init__(self, fn: Callable[[int], int]) -> None:
        self._fn = fn
        self._head, self._options, self.sync, self.options = "head", {"a": 1}, 7, 8
        self.hits = 0

    def __call__(self, number: int) -> int:
        self.hits += 1
        return self._fn(number)


async def test_attributes_of_a_function_do_not_replace_those_of_what_offloads_it() -> None:
    cached = Cached(abs)
    offloaded = offload(cached)
    assert await offloaded(-2) == 2
    assert offloaded.sync(-3) == 3
    assert await offloaded.options(limit=1)(-4) == 4
    assert cached.hits == 3
    assert offloaded.hits == 0  # type: ignore[attr-defined]  # as copied


async def test_a_bound_function_is_equal_to_itself_as_a_method_is() -> None:
    scale, other = Scale(3), Scale(3)
    assert scale.times == scale.times
    assert hash(scale.times) == hash(scale.times)
    assert scale.times != other.times
    assert scale.times != scale.one_by_one
    assert scale.times != Scale.times
    assert {double: 1}[double] == 1
    callbacks = [scale.times]
    callbacks.remove(scale.times)
    assert callbacks == []


def test_without_a_loop_of_asyncio_it_is_said_what_is_missing() -> None:
    coroutine = double(1)
    with pytest.raises(RuntimeError, match=r"no running event loop; hybridrt needs one of asyncio or uvloop"):
        coroutine.send(None)
