"""What the host gives: cores under affinity and cgroup quota, memory under a cgroup limit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from hybridrt.measure import host
from hybridrt.measure.host import cpu_quota, gil_enabled, memory_limit, usable_cores

Files = dict[str, str]


def cgroup(root: Path, files: Files) -> Path:
    """Write the files of a control group below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1(quota: str, period: str) -> Files:
    return {"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": period}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        pytest.param({}, None, id="no control group"),
        pytest.param({"cpu.max": "max 100000\n"}, None, id="v2 without a quota"),
        pytest.param({"cpu.max": "50000 100000\n"}, 0.5, id="v2, half a core"),
        pytest.param({"cpu.max": "250000 100000\n"}, 2.5, id="v2, two and a half"),
        pytest.param({"cpu.max": ""}, None, id="v2, empty"),
        pytest.param({"cpu.max": "many 100000"}, None, id="v2, no number"),
        pytest.param({"cpu.max": "50000 0"}, None, id="v2, no period"),
        pytest.param(v1("-1\n", "100000\n"), None, id="v1 without a quota"),
        pytest.param(v1("150000\n", "100000\n"), 1.5, id="v1, one and a half"),
        pytest.param({"cpu/cpu.cfs_quota_us": "150000\n"}, None, id="v1 without a period"),
        pytest.param({"cpu.max": "100000 100000", **v1("50000", "100000")}, 1.0, id="v2 before v1"),
    ],
)
def test_the_cpu_quota_is_read_in_cores_or_absent(tmp_path: Path, files: Files, quota: float | None) -> None:
    assert cpu_quota(cgroup(tmp_path, files)) == quota


def test_a_quota_that_is_no_text_is_absent(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_bytes(b"\xff\xfe\x00")
    assert cpu_quota(tmp_path) is None


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that lets this process use eight cores."""
    if hasattr(os, "process_cpu_count"):
        monkeypatch.setattr(os, "process_cpu_count", lambda: 8)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max", 8), ("1000", 1), ("50000", 1), ("100000", 1), ("110000", 2), ("400000", 4), ("1600000", 8)],
)
def test_usable_cores_are_the_smaller_of_affinity_and_quota_rounded_up(
    tmp_path: Path, quota: str, cores: int
) -> None:
    assert usable_cores(cgroup(tmp_path, {"cpu.max": f"{quota} 100000"})) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity cannot be set here")
def test_affinity_counts_not_the_cores_of_the_host(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_without_affinity_the_cores_of_the_host_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path) == 1


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        pytest.param({}, None, id="no control group"),
        pytest.param({"memory.max": "max\n"}, None, id="v2 without a limit"),
        pytest.param({"memory.max": "1048576\n"}, 1 << 20, id="v2"),
        pytest.param({"memory/memory.limit_in_bytes": "2097152\n"}, 2 << 20, id="v1"),
        pytest.param(
            {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, id="v1 without a limit"
        ),
        pytest.param(
            {"memory.max": "1048576", "memory/memory.limit_in_bytes": "5"}, 1 << 20, id="v2 before v1"
        ),
        pytest.param({"memory.max": "lots"}, None, id="no number"),
    ],
)
def test_the_memory_limit_is_the_groups_or_the_memory_of_the_host(
    tmp_path: Path, files: Files, limit: int | None
) -> None:
    expected = psutil.virtual_memory().total if limit is None else limit
    assert memory_limit(cgroup(tmp_path, files)) == expected


def test_this_host_has_a_core_and_memory() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert memory_limit() > 0


def test_the_gil_is_there_unless_the_interpreter_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert gil_enabled() is False
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert gil_enabled() is True
    monkeypatch.delattr(sys, "_is_gil_enabled")
    assert host.gil_enabled() is True
