"""Dead letters as they lie in their topics, and which of them were dealt with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch

HANDLED = "__streams.handled"
"""The header of a note among the dead letters: it says which ones were dealt with, and how.

Its value is a word and the offsets of dead letters of the same partition, such as `redriven 12 17`.
"""

_ERRORS = "__streams.errors."
_FIRST = f"{_ERRORS}exception"
_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,18})")
_OFFSET = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class LetterId:
    """Where a dead letter lies: the processor that rejected it, partition and offset."""

    processor: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the id as people type it, such as `Adder:1:49`."""
        return f"{self.processor}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LetterId:
        """Return the id that this is; ValueError if it is none."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is not the id of a dead letter, such as "Adder:1:49"')
        return cls(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was rejected, with its own headers, and why and where it was.

    `came_from` is the topic, the partition and the offset; None if somebody else wrote the letter.
    `handled` is "redriven" or "purged", or "" if nothing was done with it.
    """

    id: LetterId
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: KafkaHeaders
    error: str
    reason: str
    node: str
    stacktrace: str
    came_from: tuple[str, int, int] | None
    handled: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`; bytes that are not UTF-8 are escaped."""
        origin = self.came_from
        return {
            "id": str(self.id),
            "processor": self.id.processor,
            "node": self.node,
            "error": self.error,
            "reason": self.reason,
            "stacktrace": self.stacktrace,
            "topic": origin and origin[0],
            "partition": origin and origin[1],
            "offset": origin and origin[2],
            "timestamp_ms": self.timestamp_ms,
            "key": text_of(self.key),
            "value": text_of(self.value),
            "headers": [[name, text_of(value)] for name, value in self.headers or ()],
            "handled": self.handled or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters are meant; what is empty or None does not matter.

    `topics` are those that the records came from. `reason` is part of the reason or of the error's
    name. Times are those of the records, in ms.
    `before` has an offset for each processor and partition, and only letters before it are meant;
    none of a partition that it does not have.
    """

    processors: Collection[str] = ()
    ids: Collection[LetterId] = ()
    topics: Collection[str] = ()
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    before: Mapping[tuple[str, int], int] | None = None

    def has(self, letter: DeadLetter) -> bool:
        """Whether a letter is meant."""
        text = f"{letter.error}: {letter.reason}".casefold()
        return (
            (not self.processors or letter.id.processor in self.processors)
            and (not self.ids or letter.id in self.ids)
            and (not self.topics or (letter.came_from or ("",))[0] in self.topics)
            and self.reason.casefold() in text
            and (self.since_ms is None or letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
            and (
                self.before is None
                or letter.id.offset < self.before.get((letter.id.processor, letter.id.partition), 0)
            )
        )


def letters(processor: str, batches: Sequence[RecordBatch]) -> Iterator[DeadLetter]:
    """Yield all dead letters of a processor's topic, in the order of each partition."""
    done = notes(batches)
    for batch, index in _records(batches):
        headers = (batch.headers[index] if batch.headers else None) or []
        if not _handled(headers)[0]:
            place = batch.partition, batch.offsets[index]
            yield _letter(LetterId(processor, *place), batch, index, headers, done.get(place, ""))


def notes(batches: Sequence[RecordBatch]) -> dict[tuple[int, int], str]:
    """Return how letters were dealt with, by partition and offset, as notes among them say."""
    done: dict[tuple[int, int], str] = {}
    for batch, index in _records(batches):
        how, offsets = _handled(batch.headers[index] if batch.headers else None)
        done |= {(batch.partition, offset): how for offset in offsets}
    return done


def ends(found: Iterable[DeadLetter]) -> dict[tuple[str, int], int]:
    """Return the offset after the last of these letters, by processor and partition."""
    after: dict[tuple[str, int], int] = {}
    for letter in found:
        place = letter.id.processor, letter.id.partition
        after[place] = max(after.get(place, 0), letter.id.offset + 1)
    return after


def marker(how: str, offsets: Iterable[int]) -> KafkaHeaders:
    """Return the headers of a record that says that letters of its partition were dealt with."""
    return [(HANDLED, " ".join((how, *map(str, offsets))).encode())]


def first_unhandled(batches: Sequence[RecordBatch], handled: Collection[int]) -> int | None:
    """Return the offset of the first letter of a partition that nobody dealt with, if any."""
    for batch, index in _records(batches):
        headers = batch.headers[index] if batch.headers else None
        if batch.offsets[index] not in handled and not _handled(headers)[0]:
            return batch.offsets[index]
    return None


def text_of(data: bytes | None) -> str | None:
    """Return bytes as text; what is not UTF-8 is escaped."""
    return None if data is None else data.decode(errors="backslashreplace")


def _records(batches: Sequence[RecordBatch]) -> Iterator[tuple[RecordBatch, int]]:
    for batch in batches:
        for index in range(len(batch)):
            yield batch, index


def _handled(headers: KafkaHeaders) -> tuple[str, list[int]]:
    """Return what a note says; "" for a letter, which has other headers too.

    A letter has those of its record, and anyone who writes records can give them this one.
    """
    if headers is None or [name for name, _ in headers] != [HANDLED]:
        return "", []
    how, *offsets = (headers[0][1] or b"").decode(errors="replace").split() or [""]
    return how, [int(offset) for offset in offsets if _OFFSET.fullmatch(offset)]


def _letter(
    id_: LetterId,
    batch: RecordBatch,
    index: int,
    headers: Sequence[tuple[str, bytes | None]],
    handled: str,
) -> DeadLetter:
    # A record may have had such headers before, as one that was rejected twice by other engines.
    names = [name for name, _ in headers]
    first = len(names) - 1 - names[::-1].index(_FIRST) if _FIRST in names else len(names)
    errors = {name.removeprefix(_ERRORS): text_of(value) or "" for name, value in headers[first:]}
    return DeadLetter(
        id_,
        batch.keys[index],
        batch.values[index],
        batch.timestamps[index],
        list(headers[:first]) or None,
        errors.get("exception", ""),
        errors.get("message", ""),
        errors.get("processor", ""),
        errors.get("stacktrace", ""),
        _origin(errors),
        handled,
    )


def _origin(errors: Mapping[str, str]) -> tuple[str, int, int] | None:
    topic, partition, offset = (errors.get(name, "") for name in ("topic", "partition", "offset"))
    if not topic or not all(map(_OFFSET.fullmatch, (partition, offset))):
        return None
    return topic, int(partition), int(offset)
