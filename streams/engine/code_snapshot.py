"""Copies user code, so that later edits do not change the code that was checked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from kafka_pipeline.common.code.engine_code import folders_with_engine_code
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.engine.user_files import python_files


def snapshot(python_path: Sequence[Path], into: Path) -> tuple[Path, ...]:
    """Copy the Python files below folders, and link all else; return the folders to import from.

    `into` is deleted first. Files next to the code are found as before: `Path(__file__).parent`
    has links to them. Folders without Python files, hidden ones and virtual environments are linked
    as a whole; this engine is left out. A folder of `python_path` that is not there stays as it is.
    Raises `UnavailableError`, for example if the disk is full.
    """
    copies = {folder: into / str(at) for at, folder in enumerate(python_path) if folder.is_dir()}
    try:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(0o700, parents=True)
        for folder, copy in copies.items():
            # By its own path, by which folders that are left out are found in it.
            _mirror(folder.resolve(), copy, into)
    except OSError as error:
        raise UnavailableError(f"the code cannot be copied into {into}: {error}") from error
    return tuple(copies.get(folder, folder) for folder in python_path)


def _mirror(root: Path, copy: Path, into: Path) -> None:
    left_out = {into, *folders_with_engine_code()}
    code = [file for file in python_files(root) if left_out.isdisjoint(file.parents)]
    with_code = {root, *(each for file in code for each in file.parents if root in each.parents)}
    for folder in sorted(with_code):  # each after the one that it is in
        there = copy / folder.relative_to(root)
        there.mkdir(exist_ok=True)
        for each in folder.iterdir():
            if each in with_code or each in left_out or each.name == "__pycache__":
                continue
            if each.suffix == ".py" and each.is_file():
                shutil.copy2(each, there / each.name)
            else:
                (there / each.name).symlink_to(each)
