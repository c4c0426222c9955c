"""The newest dead letters of each partition, as they are read bit by bit."""

from __future__ import annotations

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.operations.dead_letters import marker
from kafka_pipeline.operations.latest_letters import LetterIndex

PLACES: tuple[Partition, Partition] = (("dead", 0), ("dead", 1))


def rejected(reason: str) -> KafkaHeaders:
    return [
        ("mine", b"1"),
        ("__streams.errors.exception", b"RecordRejected"),
        ("__streams.errors.message", reason.encode()),
        ("__streams.errors.stacktrace", b"Traceback"),
    ]


def batch(start: int, headers: list[KafkaHeaders], partition: int = 0) -> RecordBatch:
    count = len(headers)
    offsets = list(range(start, start + count))
    return RecordBatch(
        "dead", partition, [b"k"] * count, [b"v"] * count, [1000] * count, offsets, headers
    )


def known(index: LetterIndex) -> dict[str, str]:
    return {str(letter.id): letter.handled for letter in index}


def test_only_what_is_new_is_read() -> None:
    index = LetterIndex(100)
    bounds = {PLACES[0]: (0, 2), PLACES[1]: (5, 5)}
    assert index.begin(bounds) == {PLACES[0]: 0}
    index.take("Adder", batch(0, [rejected("a"), rejected("b")]))
    index.finish(bounds)
    assert known(index) == {"Adder:0:0": "", "Adder:0:1": ""}
    assert index.begin(bounds) == {}
    # A marker of a transaction is at offset 2, so nothing comes of that.
    later = {PLACES[0]: (0, 3), PLACES[1]: (5, 6)}
    assert index.begin(later) == {PLACES[0]: 2, PLACES[1]: 5}
    index.take("Adder", batch(5, [rejected("c")], partition=1))
    index.finish(later)
    assert index.begin(later) == {}
    assert len(known(index)) == 3


def test_letters_are_kept_without_what_may_be_large_or_secret() -> None:
    index = LetterIndex(10)
    index.begin({PLACES[0]: (0, 1)})
    index.take("Adder", batch(0, [rejected("r" * 10_000)]))
    (letter,) = index
    assert (letter.key, letter.value, letter.headers, letter.stacktrace) == (None, None, None, "")
    assert letter.error == "RecordRejected"
    assert letter.reason == f"{'r' * 300}…"


def test_notes_that_come_later_are_about_letters_that_were_read_before() -> None:
    index = LetterIndex(100)
    bounds = {PLACES[0]: (0, 5)}
    index.begin(bounds)
    index.take("Adder", batch(0, [rejected("a"), rejected("b")]))
    index.take("Adder", batch(2, [marker("redriven", [0, 77]), rejected("c")]))
    assert known(index) == {"Adder:0:0": "redriven", "Adder:0:1": "", "Adder:0:3": ""}
    index.take("Adder", batch(4, [marker("purged", [3])]))
    assert known(index)["Adder:0:3"] == "purged"


def test_the_newest_offsets_of_each_partition_are_kept() -> None:
    index = LetterIndex(6)
    bounds = {PLACES[0]: (0, 10), PLACES[1]: (4, 5)}
    assert index.begin(bounds) == {PLACES[0]: 7, PLACES[1]: 4}
    index.take("Adder", batch(7, [rejected("a")] * 3))
    assert index.older(bounds) == {PLACES[0]: 7, PLACES[1]: 0}
    index.finish(bounds)
    assert index.begin({PLACES[0]: (0, 12), PLACES[1]: (4, 5)}) == {PLACES[0]: 10}
    assert [*known(index)] == ["Adder:0:9"]


def test_what_is_deleted_is_forgotten() -> None:
    index = LetterIndex(100)
    bounds = {PLACES[0]: (0, 3)}
    index.begin(bounds)
    index.take("Adder", batch(0, [rejected("a")] * 3))
    index.finish(bounds)
    assert index.begin({PLACES[0]: (2, 3)}) == {}
    assert [*known(index)] == ["Adder:0:2"]
    assert index.begin({}) == {}
    assert [*known(index)] == []


def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    index = LetterIndex(100)
    bounds = {PLACES[0]: (0, 3)}
    index.begin(bounds)
    index.take("Adder", batch(0, [rejected("a")] * 3))
    index.finish(bounds)
    assert index.begin({PLACES[0]: (0, 1)}) == {PLACES[0]: 0}
    assert [*known(index)] == []
