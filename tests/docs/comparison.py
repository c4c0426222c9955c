"""Reads the tables of the comparison with Kafka Streams that list the cases of the DSL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import prose

_CODE = re.compile(r"`([^`]+)`")
_METHOD = re.compile(r"[a-z]+[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its line from 1, and its cells by the headings of the table."""

    line: int
    cells: dict[str, str]

    def methods(self) -> list[str]:
        """Return the methods of Kafka Streams' tests that the row names."""
        found = _CODE.findall(self.cells["Kafka Streams"])
        return [name for name in found if _METHOD.fullmatch(name)]

    def named_tests(self, column: str) -> Iterator[tuple[str, str]]:
        """Yield the file and the name of each test, or table of cases, in a column.

        A file, in a code span, comes before the names that it holds. Raises `ValueError` if a name
        has no file before it.
        """
        file = ""
        for span in _CODE.findall(self.cells[column]):
            if span.endswith(".py"):
                file = span
            elif span.isidentifier():
                if not file:
                    raise ValueError(f"line {self.line}: no file is named before {span}")
                yield file, span


def rows(page: Path, heading: str) -> list[Row]:
    """Return the rows of the tables below a heading, up to the next one of its rank or above."""
    rank = len(heading) - len(heading.lstrip("#"))
    found: list[Row] = []
    inside, columns = False, list[str]()
    for number, line in prose(page):
        if line.startswith("#"):
            if line.split(" ")[0] <= "#" * rank:
                inside = line == heading
            columns = []
        elif inside and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not columns:
                columns = cells
            elif set(line) - set("|- "):
                found.append(Row(number, dict(zip(columns, cells, strict=True))))
    return found


def names_in(module: Path) -> set[str]:
    """Return the functions and the constants of a module."""
    found: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
