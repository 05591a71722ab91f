"""What the host gives: cores under affinity and cgroup quota, memory under a cgroup limit."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hybridrt.measure import host
from hybridrt.measure.host import (
    UNKNOWN_MEMORY,
    cpu_quota,
    gil_enabled,
    read_memory,
    throttled_ns,
    usable_cores,
)

from .test_kernel import gil_only, waits_for_the_gil

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
        pytest.param({"cpu.max": "100000 100000", **v1("50000", "100000")}, 0.5, id="the least of v2 and v1"),
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
    [
        ("max", 8),
        ("1000", 0.01),
        ("50000", 0.5),
        ("100000", 1),
        ("110000", 1.1),
        ("400000", 4),
        ("1600000", 8),
    ],
)
def test_usable_cores_are_the_smaller_of_affinity_and_quota(tmp_path: Path, quota: str, cores: float) -> None:
    assert usable_cores(cgroup(tmp_path, {"cpu.max": f"{quota} 100000"})) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity cannot be set here")
def test_affinity_counts_not_the_cores_of_the_host(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity cannot be set here")
def test_cores_are_those_of_the_process_if_a_thread_asks_that_is_bound_to_one(tmp_path: Path) -> None:
    """As the governor may be, which the first thread starts that submits a call."""
    found: list[int] = []

    def bound() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        found.append(usable_cores(tmp_path))

    thread = threading.Thread(target=bound)
    thread.start()
    thread.join()
    assert found == [usable_cores(tmp_path)]


def test_without_affinity_the_cores_of_the_host_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path) == 1


def test_where_a_sandbox_refuses_to_tell_the_affinity_the_cores_of_the_host_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "process_cpu_count", refuse, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    assert usable_cores(tmp_path) == 6


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
            {"memory.max": "1048576", "memory/memory.limit_in_bytes": "524288"},
            1 << 19,
            id="the least of v2 and v1",
        ),
        pytest.param({"memory.max": "lots"}, None, id="no number"),
    ],
)
def test_the_memory_limit_is_the_groups_or_the_memory_of_the_host(
    tmp_path: Path, files: Files, limit: int | None
) -> None:
    expected = psutil.virtual_memory().total if limit is None else limit
    assert read_memory(cgroups=cgroup(tmp_path, files)).limit == expected


def test_this_host_has_a_core_and_memory() -> None:
    assert 0 < usable_cores() <= (os.cpu_count() or 1)
    assert read_memory().limit > 0


# ---------------------------------------------------------------------- groups within groups


def test_the_least_quota_and_limit_of_the_group_and_those_above_it_count(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/pod/container/service\n")
    tree = cgroup(
        tmp_path / "tree",
        {
            "pod/cpu.max": "200000 100000",
            "pod/memory.max": "1048576",
            "pod/container/cpu.max": "150000 100000",
            "pod/container/memory.max": "max",
            "pod/container/service/cpu.max": "max 100000",
            "pod/container/service/memory.max": "2097152",
            "pod/other/cpu.max": "50000 100000",
            "pod/other/memory.max": "4096",
        },
    )
    assert cpu_quota(tree, own) == 1.5
    assert read_memory(cgroups=tree, own=own).limit == 1 << 20


def test_of_version_1_each_controller_has_groups_of_its_own(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/jobs/one\n3:cpu,cpuacct:/jobs\n1:name=systemd:/jobs/two\n0::/\n")
    tree = cgroup(
        tmp_path / "tree",
        {
            "cpu/jobs/cpu.cfs_quota_us": "50000",
            "cpu/jobs/cpu.cfs_period_us": "100000",
            "cpu/jobs/one/cpu.cfs_quota_us": "1000",
            "cpu/jobs/one/cpu.cfs_period_us": "100000",
            "memory/jobs/one/memory.limit_in_bytes": "2097152",
            "memory/jobs/two/memory.limit_in_bytes": "4096",
        },
    )
    assert cpu_quota(tree, own) == 0.5
    assert read_memory(cgroups=tree, own=own).limit == 2 << 20


def test_in_a_container_that_sees_only_its_own_groups_the_top_of_them_counts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    tree = cgroup(tmp_path / "tree", {"cpu.max": "50000 100000", "memory.max": "1048576"})
    for path in ("/", "/docker/4f5e", "/../../system.slice"):
        own.write_text(f"0::{path}\n")
        assert cpu_quota(tree, own) == 0.5
        assert read_memory(cgroups=tree, own=own).limit == 1 << 20


def test_the_memory_in_use_is_that_of_the_group_nearest_to_its_limit(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/pod/container\n")
    tree = cgroup(
        tmp_path / "tree",
        {
            "pod/memory.max": "4194304",
            "pod/memory.current": "4100000",
            "pod/container/memory.max": "1048576",
            "pod/container/memory.current": "4096",
        },
    )
    memory = read_memory(cgroups=tree, own=own)
    assert memory.limit == 1 << 20
    assert memory.share == pytest.approx(4100000 / 4194304)


def test_what_is_read_anew_is_what_the_files_say_by_then(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/service\n")
    tree = cgroup(tmp_path / "tree", {"service/cpu.max": "max 100000", "service/memory.max": "max"})
    assert cpu_quota(tree, own) is None
    cgroup(tree, {"service/cpu.max": "100000 100000", "service/memory.max": "1048576"})
    assert cpu_quota(tree, own) == 1.0
    assert read_memory(cgroups=tree, own=own).limit == 1 << 20


def test_a_list_of_groups_that_makes_no_sense_leaves_the_top(tmp_path: Path) -> None:
    own = tmp_path / "own"
    tree = cgroup(tmp_path / "tree", {"cpu.max": "50000 100000"})
    for text in ("", "nonsense\n", "0:\n\n"):
        own.write_text(text)
        assert cpu_quota(tree, own) == 0.5
    own.unlink()
    assert cpu_quota(tree, own) == 0.5


# ---------------------------------------------------------------------- a budget of one's own


def test_a_budget_counts_what_the_process_and_its_children_have(tmp_path: Path) -> None:
    resident = psutil.Process().memory_info().rss
    memory = read_memory(2 * resident, cgroups=tmp_path)
    assert memory.limit == 2 * resident
    assert memory.share is not None
    assert 0.3 < memory.share < 1.0
    twice = read_memory(2 * resident, [os.getpid()], cgroups=tmp_path)
    assert twice.share is not None
    assert twice.share > 1.5 * memory.share


def test_a_child_that_is_gone_has_no_memory(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read_memory(1 << 40, [child.pid], cgroups=tmp_path).share is not None


@gil_only
def test_limits_and_use_are_read_with_the_gil_kept(tmp_path: Path) -> None:
    """Beside eight threads that compute, getting it back for each file took 0.6 s."""
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    tree = cgroup(tmp_path / "tree", {"a/b/cpu.max": "50000 100000", "a/cpu.stat": "throttled_usec 7\n"})
    cgroup(tree, {f"a/b/{name}": text for name, text in HALF_USED.items()})

    def read(_: str) -> bytes:
        assert usable_cores(tree, own) == 0.5
        assert throttled_ns(tree, own) == 7000
        assert list(host._group_memory(tree, own)) == [(1 << 20, 1 << 19)]
        assert host._resident((os.getpid(),))
        return b""

    assert waits_for_the_gil(read, 0.05)


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
    assert 0.0 < (read_memory(cgroups=tmp_path).share or 0.0) < 1.0
    cgroup(tmp_path, HALF_USED)
    for available, share in ((0.9, 0.5), (0.1, 0.9)):
        memory = type("Memory", (), {"total": 1 << 30, "available": available * (1 << 30)})
        monkeypatch.setattr(psutil, "virtual_memory", memory)
        assert read_memory(cgroups=tmp_path).share == pytest.approx(share)


@pytest.mark.usefixtures("unread")
def test_a_memory_in_use_that_cannot_be_read_is_absent_and_that_of_the_group_counts_alone(
    tmp_path: Path,
) -> None:
    assert read_memory(cgroups=tmp_path).share is None
    assert read_memory(cgroups=cgroup(tmp_path, HALF_USED)).share == 0.5


def test_without_psutil_as_in_a_sub_interpreter_the_memory_in_use_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "HAS_PSUTIL", False)
    assert read_memory(cgroups=tmp_path).share is None


@pytest.mark.usefixtures("unread")
@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="needs POSIX")
def test_where_no_file_tells_the_memory_of_the_host_the_kernel_does(tmp_path: Path) -> None:
    expected = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert read_memory(cgroups=tmp_path).limit == expected
    assert read_memory(cgroups=cgroup(tmp_path, HALF_USED)).limit == 1 << 20


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
    assert read_memory(cgroups=tmp_path).limit == UNKNOWN_MEMORY
    monkeypatch.delattr(os, "sysconf")
    assert read_memory(cgroups=tmp_path).limit == UNKNOWN_MEMORY


# ---------------------------------------------------------------------- the GIL


def test_the_gil_is_there_unless_the_interpreter_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert gil_enabled() is False
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert gil_enabled() is True
    monkeypatch.delattr(sys, "_is_gil_enabled")
    assert host.gil_enabled() is True
