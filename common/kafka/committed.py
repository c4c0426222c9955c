"""A group's committed position in a partition: an offset and figures of what is before it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

_UNKNOWN_TIME = -1
_VERSION = 2
_NUMBER = "[0-9]{1,18}"
_METADATA = re.compile(
    rf"{_VERSION}:(-1|{_NUMBER}):({_NUMBER}):({_NUMBER})\Z|1:({_NUMBER})\Z", re.ASCII
)


class Committed(NamedTuple):
    """A committed offset with the partition time: the largest timestamp of the records before it.

    The time is -1 if it is unknown. Brokers keep it as the metadata of the offset (KAFKA-7994), and
    with it how many records the task has ever skipped and written to its dead letters, over all
    partitions.
    """

    offset: int
    time_ms: int = _UNKNOWN_TIME
    skipped: int = 0
    dead_letters: int = 0

    @property
    def metadata(self) -> str:
        """The rest as brokers keep it: `2:1732280000000:0:12`, where 2 is the version; may be "".

        The format is a contract: a change of it needs a new version.
        """
        if self == Committed(self.offset):
            return ""
        return f"{_VERSION}:{self.time_ms}:{self.skipped}:{self.dead_letters}"

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Committed:
        """Return the position that brokers keep, also in version 1, which had only the time.

        Metadata that others wrote is an unknown time and counts of 0.
        """
        found = _METADATA.match(metadata or "")
        return cls(offset, *map(int, filter(None, found.groups()))) if found else cls(offset)


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
