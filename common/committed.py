"""A group's committed position in a partition: an offset and figures of what is before it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

_UNKNOWN_TIME = -1
_VERSION = 2
_WITH_EVENT_TIME = 3
_NUMBER = "([0-9]{1,18})"
_TIME = "(-1|[0-9]{1,18})"
_METADATA = re.compile(
    rf"(?:1:{_NUMBER}|{_VERSION}:{_TIME}:{_NUMBER}:{_NUMBER}"
    rf"|{_WITH_EVENT_TIME}:{_TIME}:{_NUMBER}:{_NUMBER}"
    rf":{_NUMBER}:{_TIME}:{_TIME}:([01]):((?:[0-9a-f]{{8}}=[0-9]{{1,18}},?){{0,100}}))\Z",
    re.ASCII,
)


class InputProgress(NamedTuple):
    """How far a task was with an input in event time, for the tasks that read its results.

    Every record that it takes in after the offset has a clock of `time_ms` or later, -1 if that is
    unknown. `sources_ms` is the same but for what is held back ahead of the input. If `is_idle`,
    those that write the input had nothing to come. `end` is the offset up to which nothing was
    there to read. `holds` says, for each internal topic that the task writes (`topic_mark`), by how
    much of event time in ms what it sends may be older than what it takes in, if that is possible.
    """

    end: int
    time_ms: int = _UNKNOWN_TIME
    sources_ms: int = _UNKNOWN_TIME
    is_idle: bool = False
    holds: tuple[tuple[str, int], ...] = ()


class Committed(NamedTuple):
    """A committed offset with the partition time: the largest timestamp of the records before it.

    The time is -1 if it is unknown. Brokers keep it as the metadata of the offset (KAFKA-7994), and
    with it how many records the task has ever skipped and written to its dead letters, over all
    partitions. `progress` is there if somebody needs event time.
    """

    offset: int
    time_ms: int = _UNKNOWN_TIME
    skipped: int = 0
    dead_letters: int = 0
    progress: InputProgress | None = None

    @property
    def metadata(self) -> str:
        """The rest as brokers keep it: `2:1732280000000:0:12`, where 2 is the version; may be "".

        With the progress, the version is 3, and `:907:1732280000000:1732280000000:0:9f0a1b2c=60001`
        follows. The formats are a contract: a change of them needs a new version.
        """
        if self == Committed(self.offset):
            return ""
        counts = f"{self.time_ms}:{self.skipped}:{self.dead_letters}"
        if self.progress is None:
            return f"{_VERSION}:{counts}"
        end, time_ms, sources_ms, is_idle, found = self.progress
        holds = ",".join(f"{mark}={hold_ms}" for mark, hold_ms in found)
        return f"{_WITH_EVENT_TIME}:{counts}:{end}:{time_ms}:{sources_ms}:{int(is_idle)}:{holds}"

    def moved(self, offset: int) -> Committed:
        """Return the position with another offset, perhaps in another topic.

        How far it is in event time is unknown, until the task commits.
        """
        return self._replace(offset=offset, progress=None)

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Committed:
        """Return the position that brokers keep, also in version 1, which had only the time.

        Metadata that others wrote is an unknown time and counts of 0.
        """
        found = _METADATA.match(metadata or "")
        if found is None:
            return cls(offset)
        *numbers, holds = found.groups()
        given = [int(each) for each in numbers if each is not None]
        time_ms, skipped, dead_letters = [*given, 0, 0][:3]
        if holds is None:
            return cls(offset, time_ms, skipped, dead_letters)
        end, event_ms, sources_ms, is_idle = given[3:]
        pairs = (each.split("=") for each in holds.split(",") if each)
        known = tuple((mark, int(hold_ms)) for mark, hold_ms in pairs)
        progress = InputProgress(end, event_ms, sources_ms, bool(is_idle), known)
        return cls(offset, time_ms, skipped, dead_letters, progress)


def topic_mark(topic: str) -> str:
    """Return a short name of a topic, for metadata: its CRC-32, as 8 hexadecimal digits."""
    return f"{zlib.crc32(topic.encode()):08x}"


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
