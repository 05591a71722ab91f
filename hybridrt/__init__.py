"""hybridrt: an event loop that stays responsive beside work that computes.

The loop runs what waits; what computes leaves it for threads that size themselves by what they do.
Start with `offload` and `run`; `Runtime` and `AdaptiveThreadPoolExecutor` are the parts. Each name has
a page of its own, as in `help(hybridrt.Runtime)`.

To call: `offload`, which gives an `Offloaded`, an `OffloadedGenerator` of a generator function, a `Batched`
    with `batch=`, within a `deadline`; in a call `blocking`, `check_cancelled`
To connect: `pipe`, a `Pipe` of functions or `stage`s (`Stage`), with `PipeStatistics` of `StageStatistics`,
    and a `SkippedItem` for each that failed
To run: `run`, `Runtime`, `install`, `AdaptiveThreadPoolExecutor`, `Hooks` that get a `CallEvent`;
    a `Policy` of your own gets `Limits` and a `Window` and gives a `State`
To ask: `explain` gives an `Explanation`, `trial` a `Trial` of `TrialRow`, and `statistics()` of a runtime or
    an executor `Statistics`: `FunctionStatistics` (`Kind`, `GilClass`, `GilEvidence`, `BatchStatistics`,
    `PlacementStatistics`, `SizePlacement`, `PlacementReason`), `RunningCall`, `Decision` (`Reason`),
    `LoopDelay`, `ShieldStatistics` (`ShieldReason`), `AnyioStatistics`, `HostStatistics`,
    `BackgroundStatistics`
To let a model call functions, with the extra `agents`: `tool` and `Agent`; see `hybridrt.agents`
To catch: `HybridrtError`, and below it `OffloadTimeoutError`, `QueueFullError`, `RuntimeClosedError`,
    `LaneNestingError`, `NotPortableError`, `WorkerLostError`, `IsolateInitializerError`

Where a call runs: in a thread, unless `offload` is told otherwise. With `pure=True` it is chosen by what
calls have cost, for each function and size of its input: on the loop, in a thread, or in an isolate, which is
another process or a sub-interpreter. `explain` says where and why; HYBRIDRT_WHERE=inline or =thread in the
environment, read at import, has all calls run there, for debugging and tests. The next two sections are
what changes on the loop and in an isolate; the others are what a call in a thread may rely on.

On the loop (`where="inline"`, or short and pure)
    Thread: the loop's, which does nothing else meanwhile. Context variables: a copy, as in a thread.
    Exceptions: the same. Cancelling and timeouts: a call that has begun cannot be interrupted; one that
    waits for its turn can be cancelled and never runs. It is made within the await, without giving the loop
    a turn. Under "auto" a call may take 100 us and all of them 0.5 ms of one turn of the loop, beyond which
    they wait for the next in order; those with a timeout go to a thread rather than wait. Only arguments of
    exactly a built-in type tell their size: lengths count exactly, numbers by their power of two; what lies
    inside a container is not looked at. A call that
    takes twice as long as it may, or one of many that take longer, is counted (`overruns`), and the next
    ones, 8 and then twice as many each time, go to a thread. The executor's counts do not see these calls;
    hooks and the statistics of the function do. Twice: never.
In an isolate (`where="isolate"`, or pure, computing with the GIL, and worth the way)
    Thread: the function runs in another interpreter; its modules are imported there, once, after
    `Runtime(isolate_initializer=)`, whose failure is an `IsolateInitializerError`; standard input is
    empty in a process. Records of `logging` reach the handlers here. `check_cancelled` and `blocking` do
    nothing. Context variables do not cross but for those of `isolate_context` and OpenTelemetry's, and
    neither do changes to arguments. Exceptions cross by pickling, with the frames they had there and the
    remote traceback as their cause; one that cannot be rebuilt arrives as a `RuntimeError` with its type
    and text. Arguments or results that cannot be carried raise `NotPortableError`; under "auto" the call is
    then made in a thread, for the second time if its result could not, and so are the next ones. The same
    holds in a frozen program (PyInstaller and the like), which has no interpreter to start a process with.
    Where files or memory are lacking to start one, an `OSError` says so; under "auto" that call goes to a
    thread.
    Cancelling and timeouts where a running call may be abandoned: a process is killed, an interpreter goes
    on unwatched. A process that dies fails the one call it had with `WorkerLostError`. Twice: in a thread if
    the result could not be carried, and in a process if an extension refused the sub-interpreter, or the
    function forked or started a daemon thread. A worker thread writes the call and waits for the answer.

Thread identity
    Any thread of the pool; two calls may see the same one. `lane=` keeps calls apart from each other, not
    on one thread. A function that needs its loop uses `asyncio.run_coroutine_threadsafe`. At most
    `max_workers` threads run calls; name resolution for asyncio has up to 16 more and never waits behind
    other calls.
Context variables
    Each call runs in a copy of its caller's context, so it sees them and its changes stay inside.
    Executors with an `initializer` run calls in the thread's own context, unless told otherwise.
Order
    Calls of one function start in order. Calls that wait start beside those that compute, as many as keep
    the GIL, the cores or what they wait for just busy; of the computing ones one short and one long run at
    a time under a GIL, those that release it on all cores. If no call of a kind has started for half a
    second, its oldest starts all the same, counted as an overdraft; one that usually takes longer than half a
    second waits for up to four times its own usual time. `docs/when-a-call-starts.md` has the bounds.
    Calls of less than a millisecond that queue up are handed over some 2 ms of them at a time, and their
    results come back together. What a function does is learned from its calls; `statistics().functions` has
    it with the evidence. With `max_workers=1` everything runs in the order of submission, and so it does
    with `measure=False`, or HYBRIDRT_MEASURE=0 in the environment, in as many threads as the queue asks for.
Cancelling
    Queued: the call is withdrawn in the same instant and never runs. Running: Python cannot stop a
    thread; the await ends when the call ends, or at once with `abandon_on_cancel=True`, as an option of the
    function or of the `Runtime` for all that do not say. `check_cancelled()` lets the function stop
    itself. A call of `run_in_executor` ends its wait at once, as ever.
Timeouts
    `queue_timeout`: not started in time, removed, never runs. `timeout`: no result in time; a queued call
    is removed, a running one abandoned: its thread goes on, is counted, and is replaced below
    `max_workers`. `OffloadTimeoutError.started` tells which. `asyncio.timeout` and `wait_for` cancel, so
    beside a running call they take effect as said there.
Exceptions
    Arrive as they were raised, `SystemExit` included; `StopIteration` as the cause of a `RuntimeError`
    where an event loop is in between. An error that no caller waits for any more is logged.
Switch interval
    While a call computes under a GIL, the interpreter's switch interval (`sys.setswitchinterval`, 5 ms
    in CPython) is 0.1 ms, so that the loop gets the GIL soon. While several compute, or come and go fast, so
    that the GIL would change hands too often, it grows towards what it was as long as the loop keeps
    `loop_delay_target`; with three that want the GIL it is at least 0.5 ms, with four 1 ms, with 250 calls
    that may come back at once 1 ms, too: a shorter one would cost them more. It is put back when nothing has
    computed for 50 ms, at close, and in a forked child. A value that other code sets is left alone.
Priority, time slice, garbage collection
    While there is a loop, threads on Linux run 5 steps of niceness below it, isolates 10; what calls start
    inherits that. The loop has the least time slice, 0.1 ms. What survives a full collection is kept out of
    the next by `gc.freeze`, until memory has grown by a quarter or at `gc.collect()`. `Runtime(shield=False)`
    leaves all of it alone while open; HYBRIDRT_SHIELD=0 in the environment, read at import, always.
anyio's threads
    `anyio.to_thread.run_sync`, and so the synchronous endpoints of FastAPI and Starlette, run on the threads
    of the loop's `Runtime` as other calls do, up to `max_workers` at once instead of anyio's 40. A limiter
    that is given bounds them, and so does anyio's default one if the program has set it below 40. A call
    that is cancelled while it is queued never runs; `anyio.from_thread` works in it.
    `Runtime(govern_anyio=False)` or HYBRIDRT_GOVERN_ANYIO=0 in the environment leaves them to anyio.
Threads of BLAS libraries
    Where threadpoolctl is installed, OpenBLAS, MKL and BLIS may use the cores divided by the calls that
    leave the GIL and compute at once. What they used before comes back a second after calls come one at a
    time again; a number that somebody else sets meanwhile is left alone. In an isolate they use one thread,
    unless the environment says otherwise. `Runtime(govern_native=False)` leaves them alone while it is open,
    whatever other runtimes say; HYBRIDRT_GOVERN_NATIVE=0 in the environment, read at import, always.
Twice
    No call runs twice, apart from what is said of isolates above.
A full queue
    `submit` raises `QueueFullError`; awaited calls wait for space in order, those of `run_in_executor` and
    `asyncio.to_thread` among them. Name resolution is never refused.
Background tasks
    `runtime.background(coro)` makes a task that is tracked, and awaited at close. Beyond `background_max`
    it is refused with `QueueFullError`, or the oldest is cancelled for it, or
    `await runtime.spawn_background(coro)` waits for a place, as `background_policy` says. Errors are counted,
    and reported once for each cause.
Nested waits
    A call that waits gives its permit away, so that what it waits for can start, up to `max_workers`.
    At that limit a worker that waits for a queued call of its own pool with `result()` or
    `exception()`, without a timeout, runs it itself. `concurrent.futures.wait` and `as_completed`
    cannot do that.
A worker that dies
    Its call fails with `WorkerLostError`; the calls it had been given go to others.
Shutdown
    `executor.shutdown(wait=True)` waits without a deadline, as the standard library's. A `Runtime`
    closes within `shutdown_timeout`, and a second more for tasks that do not heed their cancelling: then it
    names what is stuck, with its line, and leaves it behind.
    In `run`, and in `asyncio.run` with `async with Runtime()`, the first Ctrl-C cancels `main`, and the
    second raises `KeyboardInterrupt`, with which `run` leaves at once. Within a step of the runtime or of
    the loop either waits for the end of the step. Without a runtime opened so, a Ctrl-C that raises in the
    middle of a `submit` may spoil the executor's counts, so that it takes a second one to end the program.
Interpreter exit
    Pending calls finish first and get their threads as before; new ones are refused. Before 3.14 calls left
    behind have 0.25 s: one that returns from C++ code later aborts the process. 3.12.0 to 3.12.2 start no
    threads by then: the calls share those there are. A call that no thread is left for is named in the log.
Fork
    The child starts with an empty queue and without threads, and may use the executor at once. Calls
    of the parent do not run there.
"""

import sys
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036  # a checkout; an installer has looked
    raise ImportError(f"hybridrt needs Python 3.11 or newer, this is {sys.version.split()[0]}")

import hybridrt.integrations.opentelemetry  # noqa: F401  it registers itself
from hybridrt.batches.offloaded import Batched
from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.deadline import deadline
from hybridrt.errors import (
    HybridrtError,
    IsolateInitializerError,
    LaneNestingError,
    NotPortableError,
    OffloadTimeoutError,
    QueueFullError,
    RuntimeClosedError,
    WorkerLostError,
)
from hybridrt.executor.executor import AdaptiveThreadPoolExecutor
from hybridrt.explanation import explain
from hybridrt.offload import Offloaded, offload
from hybridrt.pipeline.stage import Stage, stage
from hybridrt.pipeline.values import PipeStatistics, SkippedItem, StageStatistics
from hybridrt.placements import Explanation, PlacementReason, PlacementStatistics, SizePlacement
from hybridrt.pool.current_call import blocking, check_cancelled
from hybridrt.pool.hooks import Hooks
from hybridrt.runner import run
from hybridrt.runtime import Runtime, install
from hybridrt.statistics import Statistics
from hybridrt.streams.offloaded import OffloadedGenerator
from hybridrt.trial import Trial, TrialRow, trial
from hybridrt.values import (
    AnyioStatistics,
    BackgroundStatistics,
    BatchStatistics,
    CallEvent,
    Decision,
    FunctionStatistics,
    GilClass,
    GilEvidence,
    HostStatistics,
    Kind,
    LoopDelay,
    Reason,
    RunningCall,
    ShieldReason,
    ShieldStatistics,
)

if TYPE_CHECKING:
    from hybridrt.agents.agent import Agent
    from hybridrt.agents.tools import tool
    from hybridrt.pipeline.pipe import Pipe, pipe

__all__ = [
    "AdaptiveThreadPoolExecutor",
    "Agent",
    "AnyioStatistics",
    "BackgroundStatistics",
    "BatchStatistics",
    "Batched",
    "CallEvent",
    "Decision",
    "Explanation",
    "FunctionStatistics",
    "GilClass",
    "GilEvidence",
    "Hooks",
    "HostStatistics",
    "HybridrtError",
    "IsolateInitializerError",
    "Kind",
    "LaneNestingError",
    "Limits",
    "LoopDelay",
    "NotPortableError",
    "OffloadTimeoutError",
    "Offloaded",
    "OffloadedGenerator",
    "Pipe",
    "PipeStatistics",
    "PlacementReason",
    "PlacementStatistics",
    "Policy",
    "QueueFullError",
    "Reason",
    "RunningCall",
    "Runtime",
    "RuntimeClosedError",
    "ShieldReason",
    "ShieldStatistics",
    "SizePlacement",
    "SkippedItem",
    "Stage",
    "StageStatistics",
    "State",
    "Statistics",
    "Trial",
    "TrialRow",
    "Window",
    "WorkerLostError",
    "blocking",
    "check_cancelled",
    "deadline",
    "explain",
    "install",
    "offload",
    "pipe",
    "run",
    "stage",
    "tool",
    "trial",
]

_LATE = {"Agent": "agents", "tool": "agents", "Pipe": "pipeline.pipe", "pipe": "pipeline.pipe"}
"""Names whose modules import packages that many programs do without, and those modules."""


def __getattr__(name: str) -> Any:
    """Import what only some programs need when it is asked for."""
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"hybridrt.{module}"), name)
    return value


def __dir__() -> list[str]:
    """Return the names of the package; none if pydoc asks, so that its page is the text above.

    Otherwise pydoc adds the whole help of every name in `__all__`, what it inherits from `str` or an
    exception included: thousands of lines that bury the text.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in ("inspect", "forbiddenfruit"):
        # pydoc asks through `inspect.getmembers`; blockbuster brings a `dir` in Python.
        frame = frame.f_back
    if frame is not None and frame.f_code.co_name == "docmodule":
        return []
    return sorted({*globals(), *__all__})
