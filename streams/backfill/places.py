"""The places that history comes from and results go to, as given on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kafka_pipeline.common.clock import ms_of
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.names import name_problem

_TOPIC = "topic:"
_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Files:
    """A Parquet or CSV file, or a folder of them."""

    path: Path


@dataclass(frozen=True, slots=True)
class TopicRange:
    """A topic from `start` to `end`, each an offset or a time; an empty one means no limit."""

    name: str
    start: str = ""
    end: str = ""


Where = Files | TopicRange


@dataclass(frozen=True, slots=True)
class _Limit:
    """An offset, or a time in milliseconds since 1970."""

    number: int
    is_time: bool

    @classmethod
    def of(cls, text: str) -> _Limit:
        """Read a limit; digits alone are an offset. Raises `ConfigError`."""
        if text.isdecimal():
            return cls(int(text), is_time=False)
        return cls(_milliseconds(text), is_time=True)


def read_sources(
    texts: Sequence[str], names: Mapping[str, str], is_topic: Callable[[str], bool]
) -> dict[str, Where]:
    """Return the places of each topic's records, from `NAME=history/`, `history/` and the like.

    `names` has the topics by the names of their sources, the default first. Other topics may be
    named if `is_topic` accepts them. Raises `ConfigError` for a topic that is given twice, and for
    a place without a name if `names` is empty.
    """
    found: dict[str, Where] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        named = match is not None and (match[1] in names or is_topic(match[1]))
        if match is not None and named:
            topic, where = names.get(match[1], match[1]), match[2]
        elif names:
            topic, where = next(iter(names.values())), text
        else:
            raise ConfigError(f"--from {text}: say for which topic, as NAME={text}")
        if topic in found:
            raise ConfigError(
                f"--from is given twice for topic {topic}: name the sources, as NAME=PATH; there "
                f"are {', '.join(names) or 'patterns alone'}"
            )
        found[topic] = read_source(where)
    return found


def read_source(text: str) -> Where:
    """Return a place such as `history.parquet` or `topic:orders@2026-01-01..2026-02-01`."""
    if not text.startswith(_TOPIC):
        return Files(_path("--from", text))
    name, _, limits = text.removeprefix(_TOPIC).partition("@")
    start, dots, end = limits.partition("..")
    if limits and not dots:
        raise ConfigError(f"{text}: write a range as @from..to, where either may be left out")
    first, last = (_Limit.of(limit) if limit else None for limit in (start, end))
    if first and last and first.is_time == last.is_time and first.number > last.number:
        raise ConfigError(f"{text}: the range ends before it starts: write the earlier limit first")
    return TopicRange(_checked(name), start, end)


def is_by_time(where: Where) -> bool:
    """Whether a place is a part of a topic that a time limits."""
    limits = (where.start, where.end) if isinstance(where, TopicRange) else ()
    return any(_Limit.of(limit).is_time for limit in limits if limit)


def read_target(text: str) -> Path | str:
    """Return a folder, or the name of a topic."""
    if text.startswith(_TOPIC):
        return _checked(text.removeprefix(_TOPIC))
    path = _path("--to", text)
    if not path.resolve().name:
        raise ConfigError(f"--to {text} is the root of all folders: name one within it")
    return path


def are_nested(one: Path, other: Path) -> bool:
    """Whether two paths are the same or one is inside the other, after following links."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def offsets_of(where: TopicRange, partitions: int, admin: Admin) -> list[tuple[int, int]]:
    """Return the first offset to read of each partition, and the offset after the last one.

    Limits the range to the offsets that the topic has now. Raises `ConfigError` if the start is
    after the end in every partition; in some partitions it may be, if one of the two is a time.
    """
    places: list[Partition] = [(where.name, number) for number in range(partitions)]
    oldest, ends = admin.oldest_offsets(places), admin.high_watermarks(places)

    def limits(text: str, default: Mapping[Partition, int]) -> Mapping[Partition, int]:
        if not text:
            return default
        limit = _Limit.of(text)
        if not limit.is_time:
            return dict.fromkeys(places, limit.number)
        found = admin.offsets_at(places, limit.number)
        # The ends may have moved since they were requested.
        return {p: ends[p] if o is None else min(o, ends[p]) for p, o in found.items()}

    starts, stops = limits(where.start, oldest), limits(where.end, ends)
    if where.start and all(starts[p] > min(stops[p], ends[p]) for p in places):
        raise ConfigError(
            f"topic {where.name} has nothing from {where.start} up to {where.end or 'its end'}: "
            "the start comes behind the end in each of its partitions, which end at "
            f"{max(ends.values())} or before. Digits alone are an offset, a date is 2026-01-31"
        )
    firsts = {p: min(max(starts[p], oldest[p]), ends[p]) for p in places}
    return [(first, max(first, min(stops[p], ends[p]))) for p, first in firsts.items()]


def _path(option: str, text: str) -> Path:
    # An empty path would mean the current folder; most likely a script's variable is not set.
    if not text.strip():
        raise ConfigError(f'{option} is empty: name a place, "." for the current folder')
    return Path(text).absolute()


def _checked(topic: str) -> str:
    wrong = name_problem(topic)
    if wrong:
        raise ConfigError(f'the topic "{topic}" {wrong}')
    return topic


def _milliseconds(text: str) -> int:
    try:
        return ms_of(datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigError(
            f'"{text}" is neither an offset nor a time: write a time as 2026-01-31 or '
            "2026-01-31T23:00:00+01:00, in UTC without an offset"
        ) from error
