"""The rule for names that become part of a topic, a path or a transactional id, and their paths."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

MAX_NAME_LENGTH = 249
"""The longest topic name that Kafka takes, in characters."""

NAME = f"[a-zA-Z0-9._-]{{1,{MAX_NAME_LENGTH}}}"
"""A regular expression for a name, for use in larger ones; it also matches `REFUSED_NAMES`."""

NAME_PATTERN = rf"^(?!\.{{1,2}}$){NAME}$"
"""The names that `name_problem` accepts, for JSON Schema."""

REFUSED_NAMES = (".", "..")

_REFUSED_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")


def name_problem(name: str) -> str | None:
    """Return why Kafka refuses this topic name, as the end of a sentence, or None if it is fine.

    A name that Kafka accepts is also a valid folder name, and never leads to another folder.
    """
    if not name:
        return "is empty"
    if name in REFUSED_NAMES:
        return "is a name that Kafka refuses"
    refused = _REFUSED_CHARACTER.search(name)
    if refused:
        return (
            f'has the character "{refused[0]}", which Kafka refuses in topic names: '
            'use letters, digits, ".", "_" and "-"'
        )
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, Kafka takes at most {MAX_NAME_LENGTH}"
    return None


def resolved(path: Path) -> Path:
    """Return the path without links, whether or not there is something.

    Raises RuntimeError or OSError for links in a circle. From Python 3.13 on, `Path.resolve` leaves
    these as they are.
    """
    found = path.resolve()
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        found.stat()
    return found


def inside(folder: Path, name: str) -> Path:
    """Return the path of this name directly in a folder.

    Raises ValueError for a name that leads anywhere else, by itself or through a symbolic link. The
    folder itself may be a link. Names are checked where they are read; this check is a second
    safeguard.
    """
    if Path(name).name != name or name in ("", *REFUSED_NAMES) or "\0" in name:
        raise ValueError(f"{name!r} is not the name of anything in {folder}")
    path = folder / name
    try:
        is_inside = resolved(path).is_relative_to(folder.resolve())
    except (RuntimeError, OSError) as error:  # links in a circle
        raise ValueError(f"{path} leads nowhere: {error}") from error
    if not is_inside:
        raise ValueError(f"{path} is a link that leads out of {folder}: remove it")
    return path
