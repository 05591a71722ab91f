"""Stolen and throttled time as the kernel tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridrt.measure import kept
from hybridrt.measure.host import throttled_ns


def test_time_in_use_and_stolen_time_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  100 20 30 4000 50 6 7 800 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert kept.machine_times(str(file)) == (100 + 20 + 30 + 6 + 7, 800)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8\n"])
def test_a_kernel_that_does_not_tell_it_is_absent(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stat"
    file.write_text(text)
    assert kept.machine_times(str(file)) is None
    assert kept.machine_times(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("own", "usage_usec 10\nnr_throttled 3\nthrottled_usec 250000\n"),
        ("cpu/own", "nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n"),
    ],
)
def test_throttled_time_is_that_of_the_own_control_group(tmp_path: Path, folder: str, text: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.stat").write_text(text)
    own = tmp_path / "cgroup"
    own.write_text("0::/own\n" if folder == "own" else "4:cpu,cpuacct:/own\n")
    assert throttled_ns(tmp_path, own) == 250_000_000


def test_without_a_control_group_nothing_is_throttled(tmp_path: Path) -> None:
    assert throttled_ns(tmp_path, tmp_path / "cgroup") is None


def test_what_the_run_queue_delay_has_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "throttled_ns", lambda: 7)
    monkeypatch.setattr(kept, "RUN_DELAY_TOLD", True)
    assert kept.throttled_beyond_run_delay_ns() == 0
    monkeypatch.setattr(kept, "RUN_DELAY_TOLD", False)
    assert kept.throttled_beyond_run_delay_ns() == 7
