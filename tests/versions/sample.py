"""Writes a sample of all that one version of the engine leaves for another to read.

    python -m tests.versions.sample tests/versions/0.1.0.json.gz

Run it with the code of the version, in a clone where this file was added if it lacks it. The file
is what that version wrote, and stays as it is: later versions must read it.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_pipeline import serdes, stores
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
    replicas,
)
from kafka_pipeline.common.protocol.status import FIGURES, TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import (
    PipelineVersion,
    StopOrder,
    TakenBack,
    Trial,
    Wish,
    records,
    version_to_json,
)
from kafka_pipeline.operations.savepoints.manifest import (
    FORMAT,
    Manifest,
    SavedInput,
    SavedPosition,
    SavedStore,
    write_manifest,
)
from kafka_pipeline.operations.savepoints.record_files import RecordFile
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from tests.unit.deployment.test_desired_state import JOB, NAMES, PIPELINES
from tests.unit.streams.pipeline.loading import load

SENT_AT_MS = 1_700_000_000_123
_TASK, _COPY = TaskId("Counter", 0), TaskId("Counter", 1, 2)
_STATUS = TaskStatus(
    _TASK,
    TaskState.RESTARTING,
    "the broker was away",
    1,
    "0123456789ab",
    "in `process` of orders[3]@1200 for 12 s",
    {name: number for number, name in enumerate(FIGURES, 1)},
    {"expired": 3, "null key": 4},
    {"KeyError": 5},
    TaskId("Prices", 7),
    {"expired": 1},
    (KeyWarning("orders", KeyProblem.BYTES, "join", ("prices",), "int64"),),
    (Suspect("`process`", "orders", 3, 1200, 1210),),
)
_REPORT = Report(
    1,
    "a1b2c3",
    2,
    7,
    2,
    3,
    host="host",
    pid=99,
    thread_states=tuple(ThreadState),
    tasks=(_STATUS, TaskStatus(_COPY, TaskState.STANDBY, fingerprint="ba9876543210")),
    code={"shop": "f00d"},
    state_address="host:8080",
)
_CHANGED = replace(_REPORT, beat=8, base=7, tasks=(_STATUS,), closed=(_COPY,), code={})
MESSAGES: Mapping[str, Message] = {
    "sos": Sos(-1, "jm1"),
    "introduction": Threads(_REPORT),
    "full report": Heartbeat(_REPORT),
    "partial report": Heartbeat(_CHANGED),
    "last report": Heartbeat(replace(_REPORT, leaving=True, tasks=())),
    "report in parts": Heartbeat(
        replace(
            _REPORT,
            tasks=tuple(
                TaskStatus(TaskId("Counter", n), TaskState.FAILED, "x" * 10, activity="y" * 900)
                for n in range(1000)
            ),
        )
    ),
    "JobManager's heartbeat": JobManagerBeat(
        3,
        SENT_AT_MS,
        {_TASK: 1, _COPY: None},
        held=frozenset({"Prices"}),
        held_tasks=frozenset({TaskId("Orders", 1)}),
        findings=("nobody reads orders[3]",),
        unread={"Orders": 12},
    ),
    "JobManager's last heartbeat": JobManagerBeat(3, SENT_AT_MS, {}, leaving=True),
    "down": HeartbeatEvent(1, is_up=False),
    "up": HeartbeatEvent(1, is_up=True),
    "refusal": Refused(1, "a1b2c3", 3, "id 1 is taken"),
    "request for a report": ReportRequest(1, "a1b2c3", 3),
    "revocation": Processors(1, "a1b2c3", 3, 4, revoke=(_TASK, _COPY)),
}
WISHES: Mapping[str, Wish] = {
    "version": Wish(version=7),
    "all fields": Wish(
        version=7,
        next=8,
        paused=("Prices",),
        paused_tasks=("Counter_0",),
        drains=True,
        restarts={"Counter": 2},
        stop=StopOrder(purpose="savepoint", token="t0", by="ada@host", drains=True),
        task_managers=3,
        trial=Trial(back_to=6, within_ms=120_000),
    ),
}


def completed(text: str) -> Pipeline:
    """Return the pipeline of a pipeline.yaml, completed with what Kafka has."""
    loaded = with_matching_topics(load(text, JOB), ["lines_1", "lines_2", "other"])
    return with_counts(loaded, dict.fromkeys(loaded.user_topics, 3))


def made(pipeline: Pipeline) -> PipelineVersion:
    """Return a version with a pipeline."""
    back = TakenBack(version=6, to=5, reason="Counter_0 is FAILED", savepoint="host:/sp")
    return PipelineVersion(7, pipeline, "# Größe\n", SENT_AT_MS, "ada@host", back, "host:/sp/7")


def assignment(pipeline: Pipeline) -> Processors:
    """Return a command with all tasks of a pipeline, with a copy of each state."""
    first, *others = replicas(pipeline, 1, {"Balance": 2}, {"Balance": {"former_topic"}})
    warned = replace(first, suspects=_STATUS.suspects)
    return Processors(1, "a1b2c3", 3, 5, assign=(warned, *others))


STORES: Mapping[str, stores.StoreBuilder[Any, Any]] = {
    "key_value": stores.key_value("s", serdes.string, serdes.int64),
    "format": stores.key_value("s", serdes.string, serdes.json).with_format(2, lambda v, _: v),
    "timestamped": stores.timestamped_key_value("s", serdes.string, serdes.json),
    "window": stores.window(
        "s", serdes.string, serdes.int64, retention_ms=60_000, window_size_ms=1_000
    ),
    "duplicates": stores.window(
        "s",
        serdes.string,
        serdes.int64,
        retention_ms=60_000,
        window_size_ms=1_000,
        retain_duplicates=True,
    ),
    "session": stores.session("s", serdes.string, serdes.int64, retention_ms=60_000),
    "versioned": stores.versioned_key_value(
        "s", serdes.string, serdes.string, history_retention_ms=60_000
    ),
}


def fill(family: str, store: Any) -> None:
    """Put what `contents` then finds."""
    match family:
        case "key_value":
            store.put_all({"a": 1, "größe": -2})
        case "format":
            store.put("a", {"n": 1})
        case "timestamped":
            store.put("a", stores.ValueAndTimestamp([1, None], 1_700_000_000_123))
        case "window" | "duplicates":
            for number, start in enumerate((0, 0, 1_000, 59_000)):
                store.put("a", number, start)
        case "session":
            store.put(stores.Windowed("a", stores.Window(5, 70)), 4)
            store.put(stores.Windowed("b", stores.Window(9, 9)), 5)
        case "versioned":
            store.put("a", "old", 10)
            store.put("a", None, 20)
            store.put("a", "new", 30)


def contents(family: str, store: Any) -> list[Any]:
    """Return all that a store has, as its public methods return it."""
    match family:
        case "session":
            return [*store.fetch("a"), *store.fetch("b")]
        case "versioned":
            return [*store.get_versions("a")]
    return [*store.all()]


RECORDS = RecordBatch(
    "state_topic_Balance_job",
    1,
    [b"a", b"\xff", None],
    [b"1", None, b""],
    [1_000, 2_000, 3_000],
    [0, 1, 2],
    [None, [], [("h", b"1"), ("h", None)]],
)
POSITION = "4:1700000000123:3:12:expired=1:9:1700000000123:1700000000000:1:0a1b2c3d=60001"


def write_savepoint(folder: Path, pipeline: Pipeline) -> None:
    """Write a savepoint with a state, and a position in an input."""
    file = RecordFile(folder, RECORDS.topic, RECORDS.partition)
    file.write(RECORDS)
    manifest = Manifest(
        format=FORMAT,
        job="job",
        cluster="c",
        made_at_ms=SENT_AT_MS,
        made_by="ada@host",
        stopped_ms=250,
        token="t0",
        version=version_to_json(made(pipeline)),
        stores=(
            SavedStore(
                processor="Balance",
                store="Balances",
                topic=RECORDS.topic,
                partitions=(file.finish(),),
            ),
        ),
        inputs=(
            SavedInput(
                processor="Balance",
                name="deposits",
                topic="deposits_topic",
                topic_id="id",
                is_arc=False,
                positions=(SavedPosition(partition=0, offset=7, metadata=POSITION),),
            ),
        ),
    )
    write_manifest(folder, manifest, "[]\n")


def sample(texts: Mapping[str, str] = PIPELINES) -> dict[str, Any]:
    """Return all that this version writes, as JSON; `texts` are those of pipelines."""
    pipelines = {name: completed(text) for name, text in texts.items()}
    codec = Codec(NAMES)
    with tempfile.TemporaryDirectory() as folder:
        write_savepoint(Path(folder), pipelines["class"])
        savepoint = {path.name: path.read_bytes().hex() for path in Path(folder).iterdir()}
    return {
        "messages": {
            name: _plain(codec.encode(message, SENT_AT_MS)) for name, message in MESSAGES.items()
        },
        "wishes": {name: _plain(records(NAMES, wish)) for name, wish in WISHES.items()},
        "pipelines": {
            name: {
                "text": texts[name],
                "version": _plain(records(NAMES, Wish(version=7), made(pipeline))),
                "assignment": _plain(codec.encode(assignment(pipeline), SENT_AT_MS)),
                "fingerprints": {
                    str(each.task): each.fingerprint for each in assignment(pipeline).assign
                },
            }
            for name, pipeline in pipelines.items()
        },
        "stores": {family: _changes(family) for family in STORES},
        "savepoint": savepoint,
    }


def write(file: Path, texts: Mapping[str, str] = PIPELINES) -> None:
    """Write the sample of this version."""
    file.write_bytes(gzip.compress(json.dumps(sample(texts), indent=0).encode(), mtime=0))


def _changes(family: str) -> dict[str, str | None]:
    """Return what a filled store sends to its state topic, in hexadecimal."""
    in_memory = STORES[family].open_in_memory()
    fill(family, STORES[family].build(in_memory))
    changes = in_memory.uncommitted
    return {k.hex(): None if v is None else v.hex() for k, v in changes.items()}


def _plain(written: Iterable[ControlRecord]) -> list[Any]:
    """Return records as JSON: bytes as Latin-1, which is readable."""
    return [
        [
            each.topic,
            each.key.decode("latin-1"),
            each.value.decode("latin-1"),
            {name: value.decode("latin-1") for name, value in each.headers},
        ]
        for each in written
    ]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
