"""Who reads and writes the mutable state of another module: the figures by which the house is judged.

    python -m tests.state_access [FOLDER]

prints, for each class whose objects many modules share, how many files touch its data, how many write it, and
how many reads, writes and calls of `_locked` functions there are from outside the module that defines it.

Nothing is imported. A name stands for the class that the annotations of the package give it: where most say
`pool: Pool`, each `pool.queued` and `self.pool.queued` is an access to a `Pool`. Data are the attributes that
a class declares or sets on `self`, methods left out. A call like `pool.backlog.clear()` counts as a read.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "SHARED", "Access", "Package", "main"]

ROOT = Path(__file__).parent.parent
SHARED = ("Call", "Pool", "Worker", "Roster", "SharedBudget", "Profile", "Tally", "LoopBinding")
"""Classes whose objects many modules share."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Access(NamedTuple):
    """One use of a shared object's data outside of the module that defines its class."""

    owner: str
    attribute: str
    file: str
    line: int
    function: str
    writes: bool


class Package:
    """The classes of a package, and what its files do with their data.

    Args:
        folder: Of the package.
        shared: Classes to look at; what derives from one belongs to it.
    """

    def __init__(self, folder: Path, shared: tuple[str, ...] = SHARED) -> None:
        self.trees = {
            path.relative_to(folder).as_posix(): ast.parse(path.read_text())
            for path in sorted(folder.rglob("*.py"))
        }
        self._family = {name: name for name in shared}
        self.homes: dict[str, set[str]] = defaultdict(set)
        self.data: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, set[str]] = defaultdict(set)
        for _ in range(3):  # classes derive from classes that derive from others
            for file, tree in self.trees.items():
                self._read_classes(file, tree)
        for name, methods in self._methods.items():
            self.data[name] -= methods
        self.names = self._read_names()

    def _read_classes(self, file: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            owner = next((self._family[name] for name in (node.name, *bases) if name in self._family), None)
            if owner is not None:
                self._family[node.name] = owner
                self.homes[owner].add(file)
                self.data[owner] |= set(_data_of(node))
                self._methods[owner] |= {
                    each.name
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }

    def _read_names(self) -> dict[str, str]:
        """Return which shared class a name stands for, by what most annotations of it say."""
        said: dict[str, Counter[str]] = defaultdict(Counter)
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.arg) and node.annotation is not None:
                    said[node.arg][_class_of(node.annotation)] += 1
                elif isinstance(node, ast.AnnAssign):
                    target = node.target
                    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                    said[name][_class_of(node.annotation)] += 1
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    for each in node.targets:
                        made, name = node.value.func, getattr(each, "attr", getattr(each, "id", ""))
                        said[name][made.id if isinstance(made, ast.Name) else ""] += 1
        most = {name: classes.most_common(1)[0][0] for name, classes in said.items()}
        return {name: self._family[found] for name, found in most.items() if found in self._family}

    def accesses(self) -> Iterator[Access]:
        """Yield every use of a shared object's data outside of the files that define its class."""
        for file, tree in self.trees.items():
            for node, function in _attributes(tree, ""):
                value = node.value
                name = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
                owner = self.names.get(name)
                if owner is not None and node.attr in self.data[owner] and file not in self.homes[owner]:
                    writes = not isinstance(node.ctx, ast.Load)
                    yield Access(owner, node.attr, file, node.lineno, function, writes)

    def locked_calls(self) -> Counter[str]:
        """Return how often a function that wants the lock held is called outside of its own file, by file."""
        found: Counter[str] = Counter()
        for file, tree in self.trees.items():
            own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    found[file] += name.endswith("_locked") and name not in own
        return +found


def _attributes(node: ast.AST, function: str) -> Iterator[tuple[ast.Attribute, str]]:
    """Yield every `a.b` below a node, with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        within = child.name if isinstance(child, _FUNCTIONS) else function
        if isinstance(child, ast.Attribute):
            yield child, within
        yield from _attributes(child, within)


def _data_of(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        ):
            yield each.attr


def _class_of(annotation: ast.expr) -> str:
    """Return the class that an annotation names, that of an optional one too; "" for all others."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [_class_of(annotation.left), _class_of(annotation.right)]
        return next((side for side in sides if side), "")
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return annotation.id if isinstance(annotation, ast.Name) else ""


def main(folder: Path = ROOT / "hybridrt") -> None:
    """Print the table."""
    package = Package(folder)
    found = list(package.accesses())
    print(f"{'owner':14} {'files':>6} {'write':>6} {'reads':>6} {'writes':>6}")
    for owner in SHARED:
        _print_row(owner, [each for each in found if each.owner == owner])
    _print_row("all", found)
    print(f"calls of `_locked` functions of other files: {package.locked_calls().total()}")


def _print_row(name: str, found: list[Access]) -> None:
    files, writers = {each.file for each in found}, {each.file for each in found if each.writes}
    writes = sum(each.writes for each in found)
    print(f"{name:14} {len(files):6} {len(writers):6} {len(found) - writes:6} {writes:6}")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
