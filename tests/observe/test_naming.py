"""Which function a submitted callable stands for, and under which name it is reported.

The frameworks' wrappers are imitated by functions of the same build that say they come from there;
`tests/frameworks` meets the real ones.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import operator
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, offload
from hybridrt.observe.function_name import function_key, function_name, unwrap
from hybridrt.observe.profiles import Profiles


def work(value: int = 0) -> int:
    return value


def other() -> None: ...


def from_module(module: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn`, which says now that it was defined in `module`."""
    fn.__module__ = module
    return fn


def context_run() -> Callable[..., Any]:
    return contextvars.copy_context().run


def framework_closure(module: str, cell: str, inner: Any) -> Callable[..., Any]:
    """Return a wrapper as frameworks build them: a closure that keeps what it calls in a named cell."""
    builders: dict[str, Callable[[Any], Callable[..., Any]]] = {
        "func": lambda func: lambda *args: func(*args),
        "fn": lambda fn: lambda *args: fn(*args),
        "original_func": lambda original_func: lambda *args: original_func(*args),
        "partial_func": lambda partial_func: lambda *args: partial_func(*args),
        "call_func": lambda call_func: lambda *args: call_func(*args),
        "self": lambda self: lambda *args: self.func(*args),
        "callback": lambda callback: lambda *args: callback(*args),
    }
    return from_module(module, builders[cell](inner))


class Tool:
    """A tool as LangChain has them: the user's function lies in the instance."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def invoke(self, *args: Any) -> Any:
        return self.func(*args)


from_module("langchain_core.tools.base", Tool.invoke)


class Chatty:
    """A user's class."""

    def method(self) -> None: ...

    @classmethod
    def made(cls) -> None: ...

    @staticmethod
    def plain() -> None: ...

    def __call__(self) -> None: ...


# ---------------------------------------------------------------------- what is peeled


@pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param(lambda: functools.partial(work, 1), id="partial"),
        pytest.param(lambda: functools.partial(functools.partial(work), value=1), id="partial of a partial"),
        pytest.param(lambda: functools.partial(context_run(), work, 1), id="to_thread"),
        pytest.param(
            lambda: functools.partial(context_run(), functools.partial(work, 1)), id="to_thread, partial"
        ),
        pytest.param(lambda: offload(work).sync, id="sync"),
        pytest.param(lambda: functools.partial(context_run(), offload(work).sync), id="to_thread of sync"),
        pytest.param(lambda: offload(functools.partial(work, 1)).sync, id="sync of a partial"),
        pytest.param(lambda: functools.wraps(work)(lambda: work()), id="functools.wraps"),
        pytest.param(lambda: functools.lru_cache(work), id="lru_cache"),
        pytest.param(
            lambda: functools.partial(
                context_run(), framework_closure("langchain_core.runnables.config", "func", work)
            ),
            id="LangChain",
        ),
        pytest.param(
            lambda: framework_closure("langchain_core.runnables.config", "func", Tool(work).invoke),
            id="LangChain tool",
        ),
        pytest.param(
            lambda: framework_closure(
                "langchain_core.runnables.config",
                "func",
                framework_closure("langchain_core.runnables.base", "self", Tool(work)),
            ),
            id="LangChain RunnableLambda",
        ),
        pytest.param(lambda: framework_closure("llama_index.core.tools", "fn", work), id="LlamaIndex"),
        pytest.param(
            lambda: functools.partial(
                from_module("fastapi.telemetry", lambda **given: None), function=work, arguments={}
            ),
            id="FastAPI endpoint",
        ),
        pytest.param(
            lambda: framework_closure(
                "workflows.runtime.types", "partial_func", functools.partial(functools.wraps(work)(lambda: 0))
            ),
            id="LlamaIndex workflow step",
        ),
        pytest.param(
            lambda: framework_closure("opentelemetry.instrumentation.threading", "original_func", work),
            id="OpenTelemetry",
        ),
        pytest.param(lambda: framework_closure("sentry_sdk.integrations.threading", "fn", work), id="Sentry"),
        pytest.param(lambda: framework_closure("haystack.core", "call_func", work), id="haystack"),
    ],
)
def test_a_wrapper_stands_for_the_function_of_the_user(wrapper: Callable[[], Any]) -> None:
    assert unwrap(wrapper()) is work


class Counter:
    """A user's class with an offloaded method."""

    @offload
    def count(self) -> int:
        return 1


def test_the_plain_call_of_an_offloaded_method_is_booked_on_the_method() -> None:
    with AdaptiveThreadPoolExecutor(max_workers=1) as executor:
        assert executor.submit(Counter().count.sync).result() == 1
        assert [profile.name for profile in executor.statistics().functions] == [f"{__name__}:Counter.count"]


def test_another_method_called_sync_is_not_peeled() -> None:
    class Disk:
        def __init__(self) -> None:
            self.__dict__["__wrapped__"] = work

        def sync(self) -> None: ...

    disk = Disk()
    assert unwrap(disk.sync) == disk.sync


def test_the_first_argument_of_a_context_run_is_what_runs() -> None:
    assert unwrap(context_run(), (work, 1)) is work
    assert unwrap(context_run(), (functools.partial(work, 1),)) is work


async def test_what_to_thread_submits_stands_for_its_function() -> None:
    submitted: list[Any] = []

    class Listening(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            submitted.append((fn, args))
            return super().submit(fn, *args, **kwargs)

    asyncio.get_running_loop().set_default_executor(Listening())
    assert await asyncio.to_thread(work, 3) == 3
    assert unwrap(*submitted[0]) is work


def test_a_closure_of_the_user_over_a_callback_is_the_users_function() -> None:
    for cell in ("func", "fn", "self", "callback"):
        closure = framework_closure("my_application.jobs", cell, Tool(work) if cell == "self" else work)
        assert unwrap(closure) is closure


def test_a_module_that_only_begins_like_a_framework_is_the_users() -> None:
    closure = framework_closure("langchain_helpers.jobs", "func", work)
    assert unwrap(closure) is closure


def test_a_function_that_the_users_own_is_given_by_name_is_not_what_runs() -> None:
    def apply(*, function: Callable[[], None]) -> None: ...

    assert unwrap(functools.partial(apply, function=work)) is apply


def test_a_closure_of_a_framework_without_a_known_cell_stays_itself() -> None:
    closure = framework_closure("langgraph.pregel", "callback", work)
    assert unwrap(closure) is closure


def test_a_cell_that_is_not_bound_yet_is_passed_over() -> None:
    def make() -> Callable[..., Any]:
        def wrapper() -> Any:
            return func()

        if wrapper.__name__ == "never":
            func = work
        return wrapper

    wrapper = from_module("langchain_core.runnables", make())
    assert unwrap(wrapper) is wrapper


@pytest.mark.parametrize(
    "fn",
    [
        Chatty().method,
        Chatty.made,
        Chatty.plain,
        Chatty(),
        len,
        json.loads,
        [].append,
        operator.itemgetter(1),
    ],
)
def test_what_wraps_nothing_known_stays_itself(fn: Any) -> None:
    assert unwrap(fn) is fn


def test_a_bound_method_of_the_user_stays_itself_whatever_its_object_carries() -> None:
    class RemoteInvocation:
        def __init__(self) -> None:
            self.func = other

        def run(self) -> None: ...

    method = RemoteInvocation().run
    assert unwrap(method) is method


def test_no_property_of_a_framework_object_is_run() -> None:
    class Loud:
        @property
        def func(self) -> Any:
            raise AssertionError("expected unwrap to read the instance's dict only")

        def invoke(self) -> None: ...

    from_module("langchain_core.tools", Loud.invoke)
    method = Loud().invoke
    assert unwrap(method) is method


def test_wrappers_in_a_circle_come_to_an_end() -> None:
    def one() -> None: ...
    def two() -> None: ...

    one.__wrapped__, two.__wrapped__ = two, one  # type: ignore[attr-defined]
    assert unwrap(one) in (one, two)


# ---------------------------------------------------------------------- keys


def test_a_function_is_known_by_its_code() -> None:
    assert function_key(work) is work.__code__
    assert function_key(Chatty().method) is Chatty.method.__code__
    assert function_key(Chatty.made) is Chatty.made.__func__.__code__


def test_a_callable_object_is_known_by_the_code_of_its_call() -> None:
    assert function_key(Chatty()) is Chatty.__call__.__code__
    assert function_key(Chatty()) == function_key(Chatty())


class Layer:
    """A framework's class, whose call runs what a user's class says."""

    def __call__(self) -> Any:
        return self.forward()

    def forward(self) -> None: ...


class Linear(Layer): ...


class Pooling(Layer): ...


def test_classes_that_inherit_their_call_have_a_profile_each() -> None:
    profiles = Profiles()
    assert profiles.of(Linear()) is profiles.of(Linear())
    assert [profiles.of(fn).name for fn in (Linear(), Pooling(), Layer())] == [
        f"{__name__}:Linear",
        f"{__name__}:Pooling",
        f"{__name__}:Layer",
    ]


class Fetch(Tool): ...


class Parse(Tool): ...


def test_classes_that_inherit_a_method_of_a_framework_have_a_profile_each() -> None:
    profiles = Profiles()
    assert [profiles.of(tool.invoke).name for tool in (Fetch(None), Parse(None))] == [
        f"{__name__}:Fetch.invoke",
        f"{__name__}:Parse.invoke",
    ]
    assert profiles.of(Fetch(None).invoke) is profiles.of(Fetch(None).invoke)


def test_the_tool_of_a_function_is_booked_on_it_beside_tools_that_are_classes() -> None:
    profiles = Profiles()
    assert profiles.of(Fetch(None).invoke) is not profiles.of(Tool(work).invoke)
    assert profiles.of(Tool(work).invoke).name == f"{__name__}:work"


def test_a_method_that_classes_of_the_user_inherit_has_one_profile() -> None:
    class Inheriting(Chatty): ...

    assert function_key(Inheriting().method) is function_key(Chatty().method)


def test_builtins_are_told_apart_and_methods_of_one_type_are_not() -> None:
    keys = [
        function_key(fn) for fn in (len, sum, [].append, [].extend, b"".join, "".join, socket.getnameinfo)
    ]
    assert len(set(keys)) == len(keys)
    assert function_key([].append) == function_key([1].append)


def test_the_keys_keep_no_object_alive() -> None:
    """A key lives as long as its profile, which outlives the calls."""
    rows: list[int] = [1]
    key = function_key(rows.append)
    assert not any(part is rows for part in key)


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (work, f"{__name__}:work"),
        (Chatty().method, f"{__name__}:Chatty.method"),
        (Chatty(), f"{__name__}:Chatty"),
        (Chatty, f"{__name__}:Chatty"),
        (len, "builtins:len"),
        (json.loads, "json:loads"),
        ([].append, "builtins:list.append"),
        (operator.itemgetter(1), "operator:itemgetter"),
    ],
)
def test_a_name_is_module_and_qualified_name(fn: Any, name: str) -> None:
    assert function_name(fn) == name


# ---------------------------------------------------------------------- odd callables


class Permissive:
    """Answers every question, as remote proxies do."""

    def __init__(self, answer: Any) -> None:
        self.__dict__["answer"] = answer

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["answer"]

    def __call__(self) -> str:
        return "called"


class Grumpy:
    """Cannot even be asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")

    def __call__(self) -> str:
        return "called"


@pytest.mark.parametrize(
    "fn",
    [
        Permissive({}),
        Permissive([]),
        Permissive(None),
        Permissive(work),
        Grumpy(),
        SimpleNamespace(__call__=work),
    ],
    ids=["dict", "list", "None", "function", "raises", "not callable"],
)
def test_whatever_is_asked_of_an_odd_callable_it_gets_a_profile(fn: Any) -> None:
    profiles = Profiles()
    assert profiles.of(fn) is profiles.of(fn)
    assert isinstance(profiles.of(fn).name, str)
