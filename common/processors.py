"""The processors of a pipeline, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SOURCE = "source"
"""Means the source topic in `PipelineProcessor.from_`."""

SINK = "sink"
"""Means the sink topic in `PipelineProcessor.to`."""

COUNT_STORE = "counts"
"""The name of the store of the built-in type `count`."""


class ProcessorType(StrEnum):
    """What a processor does: one of the built-in types, or user code.

    Spark computes `SQL` and `DATAFRAME`. `CLASS` is a `package.module:Class`, `TOPOLOGY` is a node
    group of a topology that a function builds.
    """

    FORWARD = "forward"
    SUM = "sum"
    COUNT = "count"
    SQL = "sql"
    DATAFRAME = "dataframe"
    CLASS = "class"
    TOPOLOGY = "topology"


BUILT_IN = (ProcessorType.FORWARD, ProcessorType.SUM, ProcessorType.COUNT)
ON_SPARK = (ProcessorType.SQL, ProcessorType.DATAFRAME)


class OnError(StrEnum):
    """What a task does with a record that its processor rejects."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class LoggedStore:
    """A store that has a state topic; `topic_config` is the topic's policy, by Kafka's names.

    A store that is not `persistent` is in memory.
    """

    name: str
    topic_config: Mapping[str, str] = field(
        default_factory=lambda: {"cleanup.policy": "compact"}, hash=False
    )
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class PipelineProcessor:
    """One processor of the pipeline, from which its tasks are made.

    `to` and `from_` hold processor ids in file order, or `SINK` and `SOURCE`, or topic names, which
    are the keys of `topics`. `from_` is empty only if the processor reads by patterns that have not
    been matched against the cluster's topics yet. `config` holds the type's parameters with
    defaults filled in, `code` says where the user code is, and `options` say how to run it, as JSON
    values. None of these change.
    """

    id: str
    type: ProcessorType
    to: tuple[str, ...]
    from_: tuple[str, ...]
    on_error: OnError = OnError.FAIL
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    code: str = ""
    topics: Mapping[str, str] = field(default_factory=dict, hash=False)
    logged_stores: tuple[LoggedStore, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """The topics that it reads and that are internal to a user's topology."""
        return tuple(self.options.get("internal", ()))

    @property
    def global_stores(self) -> Mapping[str, str]:
        """The topics of the global stores that its tasks can read, by store name."""
        topics: Mapping[str, str] = self.options.get("globals", {})
        return topics

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of further topics that it reads; only the cluster knows which topics match."""
        return tuple(re.compile(text, flags) for text, flags in self.options.get("patterns", ()))

    @property
    def stores(self) -> tuple[LoggedStore, ...]:
        """The stores that its tasks restore from state topics."""
        return (
            (LoggedStore(COUNT_STORE),) if self.type is ProcessorType.COUNT else self.logged_stores
        )

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks keep stores with state topics."""
        return bool(self.stores)

    @property
    def has_standbys(self) -> bool:
        """Whether its tasks have state on disk, so that other TaskManagers can keep copies."""
        return any(store.persistent for store in self.stores)
