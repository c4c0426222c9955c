"""The files of the pages, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file to be served."""

    content: bytes
    type: str


def read_assets() -> Mapping[str, Asset]:
    """Return all files of the pages, by their paths."""
    return dict(_read(files("kafka_pipeline.console").joinpath("static"), ""))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _read(entry, f"{prefix}{entry.name}/")
        else:
            type_ = _TYPES[entry.name.rpartition(".")[2]]
            found.append((f"{prefix}{entry.name}", Asset(entry.read_bytes(), type_)))
    return found
