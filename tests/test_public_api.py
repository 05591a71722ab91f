"""The public surface: a name added to it or taken from it is a decision, not an accident."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from importlib import resources

import pytest

import hybridrt

NAMES = [
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


def test_the_package_offers_just_these_names() -> None:
    assert hybridrt.__all__ == NAMES
    assert all(hasattr(hybridrt, name) for name in NAMES)


def test_every_public_name_has_a_docstring() -> None:
    assert not [name for name in NAMES if not getattr(hybridrt, name).__doc__]


PAGE_LINES = 190
"""What is called one page: the text of the package, and the list of its modules that pydoc adds."""


def test_help_of_the_package_is_one_page() -> None:
    page = pydoc.plain(pydoc.render_doc(hybridrt)).splitlines()
    assert len(page) <= PAGE_LINES
    assert not [line for line in page if len(line) > 120]


def test_the_command_of_pydoc_shows_the_same_page() -> None:
    command = [sys.executable, "-m", "pydoc", "hybridrt"]
    page = subprocess.run(command, check=True, timeout=30, capture_output=True, text=True).stdout
    assert len(page.splitlines()) <= PAGE_LINES


def test_every_public_name_stands_on_the_page_of_the_package() -> None:
    assert hybridrt.__doc__ is not None
    assert set(NAMES) <= set(re.findall(r"\w+", hybridrt.__doc__))


def test_the_page_of_the_package_lists_every_error_to_catch() -> None:
    assert hybridrt.__doc__ is not None
    listed = hybridrt.__doc__.partition("To catch:")[2].partition("\n\n")[0]
    assert {name for name in NAMES if name.endswith("Error")} == set(re.findall(r"`(\w+)`", listed))


def test_completion_sees_every_public_name() -> None:
    assert set(NAMES) <= set(dir(hybridrt))


@pytest.mark.parametrize("name", ["Runtime", "offload", "Statistics", "OffloadTimeoutError"])
def test_every_name_has_a_page_of_its_own(name: str) -> None:
    assert getattr(hybridrt, name).__doc__.splitlines()[0] in pydoc.render_doc(getattr(hybridrt, name))


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files(hybridrt).joinpath("py.typed").is_file()


def test_importing_starts_no_thread_and_leaves_heavy_or_optional_packages_alone() -> None:
    program = (
        "import sys, threading, hybridrt\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "heavy = {'aiohttp', 'anyio', 'numpy', 'onnxruntime', 'openai', 'pydantic', 'tokenizers'}\n"
        "heavy |= {'importlib.resources', 'tempfile'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.parametrize(
    ("statement", "package"),
    [
        ("from hybridrt import tool", "pydantic"),
        ("from hybridrt.agents import Done", "pydantic"),
        ("from hybridrt import Agent", "openai"),
        ("from hybridrt.agents import Agent", "openai"),
    ],
)
def test_what_needs_the_extra_agents_says_how_to_install_it(statement: str, package: str) -> None:
    if package != "pydantic":
        pytest.importorskip("pydantic")
    program = (
        f"import sys\nsys.modules[{package!r}] = None\n"
        f"try:\n    {statement}\nexcept ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, check=True, timeout=30, capture_output=True, text=True).stdout
    assert told == (
        f"hybridrt.agents expects the packages of the extra `agents`, got no {package}; "
        "run `pip install 'hybridrt[agents]'`\n"
    )
