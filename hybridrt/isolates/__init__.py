"""Isolates: other interpreters, in processes or in this one, that run calls of pure functions.

An isolated call is an ordinary call of a pool, in one of its worker threads. There a `RemoteInvocation`
leases an isolate, packs function and arguments, waits without the GIL, and unpacks what comes back. So
queueing, timeouts, limits, lanes and statistics are those of every call; this part knows isolates alone.

What is different over there:

Thread identity
    The main thread of a worker process, or the one thread of a sub-interpreter. Either way modules are
    imported anew, once per isolate, and what they keep is not shared with any other interpreter.
Context variables
    Do not cross, but for those that the runtime was told of and OpenTelemetry's (`context`). The function
    sees the defaults of the others.
Before the first call
    Each isolate is set up: logging, and the initializer of the runtime whose calls it is for (`setup`).
Logging
    Records go to the loggers of the same names here, ahead of the answer to their call (`records`). One that
    was logged just before a crash may be lost.
`check_cancelled` and `blocking`
    Do nothing there.
Timeouts and cancelling
    Where a running call may be abandoned (`timeout`, `abandon_on_cancel`, a runtime's close), the process
    is killed. A sub-interpreter cannot be: the call goes on unwatched, and a new interpreter takes its
    place while memory allows.
Exceptions
    Arrive as raised, with the frames from over there and their traceback, as text, as their cause. One that
    cannot be pickled arrives as a `RuntimeError` with its type and text.
Twice
    A call may run twice, and only then: an extension module turned out not to work in a sub-interpreter, or
    the function forks or starts a daemon thread, so a process has to do it.
Crashes
    A worker process that crashes or is killed fails its call with `WorkerLostError` and nothing else. A
    crash in a sub-interpreter takes the whole program with it; `isolation="process"` is the way out.
Stray messages
    Code that writes to an isolate's own descriptors can put a message between two answers. Each answer
    carries the number of its call: one that does not fit ends that isolate, and its call fails with
    `WorkerLostError`. One that does not unpickle ends the isolate and fails with `NotPortableError`.
Fork
    A forked child starts without isolates and gets its own. CPython 3.14 crashes a child that is forked
    while a sub-interpreter exists: idle ones are ended before a fork, one that runs a call cannot be. A
    program that forks in the middle of its work wants `isolation="process"`.
Nesting
    Inside of an isolate calls are not carried any further: they run in a thread there.
"""
