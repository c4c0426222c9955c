"""Which code is this engine's own."""

from __future__ import annotations

import os
from pathlib import Path

ENGINE = "kafka_pipeline"
"""The name by which the engine is imported."""
ENGINE_FOLDER = Path(__file__).parents[1]
"""The folder of that package. In a checkout, it has links to the folders of its packages."""


def is_engine_file(path: str) -> bool:
    """Whether a file of source code belongs to this engine."""
    return path.startswith(f"{ENGINE_FOLDER}{os.sep}")


def folders_with_engine_code() -> frozenset[Path]:
    """Return the folder of the engine, and those that it has links to."""
    inside = (each.resolve() for each in ENGINE_FOLDER.iterdir() if each.is_dir())
    return frozenset([ENGINE_FOLDER, *inside])
