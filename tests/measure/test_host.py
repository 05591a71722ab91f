"""What the host gives: cores under affinity and cgroup quota, memory under a cgroup limit."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hybridrt.measure import host
from hybridrt.measure.host import (
    UNKNOWN_MEMORY,
    cpu_quota,
    gil_enabled,
    memory_limit,
    memory_share,
    usable_cores,
)

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


# ---------------------------------------------------------------------- what cannot be read

HALF_USED = {"memory.current": "786432\n", "memory.max": "1048576\n", "memory.stat": "inactive_file 262144\n"}
"""Three quarters of a MiB, of which a quarter is page cache."""


def fail(error: Exception) -> Callable[..., object]:
    def read(*_: object) -> object:
        raise error

    return read


@pytest.fixture(
    params=[
        pytest.param(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), id="no file to be had"),
        pytest.param(FileNotFoundError("/proc/meminfo"), id="no such file"),
        pytest.param(KeyError(b"MemTotal:"), id="a file without it"),
    ]
)
def unread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose memory cannot be read."""
    monkeypatch.setattr(psutil, "virtual_memory", fail(request.param))


def test_the_memory_in_use_is_that_of_the_scarcer_of_host_and_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.0 < (memory_share(tmp_path) or 0.0) < 1.0
    cgroup(tmp_path, HALF_USED)
    for available, share in ((0.9, 0.5), (0.1, 0.9)):
        memory = type("Memory", (), {"total": 1 << 30, "available": available * (1 << 30)})
        monkeypatch.setattr(psutil, "virtual_memory", memory)
        assert memory_share(tmp_path) == pytest.approx(share)


@pytest.mark.usefixtures("unread")
def test_a_memory_in_use_that_cannot_be_read_is_absent_and_that_of_the_group_counts_alone(
    tmp_path: Path,
) -> None:
    assert memory_share(tmp_path) is None
    assert memory_share(cgroup(tmp_path, HALF_USED)) == 0.5


def test_without_psutil_as_in_a_sub_interpreter_the_memory_in_use_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "HAS_PSUTIL", False)
    assert memory_share(tmp_path) is None


@pytest.mark.usefixtures("unread")
@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="needs POSIX")
def test_where_no_file_tells_the_memory_of_the_host_the_kernel_does(tmp_path: Path) -> None:
    expected = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit(tmp_path) == expected
    assert memory_limit(cgroup(tmp_path, HALF_USED)) == 1 << 20


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    "answer",
    [fail(OSError(errno.EINVAL, "invalid")), fail(ValueError("unrecognized")), lambda _: -1],
    ids=["an error", "no such name", "none"],
)
def test_where_nobody_tells_the_memory_of_the_host_the_limit_is_a_number_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., object]
) -> None:
    def ask(name: str) -> object:
        return 4096 if name == "SC_PAGE_SIZE" else answer(name)

    monkeypatch.setattr(os, "sysconf", ask, raising=False)
    assert memory_limit(tmp_path) == UNKNOWN_MEMORY
    monkeypatch.delattr(os, "sysconf")
    assert memory_limit(tmp_path) == UNKNOWN_MEMORY


# ---------------------------------------------------------------------- the GIL


def test_the_gil_is_there_unless_the_interpreter_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert gil_enabled() is False
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert gil_enabled() is True
    monkeypatch.delattr(sys, "_is_gil_enabled")
    assert host.gil_enabled() is True
