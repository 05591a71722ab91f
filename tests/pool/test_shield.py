"""The shield: who may set the switch interval, and when the user gets it back."""

from __future__ import annotations

import gc
import threading

import pytest

from hybridrt.control.interval import ASKING, LOWEST, REST, WAKING
from hybridrt.governor.shield import LOOP_DELAY_TARGET
from hybridrt.pool.permits import FREE, LONG, SHORT
from hybridrt.values import ShieldReason

from .shielding import TICK_NS, USUAL, FakePool, FakeWatch, Play

OTHERS = 0.003


@pytest.fixture
def play() -> Play:
    return Play()


# ---------------------------------------------------------------------- while calls compute


def test_the_interval_is_short_from_the_moment_a_call_begins(play: Play) -> None:
    play.begin()
    assert play.switch.value == LOWEST
    assert (play.told.interval, play.told.user, play.told.reason) == (LOWEST, USUAL, ShieldReason.TIGHT)


def test_it_is_given_back_once_nothing_has_computed_for_a_while(play: Play) -> None:
    play.begin()
    play.step()
    play.end()
    play.step()
    assert play.switch.value == LOWEST
    play.rest()
    assert play.switch.history == [LOWEST, USUAL]
    assert (play.told.reason, play.told.changes) == (ShieldReason.REST, 2)
    assert play.shield.armed


def test_calls_back_to_back_do_not_toggle_it(play: Play) -> None:
    for _ in range(20):
        play.begin()
        play.step()
        play.end()
        play.step()
    assert play.switch.history == [LOWEST]


def test_functions_that_run_in_batches_do_not_tighten_it(play: Play) -> None:
    play.function.batch = 2
    play.begin()
    assert play.switch.history == []
    assert play.shield.armed


def test_a_call_that_did_not_say_so_is_noticed_when_it_lasts(play: Play) -> None:
    play.function.batch = 2
    play.begin()
    play.step()
    assert play.switch.history == []
    play.step()
    assert play.switch.history == [LOWEST]


def test_very_short_calls_that_follow_each_other_are_none_that_last(play: Play) -> None:
    play.function.batch = 2
    for _ in range(20):
        play.begin()
        play.step()
        play.end()
    assert play.switch.history == []


def test_a_long_call_lasts(play: Play) -> None:
    play.permits.take(LONG)
    play.step()
    assert play.switch.history == [LOWEST]


def test_calls_that_leave_the_gil_to_others_do_not_tighten_it(play: Play) -> None:
    play.permits.take(FREE)
    play.step(10)
    assert play.switch.history == []


def test_a_loop_that_is_late_while_the_gil_is_taken_tightens_it(play: Play) -> None:
    """Calls of the waiting lane compute between their waits, without a permit."""
    watch = FakeWatch()
    play.shield.join(watch)
    watch.late = 0.01
    play.look()
    assert play.switch.history == []
    play.step(gil_taken=True)
    assert play.switch.history == [LOWEST]


def test_brief_calls_that_come_one_by_one_do_not_tighten_it(play: Play) -> None:
    watch = FakeWatch()
    play.shield.join(watch)
    watch.late = 0.01
    play.look()
    play.permits.take(SHORT)
    play.step(10, gil_taken=True, brief=True)
    assert play.switch.history == []


def test_brief_calls_that_come_one_by_one_let_it_rest_although_one_runs_at_each_look(play: Play) -> None:
    play.begin()  # the function was unknown
    assert play.switch.value == LOWEST
    play.step(int(REST * 1e9) // TICK_NS + 2, gil_taken=True, brief=True)
    assert play.switch.value == USUAL


def test_several_calls_let_it_grow_while_the_loop_keeps_its_target(play: Play) -> None:
    watch = FakeWatch()
    play.shield.join(watch)
    play.begin(SHORT)
    play.begin(LONG)
    play.step(1000)
    assert play.switch.value == USUAL
    watch.late = 0.01
    play.look()
    assert play.switch.value < 0.0005
    assert (play.told.delay, play.told.reason) == (0.01, ShieldReason.LATE)


def test_calls_that_come_and_go_fast_let_it_grow(play: Play) -> None:
    pools = [FakePool(), FakePool()]
    play.budget.pools.update(pools)  # type: ignore[arg-type]
    play.begin()
    for _ in range(100):
        pools[0].tally.completed += 1
        pools[1].tally.failed += 1
        play.step()
    assert play.switch.value == pytest.approx(LOOP_DELAY_TARGET / 2)
    assert play.told.reason is ShieldReason.UNMEASURED
    pools.clear()
    play.step(100)
    assert play.told.reason is ShieldReason.TIGHT


def test_calls_that_compute_between_their_waits_count_as_a_crowd(play: Play) -> None:
    """They need no permit, and each of them wakes once an interval to ask for the GIL."""
    pool = FakePool()
    pool.sizing.crowd = 6.4
    play.budget.pools.add(pool)  # type: ignore[arg-type]
    play.begin()
    play.step(100)
    assert play.switch.value == pytest.approx(WAKING * 6)  # and the one with a permit
    assert play.told.reason is ShieldReason.UNMEASURED


def test_the_more_threads_may_ask_for_the_gil_at_once_the_longer_it_is(play: Play) -> None:
    pools = [FakePool(), FakePool()]
    pools[0].busy, pools[1].busy = 200, 50
    play.budget.pools.update(pools)  # type: ignore[arg-type]
    play.begin()
    assert play.switch.value == pytest.approx(250 * ASKING)
    pools[1].busy = 150
    play.step()
    assert play.switch.value == pytest.approx(350 * ASKING)


def test_threads_that_stand_in_line_for_a_permit_do_not_ask_for_the_gil(play: Play) -> None:
    pool = FakePool()
    pool.busy, play.permits.waits = 250, 240
    play.budget.pools.add(pool)  # type: ignore[arg-type]
    play.begin()
    assert play.switch.value == LOWEST


# ---------------------------------------------------------------------- whose interval it is


def test_it_is_never_above_the_users_own(play: Play) -> None:
    play.switch.value = LOWEST / 4
    play.begin()
    play.step(10)
    play.end()
    play.rest()
    assert play.switch.history == []


def test_a_value_that_somebody_else_sets_is_left_alone_and_is_the_users_own_from_then_on(play: Play) -> None:
    play.begin()
    play.switch.value = OTHERS
    play.step(10)
    assert (play.switch.value, play.told.reason) == (OTHERS, ShieldReason.FOREIGN)
    play.end()
    play.rest()
    assert play.switch.value == OTHERS
    play.begin()
    assert (play.switch.value, play.told.user) == (LOWEST, OTHERS)
    play.end()
    play.rest()
    assert play.switch.value == OTHERS


def test_whoever_saves_it_and_puts_it_back_does_not_end_the_governing(play: Play) -> None:
    play.begin()
    saved, play.switch.value = play.switch.value, OTHERS
    play.step()
    play.switch.value = saved
    play.step()
    assert play.told.reason is ShieldReason.TIGHT
    play.end()
    play.rest()
    assert play.switch.value == USUAL


def test_a_saved_value_of_ours_that_is_put_back_only_after_a_rest_is_not_the_users_own(play: Play) -> None:
    play.begin()
    saved, play.switch.value = play.switch.value, OTHERS
    play.end()
    play.rest()
    play.switch.value = saved
    assert play.told.user == USUAL
    play.begin()
    play.end()
    play.rest()
    assert play.switch.value == USUAL


@pytest.mark.parametrize("times", [1, 2])
def test_a_value_put_back_with_the_loss_of_cpythons_rounding_is_still_ours(play: Play, times: int) -> None:
    play.begin()
    play.switch.value -= times * 1e-6
    play.step()
    assert (play.switch.value, play.told.reason) == (LOWEST, ShieldReason.TIGHT)
    play.switch.value -= times * 1e-6
    assert play.told.reason is ShieldReason.TIGHT
    play.end()
    play.rest()
    assert play.switch.value == USUAL


# ---------------------------------------------------------------------- several runtimes


def test_the_worst_delay_and_the_smallest_target_count(play: Play) -> None:
    patient, strict = FakeWatch(target=0.05), FakeWatch(target=0.001)
    for watch, late in ((patient, 0.003), (strict, 0.0005)):
        watch.late = late
        play.shield.join(watch)
    play.look()
    assert (play.told.delay, play.told.target) == (0.003, 0.001)
    play.shield.leave(strict)
    assert play.told.target == 0.05


def test_without_a_runtime_there_is_a_target_and_no_delay(play: Play) -> None:
    assert (play.told.delay, play.told.target) == (None, LOOP_DELAY_TARGET)


def test_a_runtime_that_objects_has_its_way_while_it_is_open(play: Play) -> None:
    play.shield.join(FakeWatch())
    play.begin()
    objects = FakeWatch(shield=False)
    play.shield.join(objects)
    play.step(10)
    assert (play.switch.value, play.told.reason) == (USUAL, ShieldReason.VETO)
    play.shield.leave(objects)
    play.step()
    assert (play.switch.value, play.told.reason) == (LOWEST, ShieldReason.TIGHT)


def test_a_loop_that_was_closed_without_its_runtime_does_not_count(play: Play) -> None:
    gone = FakeWatch(shield=False)
    play.shield.join(gone)
    gone.over = True
    play.look()
    play.begin()
    assert play.switch.value == LOWEST


def test_an_objection_is_over_when_nobody_knows_of_it_any_more(play: Play) -> None:
    forgotten = FakeWatch(shield=False)
    play.shield.join(forgotten)
    play.begin()
    assert play.told.reason is ShieldReason.VETO
    del forgotten
    gc.collect()
    play.look()
    play.step()
    assert (play.switch.value, play.told.reason) == (LOWEST, ShieldReason.TIGHT)


def test_a_loop_that_is_lost_without_leaving_goes_first_no_more(play: Play) -> None:
    lost = FakeWatch()
    play.shield.join(lost)
    assert play.shield.goes_first()
    del lost
    gc.collect()
    play.shield.rest()
    assert not play.shield.goes_first()


def test_loops_are_measured_closely_from_the_moment_a_call_begins(play: Play) -> None:
    watches = [FakeWatch(), FakeWatch(shield=False)]
    for watch in watches:
        play.shield.join(watch)
    play.begin()
    play.begin(LONG)
    play.step(3)
    assert [watch.quickened for watch in watches] == [1, 1]


# ---------------------------------------------------------------------- off


def test_a_governor_that_wakes_after_it_has_parked_has_the_loops_measured_closely(play: Play) -> None:
    watch, governor = FakeWatch(), play.budget.governor
    play.shield.join(watch)
    assert governor.asleep
    governor.turn()
    assert watch.quickened == 1
    assert not governor.asleep
    governor.turn()
    assert watch.quickened == 1


def test_without_a_gil_there_is_nothing_to_govern() -> None:
    play = Play(gil=False)
    watch = FakeWatch()
    play.shield.join(watch)
    play.begin()
    play.begin(LONG)
    play.step(10)
    assert play.switch.history == []
    assert play.shield.statistics_locked() is None
    assert watch.quickened == 1


def test_a_gil_that_is_switched_on_later_is_governed() -> None:
    play = Play(gil=False)
    play.budget.gil = True
    play.begin()
    assert play.switch.history != []


def test_when_the_governor_fails_it_is_given_back_until_that_works_again(play: Play) -> None:
    play.begin()
    play.budget.governor._fail(OSError("no more"))
    assert (play.switch.value, play.told.reason) == (USUAL, ShieldReason.FAILED)
    play.begin()
    play.end()
    play.shield.rest()
    assert play.switch.history == [LOWEST, USUAL]
    play.clock.now_ns = 1 << 62
    play.budget.governor._recover()
    play.step()
    assert play.switch.value == LOWEST


def test_when_the_governor_is_stopped_it_is_given_back(play: Play) -> None:
    play.begin()
    play.budget.governor.parked = True
    play.budget.governor.wake()
    play.budget.governor.stop()
    assert play.switch.value == USUAL


def test_a_pool_that_closes_gives_it_back_unless_others_compute(play: Play) -> None:
    play.begin()
    play.shield.rest()
    assert play.switch.value == LOWEST
    play.end()
    play.shield.rest()
    assert play.switch.value == USUAL


def test_a_forked_child_begins_with_the_users_own_and_without_loops(play: Play) -> None:
    objects = FakeWatch(shield=False)
    play.shield.join(objects)
    play.switch.lock = None  # the child's first thread is its only one
    play.budget.start_clean()
    play.begin()
    assert play.switch.value == LOWEST
    play.budget.start_clean()
    assert (play.switch.value, play.shield.armed) == (USUAL, True)


# ---------------------------------------------------------------------- races


@pytest.mark.race
def test_whatever_begins_ends_and_looks_at_once_the_user_gets_it_back() -> None:
    play = Play()
    start = threading.Barrier(4)

    def compute() -> None:
        start.wait()
        for _ in range(20):
            with play.budget.lock:
                play.permits.take(SHORT)
            if play.shield.armed:
                play.shield.begins(play.function)
            with play.budget.lock:
                play.permits.give_back(SHORT)

    def watch() -> None:
        start.wait()
        for _ in range(20):
            objects = FakeWatch(shield=False)
            play.shield.join(objects)
            play.shield.leave(objects)
            play.shield.rest()

    threads = [threading.Thread(target=target) for target in (compute, compute, watch)]
    for thread in threads:
        thread.start()
    start.wait()
    play.step(20)
    for thread in threads:
        thread.join()
    play.rest()
    assert all(LOWEST <= value <= USUAL for value in play.switch.history)
    assert (play.switch.value, play.shield.armed) == (USUAL, True)
    assert play.told.changes == len(play.switch.history)
