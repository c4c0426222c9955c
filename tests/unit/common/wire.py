"""Messages for tests of the codec: strategies, examples, and ways to damage a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kafka_pipeline.common.pipelines.lookup_tables import TableSpec
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    COUNT_STORE,
    AsyncSpec,
    CalendarSpec,
    ClassSpec,
    CountSpec,
    DataFrameSpec,
    FieldTime,
    ForwardSpec,
    GroupingSpec,
    PatternSpec,
    ProcessorSpec,
    RecordSerdes,
    Serdes,
    SessionSpec,
    SourceSpec,
    SqlSpec,
    SumSpec,
    TopologySpec,
    WindowSpec,
)
from kafka_pipeline.common.pipelines.store_specs import StoreSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    MalformedMessageError,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.status import FIGURES, TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import LARGEST

NAMES = TopicNames("job_1", "source_topic_job_1", "sink_topic_job_1")
SENT_AT_MS = 1_700_000_000_123

ids = st.text(alphabet="abZ09._-", min_size=1, max_size=8).filter(
    lambda id_: id_ not in (".", "..")
)
texts = st.text(max_size=20)
numbers = st.integers(0, LARGEST)
tm_ids = st.integers(0, 10_000)
tasks = st.builds(TaskId, ids, st.integers(0, 10_000), st.integers(0, 3))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
configs = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts, max_size=3)
key_warnings = st.builds(
    KeyWarning,
    texts,
    st.sampled_from(KeyProblem),
    texts,
    st.lists(texts, max_size=2).map(tuple),
    texts,
)
statuses = st.builds(
    TaskStatus,
    tasks,
    st.sampled_from(TaskState),
    texts,
    numbers,
    texts,
    texts,
    st.dictionaries(st.sampled_from(sorted(FIGURES)), numbers, max_size=4),
    st.dictionaries(texts, numbers, max_size=3),
    st.dictionaries(texts, numbers, max_size=3),
    st.none() | tasks,
    st.dictionaries(texts, numbers, max_size=3),
    st.lists(key_warnings, max_size=2).map(tuple),
)
reports = st.builds(
    Report,
    tm_ids,
    texts,
    st.integers(1, 100),
    numbers,
    st.integers(-1, LARGEST),
    numbers,
    st.booleans(),
    texts,
    numbers,
    st.lists(st.sampled_from(ThreadState), max_size=4).map(tuple),
    st.lists(statuses, max_size=4, unique_by=lambda status: status.task).map(tuple),
    st.none() | numbers,
    st.lists(tasks, max_size=3).map(tuple),
)
references = st.just("shop:A") | texts
sources = st.builds(
    SourceSpec,
    key=st.none() | texts,
    value=st.none() | texts,
    timestamp=st.sampled_from([None, "wall_clock", FieldTime(field="at", unit="s")]),
    auto_offset_reset=st.sampled_from(["earliest", "latest"]),
)
stores = st.builds(
    StoreSpec,
    name=ids,
    type=st.sampled_from(["key_value", "window"]),
    logged=st.booleans(),
    retention_ms=st.none() | numbers,
    format=st.integers(1, 255),
    upgrade=texts,
    former=st.lists(texts, max_size=2).map(tuple),
)
groupings = st.builds(
    GroupingSpec,
    window=st.one_of(
        st.none(),
        st.builds(
            WindowSpec,
            size_ms=st.integers(1, 9),
            slide_ms=st.integers(1, 9),
            start_ms=st.integers(-9, 9),
        ),
        st.builds(CalendarSpec, period=texts, zone=texts),
        st.builds(SessionSpec, gap_ms=st.integers(1, 9)),
    ),
    emit=st.sampled_from(["on_update", "on_close"]),
    grace_ms=numbers,
    late_to=st.none() | ids,
    max_collected=st.integers(1, 9),
    stage=st.sampled_from(["whole", "rows", "groups"]),
)
specs: st.SearchStrategy[ProcessorSpec] = st.one_of(
    st.builds(ForwardSpec),
    st.builds(SumSpec, constant=st.integers()),
    st.builds(CountSpec),
    st.builds(
        SqlSpec,
        query=texts,
        format=st.sampled_from(["string", "json"]),
        tables=st.dictionaries(texts, st.builds(TableSpec, format=texts, refresh_s=numbers)),
        grouping=st.none() | groupings,
    ),
    st.builds(
        DataFrameSpec,
        code=references,
        config=configs,
        schema=texts,
        grouping=st.none() | groupings,
    ),
    st.builds(
        ClassSpec,
        code=references,
        config=configs,
        max_task_idle_ms=st.integers(-1, 9),
        serdes=st.builds(Serdes, key=texts, out_value=texts),
        stores=st.lists(stores, max_size=2).map(tuple),
        asynchronous=st.builds(AsyncSpec, ordered=st.sampled_from([None, True, "key"])),
    ),
    st.builds(
        TopologySpec,
        code=references,
        config=configs,
        group=ids,
        internal=st.dictionaries(ids, st.none() | st.integers(1, 9), max_size=2),
        serdes=st.dictionaries(ids, st.builds(RecordSerdes, key=texts, value=texts), max_size=2),
        followed=st.dictionaries(ids, ids, max_size=2),
        patterns=st.lists(st.builds(PatternSpec, pattern=texts, flags=numbers), max_size=2).map(
            tuple
        ),
    ),
)
ends = st.lists(st.tuples(ids, ids), max_size=3)
replica_values = st.builds(
    lambda task, type_, inputs, outputs, *others: ProcessorReplica(
        task,
        type_,
        tuple(from_ for from_, _ in inputs),
        tuple(to for to, _ in outputs),
        tuple(topic for _, topic in inputs),
        tuple(topic for _, topic in outputs),
        *others,
    ),
    tasks,
    specs,
    ends,
    ends,
    st.dictionaries(ids, ids, max_size=3),
    st.none() | ids,
    st.sampled_from(OnError),
    st.none() | st.integers(1, 2**31),
    st.dictionaries(ids, sources, max_size=2),
    st.dictionaries(ids, st.integers(1, 2**31), max_size=2),
    numbers,
    st.none(),
    st.lists(ids, max_size=2).map(tuple),
)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Sos, numbers, texts),
    st.builds(Threads, reports),
    st.builds(Heartbeat, reports),
    st.builds(
        JobManagerBeat,
        numbers,
        st.just(SENT_AT_MS),
        st.dictionaries(tasks, st.none() | tm_ids, max_size=4),
        st.booleans(),
    ),
    st.builds(
        Processors,
        tm_ids,
        texts,
        numbers,
        numbers,
        st.lists(replica_values, max_size=3).map(tuple),
        st.lists(tasks, max_size=3).map(tuple),
    ),
    st.builds(Refused, tm_ids, texts, numbers, texts),
    st.builds(ReportRequest, tm_ids, texts, numbers),
    st.builds(HeartbeatEvent, tm_ids, st.booleans()),
)

RUNNING = TaskStatus(
    TaskId("Counter", 0), TaskState.RUNNING, fingerprint="f00d", figures={"records_in": 3}
)
REPORT = Report(1, "a1b2", 4, 7, 2, 3, False, "host", 99, (ThreadState.RUNNING,), (RUNNING,))
REPLICA = ProcessorReplica(
    TaskId("Counter", 0),
    CountSpec(),
    ("Adder",),
    ("sink",),
    ("Adder_Counter_job_1",),
    ("sink_topic_job_1",),
    {COUNT_STORE: "state_topic_Counter_job_1"},
)


def encode(message: Message) -> list[ControlRecord]:
    """Encode, with the offset that the broker would give to an `sos`."""
    records = Codec(NAMES).encode(message, SENT_AT_MS)
    if isinstance(message, Sos):
        return [replace(record, offset=message.epoch) for record in records]
    return records


def decode(records: list[ControlRecord]) -> Message | None:
    codec = Codec(NAMES)
    *others, last = [codec.decode(record) for record in records]
    assert others == [None] * len(others)
    return last


def with_headers(record: ControlRecord, **headers: bytes | None) -> ControlRecord:
    """Return a copy with other headers; None removes one."""
    changed = {**dict(record.headers), **headers}
    kept = tuple((name, value) for name, value in changed.items() if value is not None)
    return replace(record, headers=kept)


def is_malformed(record: ControlRecord, codec: Codec | None = None) -> bool:
    try:
        (codec or Codec(NAMES)).decode(record)
    except MalformedMessageError:
        return True
    return False


def mutate(body: Any, data: st.DataObject) -> Any:
    """Replace one thing, anywhere in a JSON document, by something else."""
    if isinstance(body, dict) and body and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(body)))
        return {**body, name: mutate(body[name], data)}
    if isinstance(body, list) and body and data.draw(st.booleans()):
        return [mutate(body[0], data), *body[1:]]
    return data.draw(json_values)
