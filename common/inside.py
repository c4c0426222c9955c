"""Paths made of names from outside, held inside their folder."""

from __future__ import annotations

from pathlib import Path

from kafka_pipeline.common.names import REFUSED_NAMES


def inside(folder: Path, name: str) -> Path:
    """Return the path of this name directly in a folder.

    Raises ValueError for a name that leads anywhere else, by itself or by a symbolic link there.
    The folder itself may be a link. Names are checked where they are read; this check holds even
    if an earlier one is missing.
    """
    if Path(name).name != name or name in ("", *REFUSED_NAMES) or "\0" in name:
        raise ValueError(f"{name!r} is not the name of anything in {folder}")
    path = folder / name
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
    except (RuntimeError, OSError) as error:  # links in a circle
        raise ValueError(f"{path} leads nowhere: {error}") from error
    if not is_inside:
        raise ValueError(f"{path} is a link that leads out of {folder}: remove it")
    return path
