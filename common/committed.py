"""A group's committed position in a partition: an offset and figures of what is before it."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote

P = TypeVar("P", bound=Hashable)

OTHER_REASONS = "other"
"""The reason under which records are counted once there are too many reasons, or too long ones."""

_UNKNOWN_TIME = -1
_VERSION = 2
_WITH_EVENT_TIME = 3
_WITH_DROPPED = 4
_LONGEST_REASON = 40
"""How many characters a reason may have, encoded. All metadata must fit into the brokers'
`offset.metadata.max.bytes` (4096 by default)."""
_NUMBER = "([0-9]{1,18})"
_TIME = "(-1|[0-9]{1,18})"
_COUNTS = f"{_TIME}:{_NUMBER}:{_NUMBER}"
_DROPPED = "((?:[A-Za-z0-9_.~% -]{1,120}=[0-9]{1,18},?){1,100})"
_PROGRESS = f"{_NUMBER}:{_TIME}:{_TIME}:([01]):((?:[0-9a-f]{{8}}=[0-9]{{1,18}},?){{0,100}})"
_METADATA = re.compile(
    rf"(?:1:{_NUMBER}|{_VERSION}:{_COUNTS}|{_WITH_EVENT_TIME}:{_COUNTS}:{_PROGRESS}"
    rf"|{_WITH_DROPPED}:{_COUNTS}:{_DROPPED}(?::{_PROGRESS})?)\Z",
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
    with it what the task has ever done to records, over all partitions: how many it skipped, wrote
    to its dead letters, and left out, the latter as pairs of a reason and a count. `progress` is
    there if somebody needs event time.
    """

    offset: int
    time_ms: int = _UNKNOWN_TIME
    skipped: int = 0
    dead_letters: int = 0
    progress: InputProgress | None = None
    dropped: tuple[tuple[str, int], ...] = ()

    @property
    def metadata(self) -> str:
        """The rest as brokers keep it: `2:1732280000000:0:12`, where 2 is the version; may be "".

        With the progress, the version is 3, and `:907:1732280000000:1732280000000:0:9f0a1b2c=60001`
        follows. If records were left out, it is 4, and `:expired=7,null key=2` comes after the
        first counts. The formats are a contract: a change of them needs a new version.
        """
        if self == Committed(self.offset):
            return ""
        version = _VERSION if self.progress is None else _WITH_EVENT_TIME
        parts: list[object] = [self.time_ms, self.skipped, self.dead_letters]
        if self.dropped:
            version = _WITH_DROPPED
            parts.append(_dropped_text(self.dropped))
        if self.progress is not None:
            end, time_ms, sources_ms, is_idle, found = self.progress
            holds = ",".join(f"{mark}={hold_ms}" for mark, hold_ms in found)
            parts += [end, time_ms, sources_ms, int(is_idle), holds]
        return ":".join(map(str, [version, *parts]))

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
        if not metadata or _METADATA.match(metadata) is None:
            return cls(offset)
        version, time_ms, *rest = metadata.split(":")
        skipped, dead_letters = [int(count) for count in [*rest, "0", "0"][:2]]
        dropped, progress = tuple[tuple[str, int], ...](), None
        del rest[:2]
        if int(version) == _WITH_DROPPED:
            dropped = tuple((unquote(reason), count) for reason, count in _pairs(rest.pop(0)))
        if rest:
            *numbers, holds = rest
            end, event_ms, sources_ms, is_idle = map(int, numbers)
            progress = InputProgress(end, event_ms, sources_ms, bool(is_idle), _pairs(holds))
        return cls(offset, int(time_ms), skipped, dead_letters, progress, dropped)


def _pairs(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (each.split("=") for each in text.split(",") if each)
    return tuple((name, int(number)) for name, number in pairs)


def with_short_reasons(dropped: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return counts by reason as offsets keep them: too long reasons are `OTHER_REASONS`."""
    counts = Counter[str]()
    for reason, count in dropped:
        counts[reason if 0 < len(_encoded(reason)) <= _LONGEST_REASON else OTHER_REASONS] += count
    return counts


def _dropped_text(dropped: Iterable[tuple[str, int]]) -> str:
    counts = sorted(with_short_reasons(dropped).items())
    return ",".join(f"{_encoded(reason)}={count}" for reason, count in counts)


def _encoded(reason: str) -> str:
    return quote(reason, safe=" ", errors="replace")


def topic_mark(topic: str) -> str:
    """Return a short name of a topic, for metadata: its CRC-32, as 8 hexadecimal digits."""
    return f"{zlib.crc32(topic.encode()):08x}"


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
