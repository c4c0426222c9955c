"""Sizes and habits that no linter here checks; ruff looks after the rest."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.folders import FOLDERS

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70

PRODUCTION = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = [*sorted(ROOT.glob("*.sh")), *sorted(ROOT.glob("scripts/*.sh"))]

# Spelled in two halves, or this file would find itself.
PROMISE = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PRODUCTION, *TESTS], ids=name)
def test_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", [*PRODUCTION, *TESTS, *SCRIPTS], ids=name)
def test_nothing_is_left_for_later(path: Path) -> None:
    found = [
        f"{name(path)}:{number}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PROMISE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("path", [*PRODUCTION, *TESTS], ids=name)
def test_functions_fit_a_screen(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    too_long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert too_long == []


@pytest.mark.parametrize("path", PRODUCTION, ids=name)
def test_file_says_in_its_first_line_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring
    assert re.search(r"[.:!?]$", docstring.splitlines()[0])
