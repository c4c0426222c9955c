"""A group's committed position in a partition: an offset and figures of what is before it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

_UNKNOWN_TIME = -1
_VERSION = 2
_WITH_EVENT_TIME = 3
_NO_COUNTS = ("0", "0")
"""What version 1 does not have."""
_NUMBER = "([0-9]{1,18})"
_TIME = "(-1|[0-9]{1,18})"
_METADATA = re.compile(
    rf"(?:1:{_NUMBER}|{_VERSION}:{_TIME}:{_NUMBER}:{_NUMBER}"
    rf"|{_WITH_EVENT_TIME}:{_TIME}:{_NUMBER}:{_NUMBER}:{_NUMBER}:{_TIME}:([01]):{_NUMBER})\Z",
    re.ASCII,
)


class InputProgress(NamedTuple):
    """How far a task was with an input in event time, for the tasks that read its results.

    Every record that it takes in after the offset has a clock of `time_ms` or later, -1 if that is
    unknown. If `is_idle`, those that write the input had nothing to come. `end` is the offset up to
    which nothing was there to read. What the task sends may be `hold_ms` of event time older than
    what it takes in.
    """

    end: int
    time_ms: int
    is_idle: bool = False
    hold_ms: int = 0


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

        With the progress, it is `3:1732280000000:0:12:907:1732280000000:0:60001`. The formats are a
        contract: a change of them needs a new version.
        """
        if self == Committed(self.offset):
            return ""
        counts = f"{self.time_ms}:{self.skipped}:{self.dead_letters}"
        if self.progress is None:
            return f"{_VERSION}:{counts}"
        end, time_ms, is_idle, hold_ms = self.progress
        return f"{_WITH_EVENT_TIME}:{counts}:{end}:{time_ms}:{int(is_idle)}:{hold_ms}"

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
        time_ms, skipped, dead_letters, *event = [
            int(each) for each in (*found.groups(), *_NO_COUNTS) if each is not None
        ][: 3 if found[5] is None else 7]
        progress = None
        if event:
            end, event_ms, is_idle, hold_ms = event
            progress = InputProgress(end, event_ms, bool(is_idle), hold_ms)
        return cls(offset, time_ms, skipped, dead_letters, progress)


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
