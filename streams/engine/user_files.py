"""The source files of user modules, and their fingerprints."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_LENGTH = 12
_MARKS = ("pyvenv.cfg", "conda-meta")
"""What an environment of venv, or one of conda, has in its folder."""


def source_files(modules: Sequence[str], python_path: Sequence[Path]) -> dict[str, Path]:
    """Return the Python files of modules by their names in an archive, such as `shop/data.py`.

    A package includes the modules below it. `python_path` is searched first. Nothing is imported,
    and a module that is not found, or that is not Python source, has no files.
    """
    # Else a file that was made a moment ago might not be found.
    importlib.invalidate_caches()
    search = [*map(str, python_path), *sys.path]
    return {name: file for module in modules for name, file in _files(module, search)}


def code_fingerprints(modules: Sequence[str], python_path: Sequence[Path]) -> dict[str, str]:
    """Return a short hash of the source of each module; that of a package has all that is below.

    Equal code in other folders has the same one. Modules without Python source are left out, and a
    file that cannot be read counts as an empty one.
    """
    files = {module: source_files([module], python_path) for module in modules}
    return {module: _fingerprint(found) for module, found in files.items() if found}


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, except in hidden folders and virtual environments."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name != "__pycache__"
            and not any((here / name / mark).exists() for mark in _MARKS)
        )
        yield from (here / name for name in sorted(names) if name.endswith(".py"))


def _fingerprint(files: Mapping[str, Path]) -> str:
    found = hashlib.sha256()
    for name, file in sorted(files.items()):
        content = hashlib.sha256(_content(file)).hexdigest()
        found.update(f"{name}\0{content}\n".encode())
    return found.hexdigest()[:_LENGTH]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _files(module: str, search: Sequence[str]) -> Iterator[tuple[str, Path]]:
    spec = _spec(module, search)
    if spec is None:
        return
    path = module.replace(".", "/")
    for location in spec.submodule_search_locations or ():
        for file in python_files(Path(location)):
            yield f"{path}/{file.relative_to(location).as_posix()}", file
    if spec.submodule_search_locations is None and (spec.origin or "").endswith(".py"):
        yield f"{path}.py", Path(spec.origin or "")


def _spec(module: str, search: Sequence[str]) -> ModuleSpec | None:
    """Find a module without importing the packages that it is in."""
    spec: ModuleSpec | None = None
    places: Sequence[str] | None = search
    for part in module.split("."):
        if places is None:
            return None
        # By its whole name, a package without __init__.py would need its parent to be imported.
        spec = PathFinder.find_spec(part, list(places))
        if spec is None:
            return None
        found = spec.submodule_search_locations
        places = None if found is None else list(found)
    return spec
