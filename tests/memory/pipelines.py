"""Processors for the seeds to choose from, each with a model that is independent of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    COUNT_STORE,
    ClassSpec,
    CountSpec,
    ForwardSpec,
    ProcessorSpec,
    SumSpec,
    TopologySpec,
)
from kafka_pipeline.common.pipelines.store_specs import StoreSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from tests.memory.partition_log import Entry
from tests.user_code.folding import fold
from tests.user_code.timing import TICK_MS, time_of, told

MAX_PROCESS_TIME_MS = 3_000
STATE_TOPIC = {"message.timestamp.type": "LogAppendTime"}


@dataclass(slots=True)
class Expected:
    """The outputs that are required for one key."""

    results: list[bytes]
    letters: list[bytes] = field(default_factory=list)
    state: bytes | None = None


Pair = tuple[bytes, bytes]
"""A key and a value."""


def pairs(entries: Iterable[Entry]) -> Iterator[Pair]:
    """Yield the key and the value of each entry."""
    for entry in entries:
        assert entry.key is not None
        assert entry.value is not None
        yield entry.key, entry.value


def _as_written(number: int, entries: Sequence[Entry]) -> Iterable[Pair]:
    return pairs(entries)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A processor, its inputs, and the outputs required for the values of a key."""

    name: str
    spec: ProcessorSpec
    model: Callable[[Sequence[bytes]], Expected]
    inputs: int = 1
    store: str = ""
    poison: float = 0.0
    """The share of records that the processor rejects as dead letters."""
    history: Callable[[int, Sequence[Entry]], Iterable[Pair]] = _as_written
    """Returns the input of the model, from a partition number and the partition's records."""
    id: str = "P"
    sink: str = "out"

    def in_topics(self, config: Config) -> tuple[str, ...]:
        """Return the topics that the processor reads."""
        return tuple(f"{config.source_topic}{number}" for number in range(self.inputs))

    def state_topic(self, config: Config) -> str:
        """Return the topic of its store."""
        return config.topic_names.state(self.id, self.store)

    def dead_letter_topic(self, config: Config) -> str:
        """Return the topic of its dead letters."""
        return config.topic_names.dead_letter(self.id)

    def topics(self, config: Config) -> list[TopicSpec]:
        """Return the topics that the processor writes to, with two partitions each."""
        plain = [self.sink, self.dead_letter_topic(config)]
        specs = [TopicSpec(name, 2, 1) for name in plain]
        if self.store:
            specs.append(TopicSpec(self.state_topic(config), 2, 1, STATE_TOPIC))
        return specs

    def replica(self, config: Config, partition: int) -> ProcessorReplica:
        """Return the processor's task for a partition."""
        topics = self.in_topics(config)
        return ProcessorReplica(
            task=TaskId(self.id, partition),
            spec=self.spec,
            from_=topics,
            to=("sink",),
            in_topics=topics,
            out_topics=(self.sink,),
            state_topics={self.store: self.state_topic(config)} if self.store else {},
            dead_letter_topic=self.dead_letter_topic(config),
            on_error=OnError.DEAD_LETTER if self.poison else OnError.FAIL,
        )


def _forwarded(values: Sequence[bytes]) -> Expected:
    return Expected(list(values))


def _counted(values: Sequence[bytes]) -> Expected:
    counts = [b"%d" % number for number in range(1, len(values) + 1)]
    return Expected(counts, state=counts[-1])


def _summed(values: Sequence[bytes]) -> Expected:
    good = [value for value in values if value.isdigit()]
    bad = [value for value in values if not value.isdigit()]
    return Expected([b"%d" % (int(value) + 1) for value in good], bad)


def _folded(values: Sequence[bytes]) -> Expected:
    digest, results = 0, []
    for value in values:
        digest = fold(digest, value)
        results.append(b"%b %d" % (value, digest))
    return Expected(results, state=b"%d" % digest)


def _asked_and_folded(values: Sequence[bytes]) -> Expected:
    good = [value for value in values if value.isdigit()]
    bad = [value for value in values if not value.isdigit()]
    folded = _folded(good)
    return Expected(folded.results, bad, folded.state if good else None)


def _by_the_clock(number: int, entries: Sequence[Entry]) -> Iterator[Pair]:
    """Yield the outputs of a `Clock` for some records, including its ticks."""
    stream_time, due_ms = -1, 0
    for entry, (key, value) in zip(entries, pairs(entries), strict=True):
        record: Any = entry
        timestamp = time_of(record, stream_time)
        stream_time = max(stream_time, timestamp)
        yield key, told(value, timestamp, stream_time) if value.isdigit() else value
        if stream_time >= due_ms:
            yield str(TaskId("P", number)).encode(), b"%d" % stream_time
            due_ms = (stream_time // TICK_MS + 1) * TICK_MS


def _timed(values: Sequence[bytes]) -> Expected:
    bad = [value for value in values if value.startswith(b"no ")]
    return Expected([value for value in values if not value.startswith(b"no ")], bad)


def _folder(name: str, inputs: int, persistent: bool, **options: Any) -> Pipeline:
    spec = ClassSpec(
        code="tests.user_code.folding:Folder",
        stores=(StoreSpec(name="Digests", persistent=persistent),),
        max_process_time_ms=MAX_PROCESS_TIME_MS,
        **options,
    )
    return Pipeline(name, spec, _folded, inputs, "Digests")


def _topology(function: str, **config: Any) -> TopologySpec:
    return TopologySpec(
        code=f"tests.user_code.{function}",
        config={"topic": "in0", **config},
        group="Source",
        max_process_time_ms=MAX_PROCESS_TIME_MS,
    )


def _asker(name: str, ordered: Literal[True, "key"]) -> Pipeline:
    return Pipeline(
        name,
        _topology("folding:asked_and_folded", ordered=ordered),
        _asked_and_folded,
        store="Digests",
        poison=0.1,
    )


def _clock(name: str, function: str, **config: Any) -> Pipeline:
    return Pipeline(
        name,
        _topology(f"timing:{function}", **config),
        _timed,
        history=_by_the_clock,
        poison=0.1,
    )


FOLD_OF_TWO = _folder(
    "fold of two topics", 2, persistent=True, buffered_records=3, max_task_idle_ms=100
)
ASKED_BY_KEY = _asker("asked in the order of keys", "key")
CLOCKS = (
    _clock("time of records", "timed", is_whole=False),
    _clock("time of batches", "timed", is_whole=True),
    _clock("time of answers", "asked_and_timed"),
)
PIPELINES = (
    Pipeline("forward", ForwardSpec(), _forwarded),
    Pipeline("forward of two topics", ForwardSpec(), _forwarded, inputs=2),
    Pipeline("sum with dead letters", SumSpec(), _summed, poison=0.2),
    Pipeline("count", CountSpec(), _counted, store=COUNT_STORE),
    _folder("fold", 1, persistent=True),
    _folder("fold in memory", 1, persistent=False),
    FOLD_OF_TWO,
    _asker("asked in order", True),
    ASKED_BY_KEY,
    *CLOCKS,
)
SIBLINGS = (
    Pipeline("forward", ForwardSpec(), _forwarded, id="Q", sink="other"),
    replace(
        _folder("fold with little room", 1, persistent=True, buffered_records=3),
        id="Q",
        sink="other",
    ),
)
"""Processors that may read the first topic too, in the same PipelineThreads."""
MODULES = ("tests.user_code.folding", "tests.user_code.timing")
