"""The governor: one thread per interpreter that looks at running calls and sizes the pools.

Two jobs, both in `step`, which gets the time as an argument:

- **Sampling** (Go's sysmon): it reads the CPU clocks of running workers from outside. A call that
  waits gives its permit back, a call that computes takes one, a short one that computes for long
  becomes long, and a lane from which no call has started for too long starts one anyway (an overdraft).
- **Sizing**: it closes each pool's window when it is due, asks the policy, and notes the decision.

It sleeps for 2 ms at first and longer when nothing changes, keeps to its share of a core by sleeping
still longer (see `cpu_budget`), and parks when nothing runs. A pool that needs it wakes it. If it fails, or
gets no thread, it says so and lifts the permits, so that every call still gets its thread, and tries again a
second later: with its first step that succeeds the permits are back.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from hybridrt.governor.cpu_budget import CpuBudget
from hybridrt.governor.gil_evidence import GilEvidence
from hybridrt.governor.kept import KeptReader
from hybridrt.governor.native import NativeWork
from hybridrt.governor.sampler import Tick, is_to_be_learned, note_native, sample_pool
from hybridrt.governor.shield import Shield
from hybridrt.measure.gil import GilProbe, switch_interval_ns
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.permits import FREE
from hybridrt.pool.rebalance import (
    close_window_locked,
    dispatch_stranded_locked,
    no_isolate_free,
    overdraw_locked,
    relieve_limiter_locked,
)
from hybridrt.pool.roster import is_over
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.shutdown import refuse_all
from hybridrt.pool.site_events import SiteEvents
from hybridrt.pool.site_finder import SiteFinder
from hybridrt.pool.state import Call, SharedBudget, Worker
from hybridrt.pool.thread import make_thread

__all__ = ["Governor"]

logger = logging.getLogger("hybridrt")

TICK_NS = 2_000_000
"""The shortest sleep."""
REST_NS = 16_000_000
"""The longest while calls run."""
LATE_NS = 32_000_000
"""The longest while a call lacks a permit or a function is to be learned, where shorter ones would cost more
than the governor may: what a call can wait for its permit beyond its due. Longer, up to `SPARE_NS`, where
steps take so long that even this costs more than `cpu_budget.PRESSED_SHARE`."""
SPARE_NS = 75_000_000
"""The longest while calls run and none waits for a permit, where shorter ones would cost more than the
governor may; the first call that lacks a permit ends it. One and a half of the shortest windows."""
QUIET_NS = 100_000_000
"""The same where none is queued either, so that a larger size would start nothing."""
LEARN_NS = 1_000_000_000
"""Time for which it goes on learning although it sees no such call: a function that holds the GIL has often
just returned when the governor gets the GIL. Not tuned."""
GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, modulo one, are spread evenly (Kuipers and Niederreiter 1974, chapter 2.3)."""
IDLE_STEPS = 20
"""Naps of that length without any call before it parks."""
LONG_SLEEP_NS = 100_000_000
"""The sleep while nothing runs but a size has still to come down; `wake` ends it."""
_LEAVE_AFTER = 5.0
"""Seconds a parked governor keeps its thread."""
PROMPT_NS = 500_000
"""Where waits are not counted, a sleep that ends at most so much too late found the GIL free. A sleep
alone is late by 0.1 ms."""
RETRY = 1.0
"""Seconds from a failure of the governor to the next attempt. Not measured."""
_NEVER_NS = 1 << 62
_HOST_NS = 2_000_000_000
"""Time between two looks at the host, at least; each costs some 0.4 ms."""
_HOST_LATE_NS = 10_000_000_000
"""The same while the GIL is wanted: a look takes long then, and threads wait for it. Not measured."""


class Governor:
    """Runs `step` while there is something to govern.

    Args:
        budget: Whose pools to govern.
        shield: Of the same interpreter.
        sites: Where its calls wait; others in tests.
    """

    def __init__(self, budget: SharedBudget, shield: Shield, sites: SiteEvents | None = None) -> None:
        self._sites = SiteEvents() if sites is None else sites
        self._finder = SiteFinder(self._sites)
        self.budget = budget
        self.shield = shield
        self.error: str | None = None
        """Why it does not work now; None while it does."""
        self.failures = 0
        """How often it failed, or was given no thread."""
        self._retry_ns = 0
        """When to try again after a failure."""
        self._wakeup: SimpleQueue[None] = SimpleQueue()
        self.parked = True
        self.sleeps_long = False
        """It sleeps for longer than a call that lacks a permit should wait."""
        self._learns = False
        """Calls compute of which more is to be learned, by waking up beside them."""
        self._learns_until_ns = 0
        self._varied = 0.0
        """Multiple of the golden ratio, modulo one, that the last varied nap was made from."""
        self._queued = False
        """At the last step calls were queued."""
        self._cpu_budget = CpuBudget()
        self._alive = False
        self._thread: threading.Thread | None = None
        self._gil = GilProbe()
        self._evidence = GilEvidence()
        self._host_due_ns = 0
        self.native = NativeWork()
        self._kept = KeptReader()
        self._stopping = False
        self._sleep_ns = TICK_NS
        self._due_ns = _NEVER_NS
        self._idle_steps = 0
        self.process_cpu_ns = 0
        """CPU time of the process at the last step."""
        self._was_prompt = False
        self._stepped_ns = 0

    # ------------------------------------------------------------------ waking

    def wake(self) -> None:
        """Wake the governor if it is parked, without the lock; costs one look otherwise."""
        if not self.parked or self.budget.clock.wall_ns() < self._retry_ns:
            return
        start = False
        with without_convoy(self.budget.lock):
            if self.parked:
                self._wakeup.put(None)  # first: it may lack memory, and then the next call wakes it
                self.parked = False
                start, self._alive = not self._alive, True
        if start:
            self._start()

    @property
    def asleep(self) -> bool:
        """Whether it is parked until a call comes, and will then quicken the loops."""
        return self.parked and self._due_ns == _NEVER_NS

    def wake_locked(self) -> None:
        """End a long sleep: a call lacks a permit; the lock is held."""
        if self.sleeps_long:
            self.sleeps_long = False
            self._wakeup.put(None)

    def look_soon_locked(self) -> None:
        """Look at the host at the next step."""
        self._host_due_ns = -_HOST_LATE_NS

    def _start(self) -> None:
        try:
            self._thread = make_thread(self._run, "hybridrt-governor")
            if not self._thread.daemon:  # a sub-interpreter: libraries are those of the whole process
                self.budget.native_limits.refuse()
            self._thread.start()
        except (RuntimeError, MemoryError) as error:  # permits without a sampler would hang
            self._thread = None
            try:
                self._fail(error)
            finally:
                self._retire()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread and wait for it, for so many seconds; the next `wake` starts another."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self._stopping = True
        self._wakeup.put(None)
        thread.join(timeout)
        self._stopping = thread.is_alive()  # it may have left by itself

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        wait: float | None = None
        while True:
            try:
                if not self._sleep(wait):
                    return
                wait = self.turn()
                self._recover()
            except BaseException as error:  # whatever it is: without a governor calls must go on
                wait = RETRY
                try:
                    self._fail(error)
                except BaseException:  # the next call starts another thread
                    self._retire()
                    raise

    def _sleep(self, wait: float | None) -> bool:
        """Sleep until it is time or it is woken; return False when the thread is to end."""
        # A thread that is no daemon would keep its sub-interpreter from its end.
        leave_after = _LEAVE_AFTER if threading.current_thread().daemon else 0.0
        try:
            self._wakeup.get(timeout=wait if wait is not None else leave_after)
        except Empty:
            if wait is None and self._leave():
                return False
        if self._stopping:
            self._retire()
            return False
        return True

    def _leave(self) -> bool:
        """End the thread after a long rest, unless it was rung at the last moment."""
        with without_convoy(self.budget.lock):
            if not self.parked:
                return False
            self._alive = False
            return True

    def _retire(self) -> None:
        with without_convoy(self.budget.lock):
            self._stopping = self._alive = False
            self.parked = True
            self._thread = None
            self.shield.rest_locked()

    def _fail(self, error: BaseException) -> None:
        """Let calls start without permits until the governor works again."""
        self.budget.permits.lifted = True
        self.sleeps_long = False
        known, self.error = self.error, _text_of(error)
        self.failures += 1
        with suppress(Exception):  # memory is lacking, or a handler of the log fails; the next step goes on
            self._retry_ns = self.budget.clock.wall_ns() + int(RETRY * 1e9)
            with without_convoy(self.budget.lock):
                self.shield.rest_locked()
            self._dispatch_all()
            self.budget.native_limits.restore()
            if self.error != known:
                logger.error(
                    "the governor failed; until it works again pools keep their size", exc_info=error
                )

    def _recover(self) -> None:
        """Ask for permits again if a step has succeeded some time after a failure."""
        if not self.budget.permits.lifted or self.budget.clock.wall_ns() < self._retry_ns:
            return
        logger.info("the governor works again")
        with without_convoy(self.budget.lock):
            self.error = None
            self.budget.permits.lifted = False

    def _dispatch_all(self) -> None:
        """Start what may start, in all pools."""
        to_start: list[Worker] = []
        try:
            with without_convoy(self.budget.lock):
                self.budget.permits.hand_on()
                for pool in list(self.budget.pools):
                    to_start += dispatch_locked(pool)
        finally:
            start(to_start)

    def turn(self) -> float | None:
        """Do one step and return the seconds until the next, or None to park."""
        clock = self.budget.clock
        self.parked = self.sleeps_long = False
        now = clock.wall_ns()
        if self._due_ns == _NEVER_NS:
            self.shield.wake()
        allowed = min(PROMPT_NS, switch_interval_ns() // 2)
        prompt = self._gil.woke(now, allowed)
        slept = now >= self._due_ns
        nap = self.step(
            now, clock.process_cpu_ns(), prompt=prompt and slept, delay_ns=self._gil.delay_ns, slept=slept
        )
        if nap is None or nap == LONG_SLEEP_NS:
            # 1. A submitter queues a call under the lock. 2. It looks at `parked` without it.
            # Parking under the lock, and only while nothing is active, leaves no gap: either the
            # call is seen here, or the submitter sees the flag and wakes it.
            with without_convoy(self.budget.lock):
                busy = any(pool.is_active() for pool in self.budget.pools)
                self.parked = self.shield.armed and not busy
            if not self.parked:
                nap = TICK_NS
            else:
                self.budget.native_limits.restore()
        self._sleep_ns = nap or TICK_NS
        self._cpu_budget.book(clock.wall_ns(), clock.cpu_ns())
        if nap is not None:
            nap = self._stretch(nap)
            if self._learns or self.sleeps_long:
                nap = self._vary(nap)
        # A parked governor is woken, by a thread that has the GIL.
        self._due_ns = _NEVER_NS if nap is None else clock.wall_ns() + nap
        self._gil.sleep(self._due_ns)
        return None if nap is None else nap / 1e9

    def _stretch(self, nap: int) -> int:
        """Return a nap that is long enough for the governor's share of a core, within bounds."""
        least = self._cpu_budget.least_sleep_ns
        if least <= nap or self._finder.is_looking:
            return nap
        # 1. A dispatch, with the lock, notes that its pool lacks one, and wakes us if we sleep long.
        # 2. We sleep long, with the lock, only if no pool lacks one: it is seen here, or wakes us.
        with without_convoy(self.budget.lock):
            self.sleeps_long = least > REST_NS and not (self._learns or self.budget.lacks_permit())
        late = min(SPARE_NS, max(LATE_NS, self._cpu_budget.steady_sleep_ns))
        most = late if not self.sleeps_long else SPARE_NS if self._queued else QUIET_NS
        return max(nap, min(least, most))

    def _vary(self, nap: int) -> int:
        """Return a nap of at least half that length, each time another one.

        With naps of one length, a governor in step with calls that follow each other would always find them
        at the same point: for example always just after they ended. It then neither learns what they do nor
        notices that there is something to learn.
        """
        self._varied = (self._varied + GOLDEN) % 1.0
        return max(TICK_NS, nap - int(nap * self._varied / 2))

    # ------------------------------------------------------------------ one step

    def step(
        self, now_ns: int, process_cpu_ns: int, *, prompt: bool, delay_ns: int = 0, slept: bool = True
    ) -> int | None:
        """Sample and size at `now_ns`; return nanoseconds to sleep, or None if nothing is left to do.

        Args:
            now_ns: The time.
            process_cpu_ns: CPU time of the process.
            prompt: Whether the governor found the GIL free when it woke.
            delay_ns: How long it waited for it.
            slept: Whether it woke by itself; if not, it knows nothing of the GIL.
        """
        tick = Tick(
            now=now_ns,
            slept=slept,
            prompt=prompt,
            delay=delay_ns,
            steady=prompt and self._was_prompt,
            before=self._stepped_ns,
            process_cpu=process_cpu_ns - self.process_cpu_ns,
            switch_interval=switch_interval_ns(),
            gil=self.budget.gil,
        )
        self.process_cpu_ns = process_cpu_ns
        to_start, spilled = tick.to_start, list[Call]()
        if not self.budget.lock.locked():  # else somebody in the middle of a section has had the GIL
            with without_convoy(self.budget.lock):
                self._evidence.note(self.budget.pools, tick, self.budget.clock.wall_ns)
        native = self.native.read(now_ns, prompt=prompt)
        tick.native = self.native.beyond_background(*native)
        cpu = self._look_at_host(tick)
        try:
            with without_convoy(self.budget.lock):
                pools = [pool for pool in self.budget.pools if not is_over(pool)]
                self.budget.permits.hand_on()
                self._measure(tick)
                changed = (cpu, self.budget.gil) != (self.budget.cpu, self.budget.permits.gil)
                if changed:
                    self.budget.set_cores_locked(cpu)
                    for pool in pools:
                        to_start += dispatch_locked(pool)
                for pool in pools:
                    changed |= sample_pool(pool, tick)
                note_native(tick)
                # A step that comes late has not looked, which does not mean that nothing has started.
                before_ns, self._stepped_ns = max(self._stepped_ns, now_ns - SPARE_NS), now_ns
                for pool in pools:
                    to_start += close_window_locked(pool, now_ns)
                    to_start += overdraw_locked(pool, now_ns, before_ns)
                    to_start += dispatch_stranded_locked(pool)
                for limiter in self.budget.limiters:
                    more, taken = relieve_limiter_locked(limiter, now_ns, before_ns)
                    to_start += more
                    spilled += taken
                active = any(pool.is_active() for pool in pools)
                resting = active or all(pool.at_rest() for pool in pools)
                self._queued = any(pool.queued for pool in pools)
                longest = max(TICK_NS, min(REST_NS, tick.soon_ns)) if self.budget.lacks_permit() else REST_NS
                if any(is_to_be_learned(profile) for profile in tick.holders):
                    self._learns_until_ns = now_ns + LEARN_NS
                self._learns = now_ns < self._learns_until_ns
                drivers = [profile for profile in tick.holders if profile.native.drives]
                at_once = self.budget.permits.held[FREE]
                if drivers and self._queued:
                    at_once = max(at_once, min(self.budget.cores, 1 + sum(pool.queued for pool in pools)))
            self._was_prompt = prompt
            if self.budget.native_limits.step(now_ns, at_once, self.budget.cores):
                with without_convoy(self.budget.lock):
                    for profile in drivers:
                        profile.parallel = None  # what several calls at once did, they did with more threads
            if not active or not tick.holders:
                self.native.rested(*native, active=active)
            # Before threads start: they ask for the GIL, and by their number the interval goes.
            self.shield.step(
                now_ns,
                pools,
                gil_taken=active and slept and not prompt,
                brief=tick.brief and not self._queued,
            )
        finally:
            _let_go(to_start, spilled, tick.holding)
        for pool in pools:
            pool.sizing.tell_failure()
        for where in tick.unseen_waits:
            self._sites.learn(*where)
        self._finder.step(
            now_ns,
            pools,
            steady=tick.steady,
            interval_ns=tick.switch_interval,
            native=4 * tick.native >= tick.process_cpu > 0,
        )
        return self._choose_sleep(
            active, resting, TICK_NS if changed or to_start or self._finder.is_looking else longest
        )

    def _measure(self, tick: Tick) -> None:
        """Bring up to date how contended the GIL is."""
        load = self.budget.gil_load
        if tick.slept and tick.gil:
            load.woke(tick.delay, free=tick.prompt)
        load.saw_interval(tick.now, tick.switch_interval)

    def _look_at_host(self, tick: Tick) -> float:
        """Bring up to date what the process may use, without the lock; return its cores.

        What psutil reads gives the GIL away several times: 50 ms beside eight threads that compute. With all
        other files read like that it was 0.63 s, for which no call was looked at.
        """
        late = tick.now - self._host_due_ns
        if late < 0 or (late < _HOST_LATE_NS - _HOST_NS and not tick.prompt):
            return self.budget.cpu
        self._host_due_ns = tick.now + _HOST_NS
        self.budget.kept = self._kept.read(tick.now, self.budget.cores)
        return self.budget.look_at_host()

    def _choose_sleep(self, active: bool, resting: bool, longest: int) -> int | None:
        if active:
            self._idle_steps = 0
            return min(2 * self._sleep_ns, longest)
        self._idle_steps += 1
        if self._idle_steps <= IDLE_STEPS:
            return REST_NS
        return None if resting else LONG_SLEEP_NS


def _let_go(to_start: list[Worker], spilled: list[Call], holding: list[Worker]) -> None:
    """Do what a step leaves to be done without the lock, even if it failed: otherwise calls would be lost.

    Args:
        to_start: Workers that were given calls.
        spilled: Calls that were taken out of their line, to be refused.
        holding: Workers that keep back calls that have ended.
    """
    try:
        start(to_start)
    finally:
        try:
            refuse_all(spilled, no_isolate_free)
        finally:
            for worker in holding:
                worker.release(quick=True)


def _text_of(error: BaseException) -> str:
    """Return the `repr` of an error; its class if that fails, for lack of memory for example."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def start(to_start: list[Worker]) -> None:
    """Start workers of any pool, without the lock."""
    if to_start:
        to_start[0].pool.start(to_start)
