"""The archive that executors get: the engine and the user's modules, as Python source in a zip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from kafka_pipeline.common.code.engine_code import ENGINE, ENGINE_FOLDER
from kafka_pipeline.streams.engine.user_files import python_files

_PACKAGES = ("common", "streams", "taskmanager")
"""Those of the engine that a PipelineThread imports."""


def write_archive(file: Path, python_path: Sequence[Path] = (), modules: Sequence[str] = ()) -> int:
    """Write the modules that PipelineThreads import; return the number of files.

    These are the engine, all Python files below the folders of `python_path`, and the top-level
    packages of `modules`, wherever this process finds them. If two files have the same name, the
    first in this order counts. Packages with compiled modules are left out: Python cannot import
    those from a zip, so they must be installed where they are used, like all other libraries. Files
    that are not Python are left out too.
    """
    written: set[str] = set()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for source, name in _files(python_path, modules):
            if name not in written:
                written.add(name)
                # Without its modification time: a zip cannot store one before 1980.
                archive.writestr(name, source.read_bytes())
    return len(written)


def _files(python_path: Sequence[Path], modules: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for file in sorted(ENGINE_FOLDER.glob("*.py")):
        yield file, f"{ENGINE}/{file.name}"
    for package in _PACKAGES:
        yield from _tree(ENGINE_FOLDER / package, ENGINE_FOLDER.parent)
    for folder in python_path:
        yield from _tree(folder, folder)
    for module in dict.fromkeys(module.split(".")[0] for module in modules):
        yield from _module(module)


def _module(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a top-level module or package; nothing for one that is built in."""
    spec = find_spec(name)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin), f"{name}.py"
        return
    for location in map(Path, spec.submodule_search_locations):
        compiled = (path for suffix in EXTENSION_SUFFIXES for path in location.rglob(f"*{suffix}"))
        if not any(compiled):
            yield from _tree(location, location.parent)


def _tree(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    for file in python_files(folder):
        yield file, file.relative_to(root).as_posix()
