"""The nodes of a topology as values, which a `TopologyBuilder` collects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.pipelines.specs import OffsetReset
from kafka_pipeline.streams.partitioning import StreamPartitioner
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.timestamps import TimestampExtractor

Supplier = Callable[[], Processor | BatchProcessor | AsyncProcessor]
"""Makes the processor of one task: a class, or a function without arguments."""

TopicChooser = Callable[[Record], str]
"""Chooses the topic that a record goes to."""


@dataclass(frozen=True, slots=True)
class Source:
    """Reads the named topics, or all topics that match a pattern.

    If `one_by_one`, each record goes through all nodes before the next one does, even if all of
    them take batches. `by_key` says that keys decide about partitions: records of other topics that
    are to meet these must be partitioned in the same way. If `meets_at_points`, the order among its
    records and those of other sources matters only at a `MeetingPoint`. `feedback` says that what
    is made of its records may come back by it: event time does not wait for it. Nor does it for one
    that is `looked_up`: its records only change what others look up.
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    timestamp_extractor: TimestampExtractor
    auto_offset_reset: OffsetReset
    one_by_one: bool = False
    by_key: bool = True
    meets_at_points: bool = False
    feedback: bool = False
    looked_up: bool = False

    parents: tuple[str, ...] = ()

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic, by name or by its pattern."""
        return topic in self.topics or bool(self.pattern and self.pattern.fullmatch(topic))


class NamedPart:
    """A part of a processor with its own name, which errors of user code that it calls show."""

    name: str


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs a processor, which may use the stores."""

    name: str
    supplier: Supplier
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()
    holds_ms: int = 0
    """The largest delay of a result after its record, in event time."""
    looks_up: bool = False
    """Whether its records look up state from other inputs, as of their own times."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Writes a topic, or the one that a function chooses for each record.

    The function returns one of `names`, which are those of `topics` in the code, or any topic if
    there are none.
    """

    name: str
    topics: tuple[str, ...]
    chooser: TopicChooser | None
    parents: tuple[str, ...]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    partitioner: StreamPartitioner[Any, Any] | None
    names: tuple[str, ...] = ()


Node = Source | ProcessorNode | Sink
