"""The architecture: which part may import which, and how long a file may be.

Data flows measure -> observe -> decide -> act -> offer to users; imports point the other way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "hybridrt"
ORDER = (
    "compat",
    "errors",
    "arguments",
    "placements",
    "decisions",
    "values",
    "statistics",
    "clock",
    "measure",
    "remembered",
    "observe",
    "control",
    "pool",
    "governor",
    "executor",
    "isolates",
    "loop",
    "options",
    "callables",
    "deadline",
    "offloaded",
    "streams",
    "batches",
    "offload",
    "pipeline",
    "explanation",
    "warming",
    "agents",
    "drain",
    "integrations.anyio",
    "background",
    "runtime",
    "runner",
    "trial",
    "integrations",
    "cli",
    "testing",
    "__init__",
)
"""The parts of the package; each may import itself and those before it."""
IMPURE = frozenset(
    {
        "anyio",
        "asyncio",
        "concurrent",
        "contextvars",
        "datetime",
        "hybridrt.clock",
        "hybridrt.measure",
        "multiprocessing",
        "os",
        "psutil",
        "queue",
        "random",
        "secrets",
        "signal",
        "socket",
        "subprocess",
        "sys",
        "threading",
        "time",
        "uvloop",
    }
)
"""What the control law must not know: clocks, threads, loops, the machine, chance."""
LINES_MAX = 600


def sources(*folders: str) -> list[Path]:
    """Return the Python files below the folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    """Return the dotted name of a file; a package keeps its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(source: str, module: str) -> Iterator[str]:
    """Yield the dotted name of everything that a module's source imports, wherever it stands.

    `from a import b` gives `a.b`, since `b` may be a module; a relative import gives its full name.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _base(node: ast.ImportFrom, module: str) -> str:
    outer = module.split(".")[: -node.level] if node.level else []
    return ".".join([*outer, *([node.module] if node.module else [])])


def part_of(name: str) -> str:
    """Return the part that a dotted name belongs to; names of the package itself are `__init__`'s."""
    words = name.split(".")[1:3]
    both, first = ".".join(words), words[0] if words else "__init__"
    return both if both in ORDER else first if first in ORDER else "__init__"


def upward(source: str, module: str) -> list[str]:
    """Return what a module imports although it stands after the module's own part."""
    rank = ORDER.index(part_of(module))
    own = [name for name in imports(source, module) if name.split(".")[0] == PACKAGE]
    return [f"{module} imports {name}" for name in own if ORDER.index(part_of(name)) > rank]


def impure(source: str, module: str) -> list[str]:
    """Return what a module of the control law imports although the law must not know it."""
    return [
        f"{module} imports {name}"
        for name in imports(source, module)
        if any(name == banned or name.startswith(f"{banned}.") for banned in IMPURE)
    ]


def test_a_part_imports_only_itself_and_what_stands_before_it() -> None:
    found = [line for path in sources(PACKAGE) for line in upward(path.read_text(), module_of(path))]
    assert not found, "\n".join(found)


def test_every_file_of_the_package_belongs_to_a_named_part() -> None:
    strangers = {module_of(path).split(".")[1] for path in sources(PACKAGE)} - {*ORDER, "__main__"}
    assert not strangers, f"give {sorted(strangers)} a place in ORDER"


def test_the_control_law_knows_no_clock_no_thread_no_loop_and_no_chance() -> None:
    law = sources(f"{PACKAGE}/control")
    assert law
    found = [line for path in law for line in impure(path.read_text(), module_of(path))]
    assert not found, "\n".join(found)


def test_no_file_passes_600_lines() -> None:
    files = sources(PACKAGE, "tests", "examples", "benchmarks")
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    long = {name: lines for name, lines in lengths.items() if lines > LINES_MAX}
    assert not long


def needs(files: list[Path]) -> dict[str, set[str]]:
    """Return which modules each module imports, those included that only its types need."""
    modules = {module_of(path).removesuffix(".__init__"): path for path in files}
    return {
        module: {
            name
            for found in imports(path.read_text(), module_of(path))
            for name in (found, found.rpartition(".")[0])
            if name in modules and name not in (module, PACKAGE)
        }
        for module, path in modules.items()
    }


def test_every_file_can_be_understood_from_those_below_it_types_included() -> None:
    TopologicalSorter(needs(sources(PACKAGE))).prepare()  # raises where imports form a circle


def test_a_circle_of_which_one_half_is_for_types_alone_is_found(tmp_path: Path) -> None:
    home = tmp_path / PACKAGE
    home.mkdir()
    (home / "low.py").write_text("if TYPE_CHECKING:\n    from hybridrt.high import High")
    (home / "high.py").write_text("from .low import Low")
    graph = {
        path.stem: {
            name.split(".")[1] for name in imports(path.read_text(), f"{PACKAGE}.{path.stem}") if "." in name
        }
        for path in home.iterdir()
    }
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_an_import_that_points_up_is_found_in_every_spelling() -> None:
    for line in (
        "import hybridrt.runtime",
        "from hybridrt.runtime import Runtime",
        "from hybridrt import runtime",
        "from hybridrt import run",
        "from ..runtime import Runtime",
        "from .. import runtime",
        "def late():\n    import hybridrt.runtime",
        "if TYPE_CHECKING:\n    from hybridrt.runtime import Runtime",
    ):
        assert upward(line, "hybridrt.pool.worker"), line


def test_an_import_of_the_same_or_an_earlier_part_is_allowed() -> None:
    for line in (
        "from hybridrt import errors",
        "from hybridrt.pool.permits import Permits",
        "from .permits import Permits",
        "from ..errors import HybridrtError",
        "import threading",
    ):
        assert not upward(line, "hybridrt.pool.worker"), line


def test_a_clock_in_the_control_law_is_found_in_every_spelling() -> None:
    for line in (
        "import time",
        "from time import monotonic",
        "from hybridrt import clock",
        "from ..clock import Clock",
    ):
        assert impure(line, "hybridrt.control.law"), line
    assert not impure("import math", "hybridrt.control.law")
