"""The examples in docstrings, in the README and in docs/ do what they say, and links lead somewhere."""

from __future__ import annotations

import doctest
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hybridrt
from hybridrt.options import Options

README = Path(__file__).parent.parent / "README.md"
MODULES = [module.name for module in pkgutil.walk_packages(hybridrt.__path__, "hybridrt.")]
PAGES = (README, *sorted((README.parent / "docs").glob("*.md")))
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_modules_docstrings_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


_NOT_OURS = ("-W", "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning")
"""langchain_core calls it, on 3.14."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_the_docs_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    path = os.pathsep.join((str(README.parent), str(README.parent / "examples")))
    subprocess.run(
        [sys.executable, "-W", "error", *_NOT_OURS, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        timeout=50,
        capture_output=True,
    )


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_link_in_the_docs_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert not [link for link in links if not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    """Return True if a relative link leads to a file that is there and, in Markdown, to a heading in it."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if "://" in link or not heading:
        return "://" in link or target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}


def test_the_files_and_functions_that_the_architecture_names_are_there() -> None:
    page = (README.parent / "docs/architecture.md").read_text()
    rows = [row.split("|")[2] for row in page.splitlines() if row.startswith("| ") and ".py`" in row]
    assert len(rows) == 10
    for row in rows:
        names = re.findall(r"`([\w/.]+)`", row)
        files = [README.parent / "hybridrt" / name for name in names if name.endswith(".py")]
        text = "".join(file.read_text() for file in files)
        assert not [name for name in names if not name.endswith(".py") and f"def {name}(" not in text]


def test_the_readme_gives_the_command_that_runs_every_test() -> None:
    assert ".venv/bin/uv run --all-extras pytest" in README.read_text()


OPTIONS = (README.parent / "docs/options.md").read_text()


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(Options.__slots__, id="offload"),
        pytest.param([*inspect.signature(hybridrt.Runtime).parameters], id="Runtime"),
        pytest.param(["loop", "debug"], id="run"),
        pytest.param(hybridrt.Hooks.__slots__, id="Hooks"),
        pytest.param([name for name in hybridrt.__all__ if name.endswith("Error")], id="errors"),
    ],
)
def test_the_page_of_options_names_every_option_and_every_error(names: list[str]) -> None:
    assert not [name for name in names if f"`{name}`" not in OPTIONS]


def test_the_page_of_options_gives_the_defaults_of_a_runtime() -> None:
    table = OPTIONS.partition("## Options of a runtime")[2].partition("## Background")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE))
    of = inspect.signature(hybridrt.Runtime).parameters
    assert {name: eval(text.strip("`").replace(",", "_")) for name, text in told.items() if name in of} == {
        name: parameter.default for name, parameter in of.items()
    }


def test_the_page_of_options_names_every_variable_of_the_environment_that_the_code_reads() -> None:
    code = "".join(path.read_text() for path in (README.parent / "hybridrt").rglob("*.py"))
    read = set(re.findall(r"environ\.get\(\s*\"(HYBRIDRT_\w+)", code))
    assert len(read) == 8
    assert read == set(re.findall(r"^\| `(HYBRIDRT_\w+)", OPTIONS, re.MULTILINE))
