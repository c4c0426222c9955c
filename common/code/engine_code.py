"""Tells the engine's own code from other code."""

from __future__ import annotations

import os
from pathlib import Path

ENGINE = "kafka_pipeline"
"""The name by which the engine is imported."""
ENGINE_FOLDER = Path(__file__).parents[2]
"""The folder of that package. In a checkout, it contains links to the packages' folders."""

_INSIDE = f"{ENGINE_FOLDER}{os.sep}"


def is_engine_file(path: str) -> bool:
    """Whether a source file belongs to this engine."""
    return path.startswith(_INSIDE)


def module_shown(kind: type) -> str:
    """Return the module of a class as users know it: for the engine's own, `kafka_pipeline`.

    Topics then never hold the name of a module that may move.
    """
    return ENGINE if kind.__module__.startswith(f"{ENGINE}.") else kind.__module__


def folders_with_engine_code() -> frozenset[Path]:
    """Return the folder of the engine, and the folders that it links to."""
    inside = (each.resolve() for each in ENGINE_FOLDER.iterdir() if each.is_dir())
    return frozenset([ENGINE_FOLDER, *inside])
