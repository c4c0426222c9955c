"""Records that are too large, have broken headers, or are odd in other ways, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, ProcessorSpec, SumSpec
from kafka_pipeline.common.record_batch import record_size
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from tests.raw_records import MESSAGE_TOO_LARGE, RawRecord, record_batch, write_batch
from tests.tasks import Job, Record, drain, run_once
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

each_policy = pytest.mark.parametrize(
    "on_error",
    long_but_the_first(
        [
            OnError.FAIL,
            OnError.SKIP,
            OnError.DEAD_LETTER,
            OnError.SKIP_ALL,
            OnError.DEAD_LETTER_ALL,
        ],
        3,
    ),
)

KAFKAS_DEFAULT_LIMIT = 1_048_588
LIMIT_TIMEOUT_S = 30.0
LARGEST_VALUE = 1_048_515
"""With a key of one byte, the batch is as large as Kafka's default allows."""


def write_raw(job: Job, records: Sequence[RawRecord]) -> int:
    """Write records of any content to partition 0 of the source; return Kafka's error code."""
    topic, servers = job.config.source_topic, job.config.bootstrap_servers
    return write_batch(servers.partition(",")[0], topic, 0, record_batch(records))


def values(job: Job, topic: str | None = None) -> list[bytes | None]:
    return [record.value for record in job.read(topic or job.config.sink_topic)]


# Large records.


def test_largest_records_that_java_clients_write_pass_unchanged(job: Job) -> None:
    """Source → forward → arc → forward → sink; a client's limit is not a broker's."""
    assert write_raw(job, [(b"k", b"x" * (LARGEST_VALUE + 1), [])]) == MESSAGE_TOO_LARGE
    sizes = [LARGEST_VALUE, 1_000_000, 999_999, 1]
    for size in sizes:
        assert write_raw(job, [(b"k", b"x" * size, [])]) == 0
    arc = job.make_topic("arc")
    first, second = job.replica(ForwardSpec()), job.replica(ForwardSpec())
    second = replace(second, task=TaskId("Q", second.task.partition), in_topics=(arc,))
    run_once(job.task(replace(first, out_topics=(arc,))))
    # The key "k" belongs to one of the two partitions, and it is not known to which.
    at = next(record.partition for record in job.read(arc))
    run_once(job.task(replace(second, task=TaskId("Q", at))))
    assert values(job) == [b"x" * size for size in sizes]


def test_size_of_a_record_is_what_the_broker_measures(job: Job) -> None:
    headers: Any = [("é" * 30, b"h" * 70), ("", None), ("n", b"")]
    raw: RawRecord = (b"k" * 64, b"v" * 8192, [(n.encode(), v) for n, v in headers])
    size = record_size(b"k" * 64, b"v" * 8192, headers)
    assert size == len(record_batch([raw]))
    for limit, answer in ((size - 1, MESSAGE_TOO_LARGE), (size, 0)):
        job.set_size_limit(job.config.source_topic, limit)
        # Kafka tells a new limit before it has effect, sooner or later.
        deadline_s = time.monotonic() + LIMIT_TIMEOUT_S
        while write_raw(job, [raw]) != answer:
            assert time.monotonic() < deadline_s, f"a limit of {limit} has no effect"


def test_topics_that_take_more_get_more_without_any_setting(job: Job) -> None:
    for topic in (job.config.source_topic, job.config.sink_topic):
        job.set_size_limit(topic, 6_000_000)
    job.write(Record(b"k", b"x" * 5_000_000, 1), Record(b"k", b"y", 1))
    run_once(job.task(job.replica(ForwardSpec())))
    assert values(job) == [b"x" * 5_000_000, b"y"]


def test_batches_of_small_records_suit_the_topic(job: Job) -> None:
    """librdkafka fills batches of 1 MB, which the sink refuses and the dead letters take."""
    job.set_size_limit(job.config.sink_topic, 1_500)
    job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(2_000)))
    run_once(job.task(job.replica(ForwardSpec(), OnError.DEAD_LETTER)))
    assert values(job) == [b"%d" % n for n in range(2_000)]


LIMIT = 2_000
FITTING = LIMIT - record_size(b"k", b"", None) - 2
"""Bytes of a value: the record is as large as the limit (its length takes more bytes too)."""


@each_policy
def test_output_that_the_broker_would_refuse_follows_on_error(job: Job, on_error: OnError) -> None:
    """The limit of the topic counts, to the byte, not one of the client."""
    job.set_size_limit(job.config.sink_topic, LIMIT)
    large = b"9" * (FITTING + 1)
    assert record_size(b"k", large[1:], None) == LIMIT
    job.write(
        *(Record(b"k", value, 1) for value in (b"1", b"8" * FITTING, b"8" * FITTING + b"1", b"2"))
    )
    task = job.task(job.replica(SumSpec(), on_error))
    fitting = [b"2", b"8" * (FITTING - 1) + b"9"]
    if on_error is OnError.FAIL:
        reason = (
            rf"\[0\]@2: the output is larger than the 2,000 bytes that topic "
            rf"{job.config.sink_topic} takes \(max.message.bytes\)$"
        )
        with pytest.raises(ProcessingFailedError, match=reason):
            run_once(task)
        assert (values(job), job.committed()) == (fitting, 2)
        return
    run_once(task)
    assert (values(job), job.committed()) == ([*fitting, b"3"], 4)
    letters = values(job, job.names.dead_letter("P"))
    assert letters == ([b"8" * FITTING + b"1"] if on_error.writes_dead_letters else [])
    assert task.status().count("skipped") == (on_error in (OnError.SKIP, OnError.SKIP_ALL))


def test_record_goes_to_all_topics_or_to_none(job: Job) -> None:
    """One too large for one of them is not in the other, and what follows is there once."""
    other = job.make_topic("other")
    job.set_size_limit(other, LIMIT)
    job.write(*(Record(b"k", b"9" * size, 1) for size in (1, 2 * LIMIT, 2, 3)))
    replica = job.replica(ForwardSpec(), OnError.SKIP)
    task = job.task(
        replace(replica, to=("sink", "Other"), out_topics=(job.config.sink_topic, other))
    )
    run_once(task)
    assert values(job) == values(job, other) == [b"9", b"99", b"999"]
    assert (task.status().count("records_out"), task.status().count("skipped")) == (6, 1)


def test_limit_that_is_lowered_while_a_task_runs_is_heeded_after_one_new_start(job: Job) -> None:
    job.write(Record(b"k", b"9" * LIMIT, 1), Record(b"k", b"1", 1))
    replica = job.replica(ForwardSpec(), OnError.SKIP)
    task = job.task(replica)
    task.start()
    job.set_size_limit(job.config.sink_topic, LIMIT)

    def process() -> None:
        drain(task)
        task.commit()

    with pytest.raises(TransactionFailedError, match="Message size too large"):
        process()
    task.drop()
    run_once(task)
    assert (values(job), task.status().count("skipped")) == ([b"1"], 1)


def test_dead_letter_that_does_not_fit_fails_the_task_with_both_reasons(job: Job) -> None:
    letters = job.names.dead_letter("P")
    large = b"x" * LARGEST_VALUE
    assert write_raw(job, [(b"k", large, [])]) == 0
    replica = job.replica(SumSpec(), OnError.DEAD_LETTER)
    reason = (
        r"@0: the value is not an integer; and as a dead letter it is larger than the 1,048,588 "
        rf"bytes that topic {letters} takes \(max.message.bytes\)$"
    )
    with pytest.raises(ProcessingFailedError, match=reason):
        run_once(job.task(replica))
    assert job.committed() is None
    # A dead letter is larger than its record: the reason is added.
    job.set_size_limit(letters, 2 * KAFKAS_DEFAULT_LIMIT)
    run_once(job.task(replica))
    assert (values(job, letters), job.committed()) == ([large], 1)


def test_state_that_does_not_fit_fails_the_task_with_the_reason(job: Job) -> None:
    state = job.names.state("P")
    job.set_size_limit(state, LIMIT)
    job.write(Record(b"k" * LIMIT, b"", 1))
    reason = f"key of 2,000 bytes is larger than the 2,000 bytes that topic {state} takes"
    with pytest.raises(NonRetriableError, match=reason):
        run_once(job.task(job.replica(CountSpec())))
    assert (values(job), job.committed()) == ([], None)


# Headers.


def test_headers_of_every_legal_kind_pass_unchanged(job: Job) -> None:
    headers: list[Any] = [
        [("none", None), ("empty", b""), ("", b"no name"), ("binary", bytes(range(256)))],
        [("same", b"1"), ("same", b"2"), ("same", None), ("same", b"1")],
        [("large", b"x" * 100_000)],
        [("many", b"%d" % number) for number in range(1_000)],
        [("\u00e9\U0001f418", b"1")],
        None,
    ]
    job.write(*(Record(b"k", b"%d" % at, at + 1, some) for at, some in enumerate(headers)))
    run_once(job.task(job.replica(ForwardSpec())))
    assert [record.headers for record in job.read(job.config.sink_topic)] == headers


BROKEN: RawRecord = (b"k", b"broken", [(b"fine", b"1"), (b"\xff\xfe", b"2"), (b"fine", b"3")])


@pytest.mark.parametrize("spec", long_but_the_first([ForwardSpec(), CountSpec()]))
@each_policy
def test_record_with_a_broken_header_follows_on_error(
    job: Job, on_error: OnError, spec: ProcessorSpec
) -> None:
    """Python cannot decode its name, so it cannot be passed on unchanged."""
    fine: list[RawRecord] = [(b"k", b"%d" % n, [(b"n", b"%d" % n)]) for n in (1, 2)]
    assert write_raw(job, [fine[0], BROKEN, fine[1]]) == 0
    expected = [b"1", b"2"]
    task = job.task(job.replica(spec, on_error))
    if on_error is OnError.FAIL:
        with pytest.raises(ProcessingFailedError, match=r"@1: the name of a header is not UTF-8$"):
            run_once(task)
        assert (values(job), job.committed()) == (expected[:1], 1)
        return
    run_once(task)
    assert (values(job), job.committed()) == (expected, 3)
    assert [r.headers for r in job.read(job.config.sink_topic)] == [[("n", b"1")], [("n", b"2")]]
    status = task.status()
    assert status.count("records_in") == 3
    assert status.count("skipped") + status.count("dead_letters") == 1
    letters = job.read(job.names.dead_letter("P"))
    if on_error.writes_dead_letters:
        assert [(letter.key, letter.value) for letter in letters] == [(b"k", b"broken")]
        headers = dict(letters[0].headers or [])
        assert headers["__streams.errors.message"] == b"the name of a header is not UTF-8"
        assert headers["__streams.errors.offset"] == b"1"
        assert "fine" not in headers
    else:
        assert letters == []


def test_many_records_with_broken_headers_among_others_keep_the_order(job: Job) -> None:
    records: list[RawRecord] = [
        BROKEN if n % 3 else (b"k", b"%d" % n, [(b"h", b"")] if n % 2 else []) for n in range(300)
    ]
    assert write_raw(job, [*records, BROKEN]) == 0
    task = job.task(job.replica(ForwardSpec(), OnError.SKIP))
    run_once(task)
    assert values(job) == [b"%d" % n for n in range(0, 300, 3)]
    assert (task.status().count("skipped"), job.committed()) == (201, 301)


# Keys and values.


@each_policy
def test_record_without_a_key_follows_on_error_of_count(job: Job, on_error: OnError) -> None:
    job.write(*(Record(key, b"v", 1, partition=1) for key in (b"", None, b"k", b"")))
    task = job.task(job.replica(CountSpec(), on_error, partition=1))
    if on_error is OnError.FAIL:
        with pytest.raises(ProcessingFailedError, match=r"\[1\]@1: the record has no key"):
            run_once(task)
        assert (values(job), job.committed(1)) == ([b"1"], 1)
        return
    run_once(task)
    found = sorted((r.key or b"", r.value) for r in job.read(job.config.sink_topic))
    assert (found, job.committed(1)) == ([(b"", b"1"), (b"", b"2"), (b"k", b"1")], 4)
    letters = [(r.key, r.value, r.partition) for r in job.read(job.names.dead_letter("P"))]
    assert letters == ([(None, b"v", 1)] if on_error.writes_dead_letters else [])


@each_policy
@pytest.mark.parametrize("spec", long_but_the_first([ForwardSpec(), SumSpec()]))
def test_records_need_no_key_where_nothing_is_counted(
    job: Job, spec: ProcessorSpec, on_error: OnError
) -> None:
    job.write(*(Record(key, b"1", 1, partition=1) for key in (None, b"", None)))
    run_once(job.task(job.replica(spec, on_error, partition=1)))
    assert sorted(r.key is None for r in job.read(job.config.sink_topic)) == [False, True, True]
    assert job.committed(1) == 3


@pytest.mark.parametrize(
    "value", long_but_the_first([None, b"", b" ", b"1e9", b"\xff", b"9" * 900_000 + b"x"], 3)
)
def test_poison_of_sum_becomes_a_dead_letter(job: Job, value: bytes | None) -> None:
    job.write(Record(b"k", b"1", 1), Record(None, value, 2), Record(b"k", b"2", 3))
    run_once(job.task(job.replica(SumSpec(), OnError.DEAD_LETTER)))
    assert (values(job), job.committed()) == ([b"2", b"3"], 3)
    (letter,) = job.read(job.names.dead_letter("P"))
    assert (letter.key, letter.value, letter.timestamp) == (None, value, 2)


def test_integer_of_a_megabyte_is_no_poison(job: Job) -> None:
    job.write(Record(b"k", b"9" * 1_000_000, 1), Record(b"k", b"1", 1))
    run_once(job.task(job.replica(SumSpec())))
    assert values(job) == [b"1" + b"0" * 1_000_000, b"2"]


def test_count_takes_tombstones_and_empty_values_and_keys(job: Job) -> None:
    records = [(b"k", None), (b"", b""), (b"k", b""), (b"", None)]
    job.write(*(Record(key, value, 1) for key, value in records))
    run_once(job.task(job.replica(CountSpec())))
    found = sorted((r.key or b"", r.value) for r in job.read(job.config.sink_topic))
    assert found == [(b"", b"1"), (b"", b"2"), (b"k", b"1"), (b"k", b"2")]
