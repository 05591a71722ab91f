"""A worker: one thread that runs calls, one after the other.

The calls that a worker was given, its assignment, lie in `batch`. Taking one out of there is the claim:

    1. A dispatch puts calls into `batch`, ASSIGNED, and rings `wakeup`.
    2. A canceller, with the lock, removes its call from `batch`; or
    3. the worker, without the lock, pops it.

    Both operations are atomic, so exactly one of 2 and 3 gets the call. After 2 the worker never
    sees it; after 3 the canceller finds it gone and knows that it runs.

What the worker runs is in `call`, which the governor reads from outside. An idle worker keeps
nothing of a finished call alive. It holds no reference to its executor: it knows the pool, and the
pool does not know the executor.

Threads are daemons that `concurrent.futures` joins at exit like its own, after `exit` has waited
for the pending calls; but one that is stuck can be left behind (`leave_behind`), which a non-daemon
thread never can. Each thread registers itself for that. To start one takes no lock, because a signal
handler that interrupts a start, here or in the standard library's pool, may cancel a call, and that
may start a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty

from hybridrt.compat import children_are_no_daemons, futures_logger, stdlib_threads
from hybridrt.errors import WorkerLostError
from hybridrt.measure.frames import top_frames
from hybridrt.measure.gil import blocks
from hybridrt.measure.threads import ThreadProbe
from hybridrt.observe.functions import BATCH_NS, CPU_LOOK_NS
from hybridrt.pool.for_each import for_each
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.nested import claim_for_help
from hybridrt.pool.permits import NONE
from hybridrt.pool.phases import begin as begin_phase
from hybridrt.pool.priority import THREAD, lower
from hybridrt.pool.rebalance import change_permit_locked, reclaim_batch_locked
from hybridrt.pool.roster import dismisses, gone, may_leave
from hybridrt.pool.scheduler import (
    Batch,
    begin_next,
    finish,
    finish_and_begin_next,
    finish_batch,
    finish_helped,
)
from hybridrt.pool.shutdown import break_down, helped_lost, worker_left
from hybridrt.pool.state import DONE, IN_ISOLATE, IN_ISOLATE_BEARER, RUNNING, Call, Pool, Worker
from hybridrt.pool.thread import make_thread

__all__ = ["WorkerThread", "current_worker", "forget_worker"]

_here = threading.local()


def current_worker() -> WorkerThread | None:
    """Return the worker of the calling thread, or None outside of a pool."""
    return getattr(_here, "worker", None)


def forget_worker() -> None:
    """Let the calling thread be no worker: in a forked child its call is the parent's."""
    _here.worker = None


class WorkerThread(Worker):
    """A worker and its thread.

    Args:
        pool: Whose calls it runs.
        name: Of the thread.
    """

    __slots__ = ("nested_cpu_ns",)

    def __init__(self, pool: Pool, name: str) -> None:
        super().__init__(pool)
        self.nested_cpu_ns = 0
        self.thread = make_thread(self._run, name)

    @property
    def bearer(self) -> str:
        """Name the thread, or say that the call has another one."""
        return IN_ISOLATE_BEARER if self._is_isolated() else f"its thread {self.thread.name}"

    def position(self) -> str:
        """Return where the thread stands, as `at file:line in function`, unless it waits for an isolate."""
        if self._is_isolated():
            return IN_ISOLATE
        frame = top_frames().get(self.thread.ident or 0)
        if frame is None:
            return "at an unknown place"
        return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"

    def _is_isolated(self) -> bool:
        call = self.call  # read once: the worker ends calls without the lock
        return call is not None and call.isolated

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: No thread can be started, or the interpreter exits.
        """
        if stdlib_threads._shutdown:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        self.thread.start()

    def leave_behind(self) -> None:
        """Let the interpreter exit without waiting for this thread."""
        self.awaited = False  # before the other, as `_register` looks at it after it has registered
        stdlib_threads._threads_queues.pop(self.thread, None)  # type: ignore[attr-defined]
        if (ending := self.pool.budget.exiting) is not None:
            ending.wakeup.put(None)

    def stand_in(self) -> None:
        try:
            self._run()
        finally:
            _here.worker = None

    def cpu_so_far(self) -> int | None:
        cpu_ns = None if self.probe is None else self.probe.cpu_ns()
        return None if cpu_ns is None else max(0, cpu_ns - self.cpu_start_ns)

    # ------------------------------------------------------------------ the thread

    def _register(self) -> None:
        """Let `concurrent.futures` join the thread at exit.

        It does so after `exit` has seen that each worker that is awaited has left its pool, so that it
        finds the thread of each of them, and none that has not started.
        """
        with stdlib_threads._global_shutdown_lock:
            stdlib_threads._threads_queues[self.thread] = self.wakeup  # type: ignore[index]  # it is a dict
        if not self.awaited:
            self.leave_behind()

    def _run(self) -> None:
        try:
            _here.worker = self
            # A thread that a call starts takes over this flag, and must not become a daemon by that.
            children_are_no_daemons(self.thread)
            if self.thread.ident is not None:  # else this is the main thread, which stands in
                self._register()
                if self.pool.shield.goes_first():
                    lower(threading.get_native_id(), THREAD)
            self.probe = _make_probe()
            if self._initialize():
                self.pool.hooks.thread_started()
                while self._wait():
                    while (call := self._claim()) is not None:
                        self._serve(call)
                self.pool.hooks.thread_stopped()
        finally:
            self._leave()

    def _initialize(self) -> bool:
        if self.pool.roster.initializer is None:
            return True
        try:
            self.pool.roster.initializer(*self.pool.roster.initargs)
        except BaseException:
            futures_logger.critical("Exception in initializer:", exc_info=True)
            break_down(self.pool, self)
            return False
        return True

    def _wait(self) -> bool:
        """Park until there is an assignment; return False when it is time to leave."""
        roster = self.pool.roster
        surplus = len(roster.workers) > roster.min_workers  # else it would stay anyway
        timeout = roster.idle_timeout if surplus else None
        while True:
            self.asleep = True
            try:
                if self.serving:
                    pass
                elif timeout is None:
                    self.wakeup.get()
                else:
                    self.wakeup.get(timeout=timeout)
            except Empty:
                if may_leave(self.pool, self, timed_out=True):
                    return False
                # Assigned just now, or among the last that stay: only the bell ends this wait.
                timeout = None
                continue
            finally:
                self.asleep = False
            if self.serving:
                return True
            # Else a ring for an assignment that was claimed before it was heard, or a call to leave.
            if dismisses(self.pool) and may_leave(self.pool, self, timed_out=False):
                return False

    def _claim(self) -> Call | None:
        """Return the next call of this assignment or of another one, or None when parked."""
        while self.serving:
            try:
                return self.batch.popleft()
            except IndexError:  # the assignment's calls were withdrawn
                begin_next(self.pool, self)
        return None

    def _serve(self, call: Call) -> None:
        """Run a claimed call, or the batch it begins, and take the next assignment."""
        if self.batch:
            self._run_batch(call)
            del call  # an error's traceback holds the frames above its own, too
            return
        call.state = RUNNING
        try:
            self._execute(call)
        except BaseException:  # not the function's: the thread ends, and `_leave` fails the call
            call.started_ns = getattr(call, "started_ns", call.queued_ns)  # the governor reads it
            self.call = call
            raise
        quick = call.quick
        try:
            if quick:
                finish_and_begin_next(self.pool, self, call)
            else:
                finish(self.pool, self, call)
        finally:  # whatever goes wrong here: no caller may wait forever
            if self.batch:
                self._hand_over(call)
            else:
                call.deliver()
            del call
        if not quick:
            begin_next(self.pool, self)

    def _run_batch(self, call: Call) -> None:
        """Run the short calls of a batch back to back, and book and deliver them as one.

        One reading of the clock ends a call and begins the next, so their times include the
        hand-over between them, about a microsecond. That of the CPU is a system call, which may take several
        times as long as a call here, so it is read once in `CPU_LOOK_NS`. Each delivery would wake the loop
        and interrupt the calls after it. One that takes longer than was expected holds nothing back: the
        governor releases what has ended.
        """
        batch, wall, cpu = self.batch, self.pool.roster.wall_ns, self.pool.roster.cpu_ns
        profile, hooks, watched = call.profile, self.pool.hooks, self.pool.hooks.on_event is not None
        begun, cpu_begun = wall(), cpu()
        now, looked, cpu_looked = begun, begun, cpu_begun
        held = self.held
        calls = failed = queue_wait = 0
        least_blocked = 1 << 62
        if self.pool.shield.armed and self.permit:
            self.pool.shield.begins(profile)
        while True:
            call.state = RUNNING
            call.started_ns = now
            self.cpu_start_ns = cpu_looked
            self.call = call
            queue_wait += now - call.queued_ns
            try:
                context = call.context
                if context is None:
                    call.value = call.fn(*call.args, **call.kwargs)  # type: ignore[misc]
                else:
                    call.value = context.run(call.fn, *call.args, **call.kwargs)  # type: ignore[arg-type]
            except BaseException as error:
                call.error = error
                failed += 1
            then = wall()
            calls += 1
            call.state = DONE
            if then - looked < CPU_LOOK_NS and not watched:
                least_blocked = 0  # or so little that it does not count
            else:
                cpu_then = cpu()
                least_blocked = min(least_blocked, then - looked - cpu_then + cpu_looked)
                if watched:
                    call.wall_ns, call.cpu_ns = then - now, cpu_then - cpu_looked
                    hooks.started(call)
                    hooks.finished(call, then)
                looked, cpu_looked = then, cpu_then
            now = then
            held.append(call)
            if batch and now - begun >= BATCH_NS:
                self.call = None  # callbacks of the user's need no permit, and are not judged as the call
                self.release()
            try:
                call = batch.popleft()
            except IndexError:
                break
        self.call = None
        del call, context  # an error's traceback holds this frame
        wall_ns = now - begun  # since when callbacks may have run
        cpu_ns = min(wall_ns, (cpu_looked if looked == now else cpu()) - cpu_begun)
        try:
            booked = Batch(profile, calls, failed, wall_ns, cpu_ns, queue_wait, least_blocked, now)
            finish_batch(self.pool, self, booked)
        finally:
            self.release()

    def release(self, *, quick: bool = False) -> None:
        """Deliver the calls of the batch that have ended; from any thread, without the lock.

        With `quick` only up to the first that has got a callback of the user, which is for the worker to run.
        """
        for_each(self._take_held(quick=quick), _deliver if quick else self._hand_over)

    def _take_held(self, *, quick: bool) -> Iterator[Call]:
        held = self.held
        while held:
            try:
                if quick and not held[0].quick:
                    return
                call = held.popleft()
            except IndexError:  # another thread was faster
                return
            yield call
            del call  # an error's traceback holds the frames above its own, too

    def _hand_over(self, call: Call) -> None:
        """Deliver a call; what the worker was given meanwhile does not wait for callbacks of the user's."""
        try:
            if self.batch and not call.quick:
                with without_convoy(self.pool.lock):
                    to_start = reclaim_batch_locked(self)
                    if self.call is None:  # the assignment stays open without a call, and needs no permit
                        to_start = to_start + change_permit_locked(self, NONE)
                self.pool.start(to_start)
        finally:
            call.deliver()

    def help(self, call: Call) -> None:
        """Run a queued call that the calling thread, this worker's, would only wait for."""
        if not claim_for_help(self, call):
            return
        wall, cpu = self.pool.roster.wall_ns, self.pool.roster.cpu_ns
        nested_wall, nested_cpu = self.nested_wall_ns - wall(), self.nested_cpu_ns - cpu()
        outer, running, cpu_start_ns = self.outer, self.call, self.cpu_start_ns
        if running is not None:
            self.outer = (running, *outer)
        try:
            self._execute(call)
        except BaseException:
            self.call, self.cpu_start_ns = running, cpu_start_ns  # which goes on, if it survives this
            call.error = call.error or _lost(call)
            helped_lost(call)
            raise
        else:
            self.nested_wall_ns, self.nested_cpu_ns = nested_wall + wall(), nested_cpu + cpu()
            finish_helped(self.pool, call)
        finally:
            self.outer = outer
            call.deliver()
            del call

    def _execute(self, call: Call) -> None:
        """Run the function and note what it returned or raised, and what it cost."""
        wall, cpu = self.pool.roster.wall_ns, self.pool.roster.cpu_ns
        outer, outer_cpu_start = self.call, self.cpu_start_ns
        self.nested_cpu_ns = 0
        fn, context = call.fn, call.context
        assert fn is not None
        profile = call.profile
        asked = self.pool.measures and not profile.calls & profile.detail_mask
        if profile.prelude:
            begin_phase(self, call)
        self.nested_wall_ns = 0
        delay_start, blocks_start = self._ask_before() if asked else (0, None)
        if self.pool.shield.armed and self.permit:
            self.pool.shield.begins(profile)
        self.cpu_start_ns = cpu_start = cpu()
        call.started_ns = started = wall()
        self.call = call
        if self.pool.hooks.on_event is not None:
            self.pool.hooks.started(call)
        follower = None if profile.sited is None else self.pool.budget.phases.follow(self, call)
        try:
            if context is None:
                call.value = fn(*call.args, **call.kwargs)
            else:
                call.value = context.run(fn, *call.args, **call.kwargs)
        except BaseException as error:
            call.error = error
        if follower is not None:
            self.pool.budget.phases.unfollow(follower)
        call.wall_ns = wall() - started - self.nested_wall_ns
        cpu_end = cpu()
        call.cpu_ns = cpu_end - cpu_start - self.nested_cpu_ns
        if self.phase is not None and self.phase.last is not None:
            self.phase.ended(cpu_end)
        if asked:
            blocks_end = None if blocks_start is None else blocks()
            if blocks_start is not None and blocks_end is not None:
                in_line = 0 if self.phase is None else self.phase.blocks
                call.blocks = max(0, blocks_end - blocks_start - in_line)
            call.run_delay_ns = max(0, self._run_delay() - delay_start)
        self.call, self.cpu_start_ns = outer, outer_cpu_start
        # An error's traceback holds this frame: break the cycle error -> frame -> call -> error.
        del call, fn, context, outer

    def _ask_before(self) -> tuple[int, int | None]:
        """Return the run-queue delay and the number of waits so far, at the start of a call."""
        if self.phase is not None:
            self.phase.blocks = 0
        return self._run_delay(), blocks()

    def _run_delay(self) -> int:
        """Return the thread's run-queue delay; 0, always, where the platform does not tell."""
        delay = None if self.probe is None else self.probe.run_delay_ns()
        return 0 if delay is None else delay

    def _leave(self) -> None:
        """End in good order, or clean up after a thread that was killed from outside."""
        call, self.call = self.call, None
        if call is not None and call.error is None:
            call.error = _lost(call)
        try:  # each step may lack memory, and the next must not wait for that
            try:
                self._close_probe()
            finally:
                worker_left(self, call)
        finally:
            try:
                self.release()
            finally:
                if call is not None:
                    call.drop_work()
                    call.deliver()
                gone(self.pool)

    def _close_probe(self) -> None:
        with without_convoy(self.pool.budget.lock):
            probe, self.probe = self.probe, None
        if probe is not None:
            probe.close()


def _deliver(call: Call) -> None:
    call.deliver_quickly()


_LOST = WorkerLostError("the worker thread ended while it ran a call, and memory was lacking to say which")


def _lost(call: Call) -> WorkerLostError:
    try:
        return WorkerLostError(f"the worker thread ended while it ran {call.profile.name}")
    except MemoryError:
        return _LOST


def _make_probe() -> ThreadProbe | None:
    try:
        return ThreadProbe()
    except (MemoryError, OSError):  # what it would tell is absent
        return None
