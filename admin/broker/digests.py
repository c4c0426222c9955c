"""The SHA-256 digests of jars, in the format of `sha256sum`: the digest, two spaces, the file."""

from __future__ import annotations

import hashlib
from pathlib import Path

_COMMENT = "#"


def check_jars(folder: Path, digests: Path) -> str:
    """Return how the files of a folder differ from a list; an empty string if they do not.

    Raises OSError if a file cannot be read.
    """
    expected = read_digests(digests)
    found = digests_of(folder)
    wrong = [
        *(
            f"{name} has the digest {found[name]} instead of {expected[name]}"
            for name in sorted(expected.keys() & found.keys())
            if found[name] != expected[name]
        ),
        *(f"{name} is not on the list" for name in sorted(found.keys() - expected.keys())),
        *(f"{name} is missing" for name in sorted(expected.keys() - found.keys())),
    ]
    return ", ".join(wrong)


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a folder and the folders in it, by its path there."""
    digests = {}
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            digests[file.relative_to(folder).as_posix()] = hashlib.file_digest(
                stream, "sha256"
            ).hexdigest()
    return digests


def read_digests(file: Path) -> dict[str, str]:
    """Return the digest of each file that a list names."""
    lines = file.read_text("utf-8").splitlines()
    pairs = (line.split("  ", 1) for line in lines if not line.startswith(_COMMENT))
    return {name: digest for digest, name in pairs}


def write_digests(file: Path, digests: dict[str, str], comment: str) -> None:
    """Write a list, with a line of comment first."""
    lines = (f"{digests[name]}  {name}\n" for name in sorted(digests))
    file.write_text("".join((f"{_COMMENT} {comment}\n", *lines)), "utf-8")
