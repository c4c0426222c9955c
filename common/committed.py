"""A group's committed position in a partition: an offset, and figures of the records before it."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote

P = TypeVar("P", bound=Hashable)

OTHER_REASONS = "other"
"""Counts the records of all further reasons, once there are too many reasons or a reason is too
long."""

_UNKNOWN_TIME = -1
NO_EPOCH = -1
_VERSION = 2
_WITH_EVENT_TIME = 3
_WITH_DROPPED = 4
_BEING_RESET = "reset "
"""Precedes the metadata of positions whose state is being deleted. Earlier versions of the engine
take that for an unknown time."""
_LONGEST_REASON = 40
"""The most characters of a reason, percent-encoded. All metadata must fit into the brokers'
`offset.metadata.max.bytes` (4096 by default)."""
_NUMBER = "([0-9]{1,18})"
_TIME = "(-1|[0-9]{1,18})"
_COUNTS = f"{_TIME}:{_NUMBER}:{_NUMBER}"
_DROPPED = "((?:[A-Za-z0-9_.~% -]{1,120}=[0-9]{1,18},?){1,100})"
_PROGRESS = f"{_NUMBER}:{_TIME}:{_TIME}:([01]):((?:[0-9a-f]{{8}}=[0-9]{{1,18}},?){{0,100}})"
_METADATA = re.compile(
    rf"(?:{_VERSION}:{_COUNTS}|{_WITH_EVENT_TIME}:{_COUNTS}:{_PROGRESS}"
    rf"|{_WITH_DROPPED}:{_COUNTS}:{_DROPPED}(?::{_PROGRESS})?)\Z",
    re.ASCII,
)


class InputProgress(NamedTuple):
    """A task's event time in one input, for the tasks that read its results.

    Every record from the offset on has a clock of `time_ms` or later, -1 if unknown. `sources_ms`
    is the same without the delays of operators upstream that hold records back. `is_idle` means
    that the writers of the input expected no records. `end` is the offset up to which the input was
    empty. `holds` maps internal topics that the task writes (by `topic_mark`) to a delay in ms:
    results may be that much older, in event time, than the input. Topics without a delay are left
    out.
    """

    end: int
    time_ms: int = _UNKNOWN_TIME
    sources_ms: int = _UNKNOWN_TIME
    is_idle: bool = False
    holds: tuple[tuple[str, int], ...] = ()


class Committed(NamedTuple):
    """A committed offset with the partition time: the largest timestamp of the records before it.

    `time_ms` is -1 if unknown. Brokers store it as the metadata of the offset (KAFKA-7994),
    together with the task's total counts over all partitions: records skipped, sent to dead
    letters, and dropped (pairs of a reason and a count). `progress` is there if a processor needs
    event time. `is_being_reset` says that a tool deletes the task's state, and sets another offset
    then. `leader_epoch` is stored apart from the metadata: the largest epoch of a leader among the
    records that were read of the partition (KIP-320), -1 if unknown.
    """

    offset: int
    time_ms: int = _UNKNOWN_TIME
    skipped: int = 0
    dead_letters: int = 0
    progress: InputProgress | None = None
    dropped: tuple[tuple[str, int], ...] = ()
    is_being_reset: bool = False
    leader_epoch: int = NO_EPOCH

    @property
    def metadata(self) -> str:
        """All but the offset, as brokers store it: `2:1732280000000:0:12`, or "" for the defaults.

        The first number is the version. With a progress, it is 3, and
        `:907:1732280000000:1732280000000:0:9f0a1b2c=60001` follows. With dropped records, it is 4,
        and `:expired=7,null key=2` follows the first counts. The formats are a contract: a change
        needs a new version. While state is being reset, `reset ` is in front.
        """
        if self.is_being_reset:
            return f"{_BEING_RESET}{self._replace(is_being_reset=False).metadata}"
        if self == Committed(self.offset, leader_epoch=self.leader_epoch):
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

        Its progress in event time and its epoch are unknown until the task commits.
        """
        return self._replace(offset=offset, progress=None, leader_epoch=NO_EPOCH)

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Committed:
        """Return a position from brokers.

        Metadata that another program wrote counts as an unknown time and counts of 0.
        """
        if metadata and metadata.startswith(_BEING_RESET):
            before = cls.read(offset, metadata.removeprefix(_BEING_RESET))
            return before._replace(is_being_reset=True)
        if not metadata or _METADATA.match(metadata) is None:
            return cls(offset)
        version, time_ms, skipped, dead_letters, *rest = metadata.split(":")
        dropped, progress = tuple[tuple[str, int], ...](), None
        if int(version) == _WITH_DROPPED:
            dropped = tuple((unquote(reason), count) for reason, count in _pairs(rest.pop(0)))
        if rest:
            *numbers, holds = rest
            end, event_ms, sources_ms, is_idle = map(int, numbers)
            progress = InputProgress(end, event_ms, sources_ms, bool(is_idle), _pairs(holds))
        counts = int(skipped), int(dead_letters)
        return cls(offset, int(time_ms), *counts, progress, dropped)


def _pairs(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (each.split("=") for each in text.split(",") if each)
    return tuple((name, int(number)) for name, number in pairs)


def with_short_reasons(dropped: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return counts by reason as offsets store them: long reasons become `OTHER_REASONS`."""
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
    """Return a short name of a topic, for metadata: its CRC-32 as 8 hexadecimal digits."""
    return f"{zlib.crc32(topic.encode()):08x}"


def offsets_of(positions: Mapping[P, Committed]) -> dict[P, int]:
    """Return the offsets alone."""
    return {partition: at.offset for partition, at in positions.items()}
