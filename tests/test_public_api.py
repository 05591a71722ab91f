"""The public surface: a name added to it or taken from it is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import hybridrt

NAMES = [
    "AdaptiveThreadPoolExecutor",
    "CallEvent",
    "Decision",
    "Explanation",
    "FunctionStatistics",
    "GilClass",
    "GilEvidence",
    "Hooks",
    "HybridrtError",
    "Kind",
    "LaneNestingError",
    "LimiterStatistics",
    "LoopDelay",
    "NotPortableError",
    "OffloadTimeoutError",
    "Offloaded",
    "PlacementReason",
    "PlacementStatistics",
    "QueueFullError",
    "Reason",
    "RunningCall",
    "Runtime",
    "RuntimeClosedError",
    "ShieldReason",
    "ShieldStatistics",
    "SizePlacement",
    "Statistics",
    "Trial",
    "TrialRow",
    "WorkerLostError",
    "blocking",
    "check_cancelled",
    "explain",
    "install",
    "offload",
    "run",
    "trial",
]


def test_the_package_offers_just_these_names() -> None:
    assert hybridrt.__all__ == NAMES
    assert all(hasattr(hybridrt, name) for name in NAMES)


def test_every_public_name_has_a_docstring() -> None:
    assert not [name for name in NAMES if not getattr(hybridrt, name).__doc__]


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files(hybridrt).joinpath("py.typed").is_file()


def test_importing_starts_no_thread_and_leaves_heavy_or_optional_packages_alone() -> None:
    program = (
        "import sys, threading, hybridrt\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "heavy = {'aiohttp', 'anyio', 'numpy', 'onnxruntime', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
