"""A group's committed position in a partition: an offset and the time of the records before it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

_UNKNOWN_TIME = -1
_VERSION = 1
_METADATA = re.compile(rf"{_VERSION}:([0-9]{{1,18}})\Z", re.ASCII)


class Committed(NamedTuple):
    """A committed offset with the partition time: the largest timestamp of the records before it.

    The time is -1 if it is unknown. Brokers keep it as the metadata of the offset (KAFKA-7994).
    """

    offset: int
    time_ms: int = _UNKNOWN_TIME

    @property
    def metadata(self) -> str:
        """The time as brokers keep it: `1:1732280000000`, where 1 is the version; empty if unknown.

        The format is a contract: a change of it needs a new version.
        """
        return "" if self.time_ms < 0 else f"{_VERSION}:{self.time_ms}"

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Committed:
        """Return the position that brokers keep. Metadata that others wrote is an unknown time."""
        found = _METADATA.match(metadata or "")
        return cls(offset, int(found[1]) if found else _UNKNOWN_TIME)


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
