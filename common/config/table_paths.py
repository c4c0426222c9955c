"""The locations of file tables in a normal form, so that paths can be compared."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_HOST = "file"
# Hadoop's rule for schemes: s3a://bucket/t has one, rates/2026-01-31T10:00.csv has none.
_SCHEME = re.compile(r"([^/]*?):(.*)", re.DOTALL)
_SCHEME_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_AUTHORITY = re.compile(r"[A-Za-z0-9._:@-]*")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
_WILDCARD = re.compile(r"[{}\[\]*?]")
_SPECIAL = re.compile(r"[\\{}\[\]*?]")
_SETS = re.compile(r"\[[^\[\]{}]+\]")
_UPWARDS = re.compile(r"[{,]\.\.[,}]")
_CHOICES = re.compile(r"\{[^{}\[\]]*\}")


class PathError(ValueError):
    """A path cannot be normalized; `str(error)` says why, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Location:
    """A file or a folder, on this host (scheme `file`) or on another file system.

    `folder` is the part before the first name with a wildcard, or the whole path: absolute, without
    "." and "..", and on this host with symbolic links resolved. `pattern` has the remaining names.
    """

    scheme: str
    authority: str
    folder: tuple[str, ...]
    pattern: tuple[str, ...] = ()

    @property
    def is_on_host(self) -> bool:
        """Whether this is on the host's file system."""
        return self.scheme == _HOST

    @property
    def path(self) -> Path:
        """The folder as a path of this host."""
        return Path("/", *self.folder)

    @property
    def uri(self) -> str:
        """The location as a path for Hadoop, which does not decode "%20"."""
        folder = [_SPECIAL.sub(r"\\\g<0>", name) for name in self.folder]
        return f"{self.scheme}://{self.authority}/{'/'.join([*folder, *self.pattern])}"

    def below(self, other: Location) -> tuple[str, ...] | None:
        """Return the names that lead here from another location; `None` if this is not below it."""
        names, size = (*self.folder, *self.pattern), len(other.folder)
        is_below = (self.scheme, self.authority) == (other.scheme, other.authority)
        return names[size:] if is_below and self.folder[:size] == other.folder else None


def location_of(path: str, folder: Path) -> Location:
    """Return the location of a table's path; a relative one is relative to `folder`.

    `~` is the user's home, and a path without a scheme is on this host. Raises `PathError` for a
    path that Hadoop and this function could interpret differently.
    """
    if _UNSAFE.search(path):
        raise PathError("has a backslash or a control character")
    found = _SCHEME.fullmatch(path)
    if found is None:
        user, _, rest = path.partition("/")
        home = os.path.expanduser(user)
        return _on_host(str(folder), path) if home == user else _on_host(home, rest)
    scheme, rest = found[1].lower(), found[2]
    if not _SCHEME_NAME.fullmatch(scheme) or not rest.startswith("/"):
        raise PathError(
            "has a colon before its first slash, but is not a URI such as s3a://bucket/folder"
        )
    authority = ""
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        rest = f"/{rest}"
    if scheme == _HOST:
        if authority:
            raise PathError("names a host: a file of this host is file:///folder/file")
        return _on_host("/", rest)
    if not _AUTHORITY.fullmatch(authority):
        raise PathError(f'has "{authority}" in the place of a bucket or a host')
    return _remote(scheme, authority, rest)


def _on_host(base: str, path: str) -> Location:
    """Return the location of a path relative to `base`, which has no wildcards."""
    names = path.split("/")
    count = _count_before_wildcard(names)
    pattern = tuple(name for name in names[count:] if name not in ("", "."))
    if ".." in pattern:
        raise PathError('has ".." after a wildcard')
    try:
        # First by text, as Hadoop normalizes paths, then with links resolved.
        start = "/" if path.startswith("/") else os.path.realpath(base)
        fixed = os.path.realpath(
            os.path.normpath(os.path.join(start, *filter(None, names[:count])))
        )
    except (OSError, ValueError) as error:
        raise PathError(f"cannot be followed: {error}") from None
    return Location(_HOST, "", tuple(filter(None, fixed.split("/"))), pattern)


def _remote(scheme: str, authority: str, path: str) -> Location:
    names = [name for name in path.split("/") if name]
    for name in names:
        plain = unquote(unquote(name))
        if plain in (".", "..") or "/" in plain:
            raise PathError(f'has "{name}" among its names: write it without')
    count = _count_before_wildcard(names)
    return Location(scheme, authority, tuple(names[:count]), tuple(names[count:]))


def _count_before_wildcard(names: Sequence[str]) -> int:
    wild = [number for number, name in enumerate(names) if _is_wild(name)]
    return wild[0] if wild else len(names)


def _is_wild(name: str) -> bool:
    """Whether a name has wildcards. Raises `PathError` for choices of several names.

    Hadoop expands choices such as `{a,b}` before it splits a path at slashes.
    """
    if not _WILDCARD.search(name):
        return False
    rest, before = _SETS.sub("", name), ""
    while rest != before:
        rest, before = _CHOICES.sub("", rest), rest
    if _UPWARDS.search(name):
        raise PathError('has ".." among its choices')
    if re.search(r"[{}\[\]]", rest):
        raise PathError(f'has "{name}": brackets and braces must be closed before the next slash')
    return True
