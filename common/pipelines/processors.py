"""The processors of a pipeline, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from kafka_pipeline.common.pipelines.specs import (
    ProcessorSpec,
    SourceSpec,
    SparkSpec,
    TopologySpec,
)
from kafka_pipeline.common.pipelines.spreading import SAID, Spreading
from kafka_pipeline.common.typed_json import Name, Positive, Strict

SOURCE = "source"
"""Means the source topic in `PipelineProcessor.from_`."""

SINK = "sink"
"""Means the sink topic in `PipelineProcessor.to`."""

ROWS_SUFFIX = "-rows"
"""Follows the id of a query in the id of the processor that makes rows of its groups."""


class OnError(StrEnum):
    """What a task does with a record that its processor rejects.

    An error that shows a mistake in user code, such as a `TypeError`, does not reject the record:
    it makes the task FAILED, unless the policy is one for `ALL` errors.
    """

    FAIL = "fail"
    SKIP = "skip"
    SKIP_ALL = "skip: all"
    DEAD_LETTER = "dead_letter"
    DEAD_LETTER_ALL = "dead_letter: all"

    @property
    def writes_dead_letters(self) -> bool:
        """Whether rejected records go to a topic for dead letters."""
        return self in (OnError.DEAD_LETTER, OnError.DEAD_LETTER_ALL)

    @property
    def takes_all(self) -> bool:
        """Whether mistakes in user code reject records too."""
        return self in (OnError.SKIP_ALL, OnError.DEAD_LETTER_ALL)


class ArcKind(StrEnum):
    """What the records of an arc, or of a topic at an end of the pipeline, are.

    Upserts replace the former record of their key, which a null value deletes. Updates replace
    former ones too, but no key says which.
    """

    RECORDS = "records"
    UPSERTS = "upserts"
    UPDATES = "updates"

    @property
    def words(self) -> str:
        """The kind, in words."""
        return "upserts by key" if self is ArcKind.UPSERTS else str(self)


class StoreContent(Strict, frozen=True, kw_only=True):
    """What the bytes of a store mean: its kind, the names of its serdes, and its windows, in words.

    Only a store with the same content can go on with them, or one with a later `format` that
    upgrades values. `former` has the serdes of the last formats before, if these can be read.
    `sides` has the topics whose records are kept, and after them those of the other side of a join.
    `parts` says what values of the engine's own steps consist of, in words. Both are empty where
    nobody knows.
    """

    family: str
    key: str
    value: str
    windows: str = ""
    format: Positive = 1
    former: tuple[str, ...] = ()
    sides: tuple[tuple[str, ...], ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def formats(self) -> dict[int, str]:
        """The names of the serdes of values, by the formats that there may be."""
        names = (*self.former, self.value)
        return dict(enumerate(names, self.format - len(self.former)))


class LoggedStore(Strict, frozen=True):
    """A store with a state topic; `topic_config` has settings of the topic, by Kafka's names.

    A store that is not `persistent` is in memory. `spreading` decides which task owns which
    entries. Versions of the pipeline that an earlier engine has written say nothing about the
    `content`.
    """

    name: str
    topic_config: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {"cleanup.policy": "compact"}
    )
    persistent: bool = True
    spreading: Spreading = SAID
    content: StoreContent | None = None


class Meeting(Strict, frozen=True):
    """Topics whose records meet by key in a step, so that they need as many partitions each.

    `step` is the name of the step, and `topics` are names in `PipelineProcessor.from_`.
    """

    step: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PipelineProcessor:
    """One processor of the pipeline, from which its tasks are made.

    `to` and `from_` hold processor ids in file order, or `SINK` and `SOURCE`, or topic names, which
    are the keys of `topics`. `from_` is empty only if the processor reads by patterns that were not
    yet matched against the cluster's topics. `stores` are those that its tasks restore from state
    topics. `sources` has the sources with settings, by their names in `from_`. `meetings` is `None`
    if unknown: then any topics may meet. `looked_up` has those of `from_` whose records only change
    what others look up, so that they say nothing about event time. `led_to_by` has, for those of
    `to` to which not all inputs lead, those of `from_` that do. With `chooses_topics`, its code
    also writes topics that nobody else knows. `gives` has the kinds of what goes to those of `to`
    that do not get plain records. The rows in internal topics count as plain records, and so does
    all that a version of an earlier engine gives.
    """

    id: Name
    spec: ProcessorSpec
    to: tuple[Name, ...]
    from_: tuple[Name, ...]
    on_error: OnError = OnError.FAIL
    max_dead_letters_per_minute: Positive | None = None
    topics: Mapping[str, Name] = field(default_factory=dict, hash=False)
    stores: tuple[LoggedStore, ...] = ()
    sources: Mapping[str, SourceSpec] = field(default_factory=dict, hash=False)
    meetings: tuple[Meeting, ...] | None = None
    looked_up: tuple[Name, ...] = ()
    led_to_by: Mapping[Name, tuple[Name, ...]] = field(default_factory=dict, hash=False)
    chooses_topics: bool = False
    gives: Mapping[Name, ArcKind] = field(default_factory=dict, hash=False)

    @property
    def entry(self) -> str:
        """The id of the entry of pipeline.yaml that it is made of.

        Those of a topology, and those of a query that groups records, may be several processors.
        """
        spec = self.spec
        if isinstance(spec, TopologySpec):
            return self.id.removesuffix(f"-{spec.group}")
        if isinstance(spec, SparkSpec) and spec.gives_rows:
            return self.id.removesuffix(ROWS_SUFFIX)
        return self.id

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        """The inputs that are internal to a user's topology or to a query.

        The values are their partition counts, or `None` if not set.
        """
        return self.spec.internal_topics

    @property
    def global_stores(self) -> Mapping[str, str]:
        """The topics of the global stores that its tasks can read, by store name."""
        return self.spec.global_stores

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of further topics to read; only the cluster knows which topics match."""
        given = self.spec.topic_patterns
        return tuple(re.compile(each.pattern, each.flags) for each in given)

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks keep stores with state topics."""
        return bool(self.stores)

    @property
    def has_standbys(self) -> bool:
        """Whether its tasks have state on disk, of which other TaskManagers can keep copies."""
        return any(store.persistent for store in self.stores)
