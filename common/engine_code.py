"""Which code is this engine's own: its packages, and the folder that they are in."""

from __future__ import annotations

import os
from pathlib import Path

ENGINE_PACKAGES = (
    "admin",
    "common",
    "console",
    "jobmanager",
    "operations",
    "streams",
    "taskmanager",
)
ENGINE_FOLDER = Path(__file__).parents[1]
"""The folder that the engine's packages are in."""

_ENGINE = tuple(f"{ENGINE_FOLDER / package}{os.sep}" for package in ENGINE_PACKAGES)


def is_engine_file(path: str) -> bool:
    """Whether a file of source code belongs to this engine."""
    return path.startswith(_ENGINE)
