"""Copies the user's code, so that what was checked is what runs, whatever is saved meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from common.engine_code import ENGINE_FOLDER, ENGINE_PACKAGES
from streams.engine.user_files import own_folders


def snapshot(python_path: Sequence[Path], into: Path) -> tuple[Path, ...]:
    """Copy the Python files below folders, and link all else; return the folders to import from.

    `into` is deleted first. Files next to the code are found as before: `Path(__file__).parent`
    has links to them. Folders without Python files, hidden ones and virtual environments are linked
    as a whole; this engine is left out. A folder of `python_path` that is not there stays as it is.
    Raises `OSError`, for example if the disk is full.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(0o700, parents=True)
    copies = []
    for number, folder in enumerate(python_path):
        copy = into / str(number)
        if folder.is_dir():
            copy.mkdir()
            _mirror(folder, copy, into)
        copies.append(copy if folder.is_dir() else folder)
    return tuple(copies)


def _mirror(root: Path, copy: Path, into: Path) -> None:
    left_out = {into, *(ENGINE_FOLDER / name for name in ENGINE_PACKAGES)}
    with_code = {root}
    found: list[tuple[Path, list[str], list[str]]] = []
    for place, folders, files in os.walk(root):
        here = Path(place)
        if any(name.endswith(".py") for name in files):
            with_code |= {here, *(each for each in here.parents if root in each.parents)}
        found.append((here, list(folders), files))
        folders[:] = [name for name in own_folders(here, folders) if here / name not in left_out]
    for here, folders, files in found:
        if here not in with_code:
            continue
        there = copy / here.relative_to(root)
        there.mkdir(exist_ok=True)
        for name in files:
            if name.endswith(".py"):
                shutil.copy2(here / name, there / name)
            else:
                (there / name).symlink_to(here / name)
        for name in folders:
            if name != "__pycache__" and here / name not in with_code | left_out:
                (there / name).symlink_to(here / name)
