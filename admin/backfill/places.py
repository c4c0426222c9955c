"""Where history comes from and where results go, as the command line says it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.errors import ConfigError
from common.kafka.admin import Admin
from common.kafka.clients import Partition
from common.topics import name_problem

_TOPIC = "topic:"
_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Files:
    """A Parquet or CSV file, or a folder of them."""

    path: Path


@dataclass(frozen=True, slots=True)
class TopicRange:
    """A topic from `start` to `end`: offsets, or times, or without a limit where that is empty."""

    name: str
    start: str = ""
    end: str = ""


Where = Files | TopicRange


def read_sources(
    texts: Sequence[str], names: Mapping[str, str], is_topic: Callable[[str], bool]
) -> dict[str, Where]:
    """Return where the records of topics are, from texts such as `NAME=history/` or `history/`.

    `names` has the topics by the names of sources, the default first; other topics may be named
    if `is_topic`. Raises `ConfigError` for a topic that is given twice, or for one without a name
    where none is read.
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
        return Files(Path(text).absolute())
    name, _, limits = text.removeprefix(_TOPIC).partition("@")
    start, dots, end = limits.partition("..")
    if limits and not dots:
        raise ConfigError(f"{text}: write a range as @from..to, where either may be left out")
    for limit in filter(None, (start, end)):
        if not limit.isdecimal():
            _milliseconds(limit)
    return TopicRange(_checked(name), start, end)


def read_target(text: str) -> Path | str:
    """Return a folder, or the name of a topic."""
    if text.startswith(_TOPIC):
        return _checked(text.removeprefix(_TOPIC))
    return Path(text).absolute()


def offsets_of(where: TopicRange, partitions: int, admin: Admin) -> list[tuple[int, int]]:
    """Return from which offset up to, without, which one each partition is to be read.

    Up to the end that they have now; of what is asked for, what the topic still has.
    """
    places: list[Partition] = [(where.name, number) for number in range(partitions)]
    oldest, ends = admin.oldest_offsets(places), admin.high_watermarks(places)

    def limits(text: str, default: Mapping[Partition, int]) -> Mapping[Partition, int]:
        if not text:
            return default
        if text.isdecimal():
            return dict.fromkeys(places, int(text))
        found = admin.offsets_at(places, _milliseconds(text))
        return {p: ends[p] if offset is None else offset for p, offset in found.items()}

    starts, stops = limits(where.start, oldest), limits(where.end, ends)
    return [
        (min(max(starts[p], oldest[p]), ends[p]), max(oldest[p], min(stops[p], ends[p])))
        for p in places
    ]


def _checked(topic: str) -> str:
    wrong = name_problem(topic)
    if wrong:
        raise ConfigError(f'the topic "{topic}" {wrong}')
    return topic


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f'"{text}" is no offset and no time: write a time as 2026-01-31 or '
            "2026-01-31T23:00:00+01:00, in UTC without an offset"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
