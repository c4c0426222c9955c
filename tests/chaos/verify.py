"""The final check of a job: everything that Kafka holds must be consistent."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.topic_names import TopicNames
from tests.chaos.ledger import value_of
from tests.chaos.load import KEYS
from tests.chaos.numbered_results import Tally
from tests.chaos.rig import Rig

STABLE_TIMEOUT_S = 60.0
SHOWN = 10
"""How many problems of each kind are reported, so that none hides the others."""
_REQUEST_TIMEOUT_S = 30
_POLL_S = 0.2


def verify(rig: Rig) -> list[str]:
    """Return the problems, if any. The load must be paused, and all work done."""
    config, names = rig.engine.config, rig.engine.names
    problems = _open_transactions(config, _job_topics(rig))
    # Check this first: the JobManager deletes processed records from the arcs.
    problems += _offsets(rig, config, names)
    tally = read_again(rig)
    if not tally.is_clean:
        problems.append(f"the sink, read from the start, and the tables: {tally}")
    problems += _states(rig, config, names)
    problems += _dead_letters(rig, config, names)
    return problems


def read_again(rig: Rig) -> Tally:
    """Check the whole sink again, with another consumer, and the tables."""
    config = rig.engine.config
    ledger = rig.new_ledger()
    batches = read_committed(config, config.sink_topic, config.parallelism)
    batches.sort(key=lambda batch: (batch.partition, batch.offsets[0]))
    for batch in batches:
        for key, value in zip(batch.keys, batch.values, strict=True):
            ledger.note(key, value)
    for excused in rig.ledger.excused:
        ledger.excuse(*excused)
    return rig.tally(ledger)


def explain(rig: Rig) -> list[str]:
    """Return what is known about wrong results."""
    return [
        *(f"in the source: {problem}" for problem in source_problems(rig)[:SHOWN]),
        *rig.ledger.losses(rig.load.numbers)[:SHOWN],
        *(rig.tables.differences(rig.engine) if rig.tables is not None else ()),
        *busy_tasks(rig),
        *verify(rig)[:SHOWN],
    ]


def busy_tasks(rig: Rig) -> list[str]:
    """Return the tasks that do not run, or whose lag is not known to be 0."""
    return [
        f"{task.task}: {task.status.state}, lag {task.lag}, {task.status.reason}"
        for task in rig.now().tasks
        if task.status and (task.status.state is not TaskState.RUNNING or task.lag != 0)
    ]


def source_problems(rig: Rig) -> list[str]:
    """Return where the source itself is not what the writer should have written.

    In that case the writer is to blame, and the engine must have processed what it found.
    """
    config = rig.engine.config
    last = dict.fromkeys(KEYS, 0)
    problems = []
    batches = read_committed(config, config.source_topic, config.parallelism)
    batches.sort(key=lambda batch: (batch.partition, batch.offsets[0]))
    for batch in batches:
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
            if key not in last:
                continue
            number = int(value or b"0") - value_of(0)
            if number != last[key] + 1:
                place = f"{batch.topic}[{batch.partition}]@{offset}"
                problems.append(f"{place} is number {number} of {key!r} after {last[key]}")
            last[key] = number
    return problems


def wait_until_stable(config: Config, topics: Sequence[str]) -> dict[Partition, int]:
    """Wait until no transactions are open; return how far open ones hold back partitions.

    The last stable offset of each partition must reach its high watermark at the time of the call.
    """
    client = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    partitions = [
        (topic, number)
        for topic, metadata in client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics.items()
        if topic in topics
        for number in metadata.partitions
    ]
    ends = _ends(client, partitions, IsolationLevel.READ_UNCOMMITTED)
    deadline_s = time.monotonic() + STABLE_TIMEOUT_S
    while True:
        stable = _ends(client, partitions, IsolationLevel.READ_COMMITTED)
        behind = {p: ends[p] - stable[p] for p in partitions if stable[p] < ends[p]}
        if not behind or time.monotonic() > deadline_s:
            return behind
        time.sleep(_POLL_S)


def _ends(
    client: AdminClient, partitions: Sequence[Partition], level: IsolationLevel
) -> dict[Partition, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    futures = client.list_offsets(
        {TopicPartition(*partition): latest for partition in partitions},
        isolation_level=level,
        request_timeout=_REQUEST_TIMEOUT_S,
    )
    return {(tp.topic, tp.partition): f.result().offset for tp, f in futures.items()}


def _job_topics(rig: Rig) -> list[str]:
    names, loaded = rig.engine.names, rig.engine.pipeline
    return [
        names.source,
        names.sink,
        *loaded.arcs,
        *(topic for node in loaded.processors for topic in loaded.state_topics(node).values()),
        *(names.dead_letter(node.id) for node in loaded.processors),
        names.threads_jm,
        names.heartbeat_events,
        "__consumer_offsets",
    ]


def _open_transactions(config: Config, topics: Sequence[str]) -> list[str]:
    return [
        f"a transaction is open in {topic}[{number}], {offsets} offsets before its end"
        for (topic, number), offsets in wait_until_stable(config, topics).items()
    ]


def _states(rig: Rig, config: Config, names: TopicNames) -> list[str]:
    """Compare the last value of each key in the state topic with a fold of the input."""
    problems = []
    topic = names.state("Counter")
    found: dict[bytes | None, bytes | None] = {}
    batches = read_committed(config, topic, config.parallelism)
    for batch in sorted(batches, key=lambda batch: (batch.partition, batch.offsets[0])):
        found.update(zip(batch.keys, batch.values, strict=True))
    for key, number in rig.load.numbers.items():
        wanted = b"%d" % number if number else None
        if found.get(key) != wanted:
            problems.append(f"{topic} has {found.get(key)!r} for {key!r}, not {wanted!r}")
    return problems + _pairs(rig, config, names)


def _pairs(rig: Rig, config: Config, names: TopicNames) -> list[str]:
    """Look for results that wait for their counterpart although all results have come."""
    topic = names.state("Pairer", "Waiting")
    waiting: dict[bytes | None, bytes | None] = {}
    batches = read_committed(config, topic, config.parallelism)
    for batch in sorted(batches, key=lambda batch: (batch.partition, batch.offsets[0])):
        waiting.update(zip(batch.keys, batch.values, strict=True))
    return [
        f"{topic} still has {ranges} for {key!r}"
        for key, value in waiting.items()
        if key in KEYS and value is not None
        for ranges in json.loads(value).values()
        if not all(_may_wait(rig, key, *each) for each in ranges)
    ]


def _may_wait(rig: Rig, key: bytes, first: int, last: int) -> bool:
    """Whether results from the first to the last have no counterpart: there was no Adder then."""
    return any(low[key] < first and last <= high[key] for low, high in rig.ledger.excused)


def _dead_letters(rig: Rig, config: Config, names: TopicNames) -> list[str]:
    """Look for records of the writer among the dead letters; all of its records are good."""
    problems = []
    for node in rig.engine.pipeline.processors:
        if node.on_error is OnError.DEAD_LETTER:
            topic = names.dead_letter(node.id)
            problems += [
                f"{topic} has {key!r}: {value!r}"
                for batch in read_committed(config, topic, config.parallelism)
                for key, value in zip(batch.keys, batch.values, strict=True)
                if key in KEYS
            ]
    return problems


def _offsets(rig: Rig, config: Config, names: TopicNames) -> list[str]:
    """Compare the committed offset of each input with the offset after its last record."""
    loaded = rig.engine.pipeline
    last: dict[Partition, int] = {}
    for topic in {topic for node in loaded.processors for topic in loaded.in_topics(node)}:
        for batch in read_committed(config, topic, config.parallelism):
            place = (topic, batch.partition)
            last[place] = max(last.get(place, -1), batch.offsets[-1])
    problems = []
    admin = Admin(config)
    for node in loaded.processors:
        inputs = [(t, n) for t in loaded.in_topics(node) for n in range(config.parallelism)]
        with closing(PartitionReader(config, names.consumer_group(node.id))) as reader:
            committed = offsets_of(reader.committed(inputs, _REQUEST_TIMEOUT_S))
        lows, ends = admin.oldest_offsets(inputs), admin.stable_ends(inputs)
        for place in inputs:
            low, high, found = lows[place], ends[place], committed.get(place, 0)
            # Arcs keep no processed records, so there may be none to compare with.
            is_right = found == last[place] + 1 if place in last else low <= found <= high
            if not is_right:
                problems.append(
                    f"{node.id} has {place} committed at {found}, which has offsets from {low} "
                    f"to {high}, the last record at {last.get(place)}"
                )
    return problems
