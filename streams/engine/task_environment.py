"""The environment of a task's nodes: stores, clocks, topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.streams.engine.call_mark import CallMark, NoMark
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.outputs import OutputTopics
from kafka_pipeline.streams.stores.bytes_store import BytesStore, StoreBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """The stores, the clock and the surroundings of one task."""

    application_id: str
    task_id: str
    number: int
    """The task's number, which decides the partition of records without a key."""
    stores: Mapping[str, BytesStore]
    """The bytes of the group's stores."""
    output_topics: OutputTopics
    clock_ms: Callable[[], int]
    """The wall clock."""
    max_timestamp_ahead_ms: int | None = None
    """How far the timestamps of records may be ahead of it; `None` without a limit."""
    global_stores: Mapping[str, StoreBytes] = field(default_factory=dict)
    """The bytes of the stores that the group may only read."""
    clocked_topics: Collection[str] = ()
    """The output topics whose records carry their clocks, which downstream groups need."""
    loop: EventLoop | None = None
    """Where `AsyncProcessor`s make their calls; on a loop of their own by default."""
    log_record_values: bool = False
    """Whether reasons and dead letters may quote records; see `common.error_words`."""
    wake: Callable[[], None] = lambda: None
    """Called when a call of an `AsyncProcessor` has returned."""
    new_mark: Callable[[], CallMark] = NoMark
    """Makes the marks of calls in progress, which survive the process."""
    suspects: Sequence[Suspect] = ()
    """The task's calls in progress when worker processes ended."""
