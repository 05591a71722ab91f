"""What the package asks for when it is installed, and what the README tells of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

from .test_layers import PACKAGE, ROOT, imports, module_of, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()


def name_of(requirement: str) -> str:
    """Return the distribution that a requirement names; of ours each is imported by that name."""
    found = re.match(r"[A-Za-z0-9_]+", requirement)
    assert found
    return found[0]


def test_the_package_imports_whatever_it_asks_for() -> None:
    imported = {
        name.split(".")[0] for path in sources(PACKAGE) for name in imports(path.read_text(), module_of(path))
    }
    assert {name_of(requirement) for requirement in PROJECT["dependencies"]} <= imported


def test_the_readme_tells_how_to_install_it_and_names_each_extra_that_a_program_may_want() -> None:
    assert "\npip install hybridrt\n" in README
    wanted = set(PROJECT["optional-dependencies"]) - {
        "gateway",
        "rag",
        "frameworks",
    }  # for examples and tests
    assert all(f"`{extra}`" in README for extra in wanted)
    assert set(re.findall(r"hybridrt\[(\w+)\]", README)) <= set(PROJECT["optional-dependencies"])


def test_an_older_python_is_told_which_one_is_needed() -> None:
    """As from a checkout: an installer has looked."""
    ast.parse((ROOT / PACKAGE / "__init__.py").read_text(), feature_version=(3, 10))
    script = f"import sys; sys.version_info = (3, 10, 0); import {PACKAGE}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert re.search(r"ImportError: hybridrt needs Python 3\.11 or newer, this is 3\.", ended.stderr)
