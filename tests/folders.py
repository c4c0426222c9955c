"""The folders that hold all code but the tests, and their files, each parsed once."""

from __future__ import annotations

import ast
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


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file; tests only read it."""
    return ast.parse(path.read_text(encoding="utf-8"))
