"""The key that the daemons and tools of a job share, to sign control records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LEAST_KEY_BYTES = 32
"""The minimum length of a key in a key file: 128 bits if it is hexadecimal."""

_MOST_KEYS = 2


@dataclass(frozen=True, slots=True)
class ControlKey:
    """The keys of a job: the first one signs, and each one is accepted."""

    accepted: tuple[bytes, ...] = field(repr=False)


def read_control_key(file: Path) -> ControlKey:
    """Return the keys in a file: the key on the first line, perhaps a former one on the second.

    Empty lines do not count. Raises OSError if the file cannot be read, and ValueError, whose
    message says what to do, if a line is not a key.
    """
    lines = [line.strip() for line in file.read_bytes().splitlines() if line.strip()]
    hint = "Make one with `openssl rand -hex 32`"
    if not lines:
        raise ValueError(f"it is empty. {hint}")
    if len(lines) > _MOST_KEYS:
        raise ValueError(
            f"it has {len(lines)} lines: the key is on the first one, and a former key that is "
            "still accepted may be on the second"
        )
    for number, line in enumerate(lines, 1):
        if len(line) < LEAST_KEY_BYTES:
            raise ValueError(
                f"line {number} has {len(line)} characters, and a key has {LEAST_KEY_BYTES} or "
                f"more. {hint}"
            )
    return ControlKey(tuple(lines))
