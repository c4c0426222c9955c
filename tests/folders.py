"""The folders that hold all code but the tests, and what is in files, each parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDERS = (
    "admin",
    "benchmarks",
    "common",
    "console",
    "deployment",
    "examples",
    "jobmanager",
    "operations",
    "streams",
    "taskmanager",
)


@dataclass(frozen=True)
class Import:
    """An `import` of one module, or a `from` with the names that it imports."""

    module: str
    names: tuple[str, ...]
    at_start: bool
    """Whether the file imports it as soon as it is imported."""
    for_types: bool
    """Whether it is in an `if TYPE_CHECKING`, which Python skips when it runs."""


@dataclass(frozen=True)
class Syntax:
    """What tests ask of a file's syntax tree.

    The trees of all files are two million objects. A process that kept them would go through all
    of them at each full garbage collection, until it ends.
    """

    docstring: str | None
    functions: tuple[tuple[str, int], ...]
    """The name of each function, and how many lines it has."""
    imports: tuple[Import, ...]


@cache
def syntax(path: Path) -> Syntax:
    """Parse a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = [*_statements(tree)]
    skipped = {
        id(inner) for node in statements if _is_for_types(node) for inner in _statements(node)
    }
    at_start = {id(node) for node in tree.body}
    return Syntax(
        ast.get_docstring(tree),
        tuple(
            (node.name, (node.end_lineno or 0) - node.lineno + 1)
            for node in statements
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        tuple(
            Import(module, names, id(node) in at_start, id(node) in skipped)
            for node in statements
            for module, names in _imported(node, path)
        ),
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, at any depth.

    Most of a tree are expressions, which hold none.
    """
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _imported(node: ast.AST, path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative import"
        assert node.module is not None
        yield node.module, tuple(alias.name for alias in node.names)


def _is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return True
    return False
