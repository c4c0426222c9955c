"""Which code is this engine's own."""

from __future__ import annotations

import os
from pathlib import Path

ENGINE = "kafka_pipeline"
"""The name by which the engine is imported."""
ENGINE_FOLDER = Path(__file__).parents[2]
"""The folder of that package. In a checkout, it has links to the folders of its packages."""

_INSIDE = f"{ENGINE_FOLDER}{os.sep}"


def is_engine_file(path: str) -> bool:
    """Whether a file of source code belongs to this engine."""
    return path.startswith(_INSIDE)


def module_shown(kind: type) -> str:
    """Return the module of a class as users know it: for the engine's own, `kafka_pipeline`.

    So what is written to topics names no module that may move.
    """
    return ENGINE if kind.__module__.startswith(f"{ENGINE}.") else kind.__module__


def folders_with_engine_code() -> frozenset[Path]:
    """Return the folder of the engine, and those that it has links to."""
    inside = (each.resolve() for each in ENGINE_FOLDER.iterdir() if each.is_dir())
    return frozenset([ENGINE_FOLDER, *inside])
