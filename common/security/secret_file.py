"""Reads files that hold one secret, such as those that Kubernetes mounts; writes private ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 65_536
"""The largest file that is read: enough for a chain of certificates."""
_OF_OWNER = 0o600


class SecretFileError(ValueError):
    """A file cannot be read as a secret; `str(error)` says why, without its content."""


def read_secret_file(path: Path, *, follows_link: bool = True) -> str:
    r"""Return the content of a UTF-8 file, without a single `\n` or `\r\n` at its end.

    If `follows_link` is false, a symbolic link in the place of the file is refused. Pipes and
    devices, which could block, are refused at once. Raises SecretFileError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows_link else os.O_NOFOLLOW)
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SecretFileError("it is a device or a pipe, not a file")
            content = file.read(MOST_BYTES + 1)
    except SecretFileError:
        raise
    except FileNotFoundError:
        raise SecretFileError("there is no such file") from None
    except IsADirectoryError:
        raise SecretFileError("it is a directory") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SecretFileError(f"it cannot be read: {why}") from None
    if len(content) > MOST_BYTES:
        raise SecretFileError(f"it has more than {MOST_BYTES} bytes, too many for a secret")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise SecretFileError(f"it is not UTF-8 (byte {error.start + 1})") from None
    return without_line_end(text)


def without_line_end(text: str) -> str:
    r"""Return text without a single `\n` or `\r\n` at its end, which `echo` adds to a secret."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def write_private(file: Path, text: str) -> None:
    """Replace a file by one that only its owner can read, at no moment anybody else."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(part, flags, _OF_OWNER), "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(part, file)
