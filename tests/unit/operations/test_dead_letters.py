"""Dead letters as they are read from their topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.operations.dead_letters import (
    HANDLED,
    DeadLetter,
    LetterId,
    Wanted,
    ends,
    first_unhandled,
    letters,
    marker,
)

TRACE = "Traceback"


def errors(offset: int, reason: str = "not a number") -> list[tuple[str, bytes | None]]:
    return [
        ("__streams.errors.exception", b"RecordRejected"),
        ("__streams.errors.message", reason.encode()),
        ("__streams.errors.topic", b"arc"),
        ("__streams.errors.partition", b"1"),
        ("__streams.errors.offset", b"%d" % offset),
        ("__streams.errors.processor", b"Adder"),
        ("__streams.errors.stacktrace", TRACE.encode()),
    ]


def batch(headers: list[KafkaHeaders], start: int = 0) -> RecordBatch:
    count = len(headers)
    return RecordBatch(
        "dead",
        0,
        [b"k"] * count,
        [b"v%d" % n for n in range(start, start + count)],
        [1000 + n for n in range(start, start + count)],
        list(range(start, start + count)),
        headers,
    )


def letter_of(processor: str, partition: int, offset: int) -> DeadLetter:
    (found,) = letters(processor, [batch([errors(0)])])
    return replace(found, id=LetterId(processor, partition, offset))


def test_letter_has_its_own_headers_and_those_of_the_error_apart() -> None:
    (letter,) = letters("Adder", [batch([[("mine", b"1"), *errors(7)]])])
    assert letter == DeadLetter(
        LetterId("Adder", 0, 0),
        b"k",
        b"v0",
        1000,
        [("mine", b"1")],
        "RecordRejected",
        "not a number",
        "Adder",
        TRACE,
        ("arc", 1, 7),
    )


def test_letter_that_was_rejected_before_has_the_headers_of_the_last_time() -> None:
    (letter,) = letters("Adder", [batch([[*errors(3, "first"), *errors(9, "second")]])])
    assert (letter.reason, letter.came_from) == ("second", ("arc", 1, 9))
    assert letter.headers == errors(3, "first")


@pytest.mark.parametrize(
    "headers",
    [None, [("mine", None)], [*errors(1)[:2]], [*errors(1)[:4], ("__streams.errors.offset", b"x")]],
)
def test_record_that_somebody_else_wrote_came_from_nowhere(headers: KafkaHeaders) -> None:
    (letter,) = letters("Adder", [batch([headers])])
    assert letter.came_from is None


def test_markers_say_what_was_done_and_are_no_letters() -> None:
    first = batch([errors(1), errors(2), errors(3)])
    done = batch([marker("redriven", [0]), marker("purged", [2])], start=3)
    found = list(letters("Adder", [first, done]))
    assert [letter.handled for letter in found] == ["redriven", "", "purged"]
    assert first_unhandled([first, done], {0, 2}) == 1
    assert first_unhandled([first, done], {0, 1, 2}) is None


@pytest.mark.parametrize("value", [b"purged 0 1", b"purged " + b"9" * 5_000, b"", None])
def test_a_record_with_the_header_of_a_note_is_a_letter_and_deals_with_none(
    value: bytes | None,
) -> None:
    """Anyone who writes to a source may give records any header."""
    found = batch([errors(1), [(HANDLED, value), *errors(2)]])
    assert [each.handled for each in letters("Adder", [found])] == ["", ""]
    assert first_unhandled([found], {0}) == 1
    damaged = batch([[(HANDLED, value)]], start=2)
    assert next(letters("Adder", [found, damaged])).headers is None


def test_filters() -> None:
    (letter,) = letters("Adder", [batch([errors(1)])])
    assert Wanted().has(letter)
    assert Wanted(processors=["Adder"], reason="NOT A", since_ms=1000, until_ms=1001).has(letter)
    assert Wanted(reason="rejected").has(letter)
    assert not Wanted(processors=["Other"]).has(letter)
    assert Wanted(topics=["arc", "other"]).has(letter)
    assert not Wanted(topics=["other"]).has(letter)
    assert not Wanted(topics=["arc"]).has(replace(letter, came_from=None))
    assert not Wanted(reason="overflow").has(letter)
    assert not Wanted(since_ms=1001).has(letter)
    assert not Wanted(until_ms=1000).has(letter)
    assert not Wanted(ids=[LetterId("Adder", 0, 1)]).has(letter)
    assert Wanted(ids=[letter.id]).has(replace(letter, handled="purged"))
    place = letter.id.processor, letter.id.partition
    assert Wanted(before=ends([letter])).has(letter)
    assert not Wanted(before={place: letter.id.offset}).has(letter)
    assert not Wanted(before={}).has(letter)


def test_ends_are_after_the_last_letter_of_each_partition() -> None:
    found = [letter_of("Adder", 0, 7), letter_of("Adder", 0, 4), letter_of("Other", 1, 0)]
    assert ends(found) == {("Adder", 0): 8, ("Other", 1): 1}


def test_ids_are_read_as_they_are_shown() -> None:
    id_ = LetterId("a.b-c_d", 3, 12)
    assert LetterId.parse(str(id_)) == id_


@pytest.mark.parametrize("text", ["", "Adder", "Adder:1", "Adder:1:x", "Adder:-1:2", ":1:2"])
def test_wrong_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a dead letter"):
        LetterId.parse(text)
