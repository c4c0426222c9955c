"""Sizes and habits that no linter here checks; ruff looks after the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.folders import FOLDERS, syntax

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 600
LONG_FILES = {"streams/dsl/stream.py": "`Stream`, the public class that users read as a whole"}
"""The files that may be longer, and why."""

MAX_FUNCTION_LINES = 70

PRODUCTION = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = [*sorted(ROOT.glob("*.sh")), *sorted(ROOT.glob("scripts/*.sh"))]

# Spelled in two halves, or this file would find itself.
PROMISE = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")))


def found(paths: Iterable[Path], faults: Callable[[Path], Iterable[str]]) -> list[str]:
    """Return what is wrong in any of the files, each with its file."""
    return [f"{path.relative_to(ROOT)}: {fault}" for path in paths for fault in faults(path)]


def too_long(path: Path) -> Iterator[str]:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > MAX_FILE_LINES and not _may_be_long(path):
        yield f"{lines} lines"


def _may_be_long(path: Path) -> bool:
    return path.is_relative_to(ROOT) and str(path.relative_to(ROOT)) in LONG_FILES


def promises(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if PROMISE.search(line):
            yield f"line {number}"


def long_functions(path: Path) -> Iterator[str]:
    for name, lines in syntax(path).functions:
        if lines > MAX_FUNCTION_LINES:
            yield f"{name}: {lines} lines"


def silent_beginning(path: Path) -> Iterator[str]:
    docstring = syntax(path).docstring
    if not docstring or not re.search(r"[.:!?]$", docstring.splitlines()[0]):
        yield "its first line is not a sentence"


def test_files_are_not_too_long() -> None:
    assert found([*PRODUCTION, *TESTS], too_long) == []


def test_files_that_may_be_long_are() -> None:
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in LONG_FILES}
    assert {file: lines for file, lines in lengths.items() if lines <= MAX_FILE_LINES} == {}


def test_nothing_is_left_for_later() -> None:
    assert found([*PRODUCTION, *TESTS, *SCRIPTS], promises) == []


def test_functions_fit_a_screen() -> None:
    assert found([*PRODUCTION, *TESTS], long_functions) == []


def test_files_say_in_their_first_line_what_they_are_for() -> None:
    assert found(PRODUCTION, silent_beginning) == []


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        (too_long, "a = 1\n" * (MAX_FILE_LINES + 1)),
        (promises, "# " + "TO" + "DO: later\n"),
        (long_functions, "def f():\n" + "    a = 1\n" * MAX_FUNCTION_LINES),
        (long_functions, "async def f():\n" + "    a = 1\n" * MAX_FUNCTION_LINES),
        (silent_beginning, "import os\n"),
        (silent_beginning, '"""no sentence"""\n'),
    ],
)
def test_what_is_wrong_is_found(
    faults: Callable[[Path], Iterable[str]], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    assert len(list(faults(path))) == 1
