"""What former versions of the engine have written is read, and they can read what this one writes.

`docs/how-to/upgrade.md` has the rules. A version gets a sample when it is released:
`python -m tests.versions.sample tests/versions/<version>.json.gz`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.protocol.codec import PROTOCOL_VERSION, Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    MalformedMessageError,
    OtherProtocolError,
    Processors,
)
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    UnreadableDeploymentError,
    Wish,
    records,
)
from kafka_pipeline.operations.savepoints.manifest import read_manifest
from kafka_pipeline.operations.savepoints.record_files import check_file, read_records
from tests.unit.common.wire import REPLICA, with_headers
from tests.unit.deployment.test_desired_state import JOB, NAMES
from tests.versions import reading
from tests.versions.sample import (
    MESSAGES,
    POSITION,
    RECORDS,
    SENT_AT_MS,
    STORES,
    WISHES,
    assignment,
    completed,
    contents,
    fill,
    made,
    sample,
)

FILES = sorted(Path(__file__).parent.glob("*.json.gz"))
ASSIGN, END = Codec(NAMES).encode(Processors(1, "me", 2, 3, assign=(REPLICA,)), 0)


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.name.removesuffix(".json.gz"))
def former(request: pytest.FixtureRequest) -> Any:
    """What a former version has written."""
    return reading.load(request.param)


@pytest.fixture(scope="module")
def today(former: Any) -> Any:
    """The same, as this version writes it."""
    texts = {name: its["text"] for name, its in former["pipelines"].items()}
    return json.loads(json.dumps(sample(texts)))


def test_there_is_a_former_version() -> None:
    assert FILES


# What a former version has written


@pytest.mark.parametrize("name", MESSAGES)
def test_message_of_a_former_version_is_read(former: Any, name: str) -> None:
    assert reading.message(former["messages"][name]) == MESSAGES[name]


@pytest.mark.parametrize("name", WISHES)
def test_wish_of_a_former_version_is_read(former: Any, name: str) -> None:
    assert reading.deployment(former["wishes"][name]).wish == WISHES[name]


def test_tasks_of_a_former_version_keep_their_fingerprints(former: Any) -> None:
    """Otherwise, all of them would start again when the JobManager is upgraded."""
    for its in former["pipelines"].values():
        version = reading.deployment(its["version"]).version(7)
        command = assignment(version.pipeline)
        found = {str(each.task): each.fingerprint for each in command.assign}
        assert found == its["fingerprints"]
        assert reading.message(its["assignment"]) == command
        # What was made of the file is in the record: a later version may make more of it.
        assert version == made(version.pipeline)


@pytest.mark.parametrize("family", STORES)
def test_state_of_a_former_version_is_read(former: Any, family: str) -> None:
    of_former, of_today = STORES[family].open_in_memory(), STORES[family].open_in_memory()
    changes = {
        bytes.fromhex(key): None if value is None else bytes.fromhex(value)
        for key, value in former["stores"][family].items()
    }
    of_former.restore(changes, len(changes))
    store = STORES[family].build(of_today)
    fill(family, store)
    found = contents(family, STORES[family].build(of_former))
    assert found == contents(family, store)
    assert found


def test_savepoint_of_a_former_version_is_read(former: Any, tmp_path: Path) -> None:
    reading.restore(tmp_path, former["savepoint"])
    manifest = read_manifest(tmp_path)
    assert manifest.pipeline_version().number == 7
    (saved,), (entry,) = manifest.stores[0].partitions, manifest.inputs
    check_file(tmp_path, RECORDS.topic, saved)
    (found,) = read_records(tmp_path, RECORDS.topic, saved.partition)
    assert [*found.rows()] == [
        *zip(RECORDS.keys, RECORDS.values, RECORDS.timestamps, RECORDS.headers or (), strict=True)
    ]
    assert entry.positions[0].committed.metadata == POSITION


# What this version writes


def only_adds(before: Any, now: Any, where: str = "") -> None:
    """Raise AssertionError unless `now` is `before`, perhaps with more fields in its objects."""
    if isinstance(before, str) and before[:1] in ("{", "["):
        before, now = json.loads(before), json.loads(now)
    if isinstance(before, dict):
        assert before.keys() <= now.keys(), where
        for name, value in before.items():
            only_adds(value, now[name], f"{where}/{name}")
    elif isinstance(before, list):
        assert len(before) == len(now), where
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            only_adds(one, other, f"{where}/{number}")
    else:
        assert before == now, where


@pytest.mark.parametrize("what", ["messages", "wishes", "pipelines", "stores"])
def test_this_version_writes_what_former_ones_wrote_and_perhaps_more(
    former: Any, today: Any, what: str
) -> None:
    assert former[what].keys() <= today[what].keys()
    only_adds(former[what], {name: today[what][name] for name in former[what]}, what)


# What a later version may write


def with_more(record: ControlRecord) -> ControlRecord:
    """Return a record with a header, and fields in its JSON, that this version does not know."""
    added: dict[str, bytes | None] = {"later": b"\xff"}
    for name in ("report", "figures"):
        if text := dict(record.headers).get(name):
            added[name] = json.dumps({**json.loads(text), "later": [1]}).encode()
    return with_headers(record, **added)


@pytest.mark.parametrize("name", MESSAGES)
def test_reports_of_a_later_version_may_have_more_fields(name: str) -> None:
    codec, found = Codec(NAMES), None
    for record in codec.encode(MESSAGES[name], SENT_AT_MS):
        found = codec.decode(with_more(record))
    assert found == MESSAGES[name]


def later_field(record: ControlRecord) -> ControlRecord:
    return replace(record, value=json.dumps({**json.loads(record.value), "later": 1}).encode())


def later_parameter(record: ControlRecord) -> ControlRecord:
    parameters = json.loads(dict(record.headers)["parameters"])
    return with_headers(record, parameters=json.dumps({**parameters, "later": 1}).encode())


def later_in_spec(record: ControlRecord) -> ControlRecord:
    parameters = {**json.loads(dict(record.headers)["parameters"]), "spec": {"later": 1}}
    return with_headers(record, parameters=json.dumps(parameters).encode())


def later_type(record: ControlRecord) -> ControlRecord:
    return replace(record, value=record.value.replace(b'"COUNT"', b'"LATER"'))


@pytest.mark.parametrize("change", [later_field, later_parameter, later_in_spec, later_type])
def test_task_that_only_a_later_version_understands_fails_alone(
    change: Callable[[ControlRecord], ControlRecord],
) -> None:
    """The other tasks of the command run, and the JobManager knows which version has failed."""
    other = replace(REPLICA, task=TaskId(REPLICA.name, 1))
    first, second, end = Codec(NAMES).encode(Processors(1, "me", 2, 3, assign=(REPLICA, other)), 0)
    codec = Codec(NAMES)
    assert codec.decode(change(first)) is codec.decode(second) is None
    found = codec.decode(end)
    assert isinstance(found, Processors)
    assert found.assign == (other,)
    (status,) = found.unreadable
    assert (status.task, status.state) == (REPLICA.task, TaskState.FAILED)
    assert status.fingerprint == REPLICA.fingerprint
    assert "cannot read the assignment" in status.reason
    assert "Install the version of the JobManager" in status.reason


def test_fingerprint_is_that_of_the_job_manager() -> None:
    """Another version may compute another one for the same task."""
    codec = Codec(NAMES)
    codec.decode(with_headers(ASSIGN, fingerprint=b"0123456789ab"))
    found = codec.decode(END)
    assert isinstance(found, Processors)
    assert [each.fingerprint for each in found.assign] == ["0123456789ab"]


@pytest.mark.parametrize("fingerprint", [b"", b"x" * 12, b"0" * 65])
def test_fingerprint_that_no_job_manager_wrote_is_malformed(fingerprint: bytes) -> None:
    codec = Codec(NAMES)
    codec.decode(with_headers(ASSIGN, fingerprint=fingerprint))
    with pytest.raises(MalformedMessageError):
        codec.decode(END)


@pytest.mark.parametrize(("number", "whose"), [(PROTOCOL_VERSION + 1, "newer"), (1, "older")])
def test_another_protocol_is_refused_with_what_to_do(number: int, whose: str) -> None:
    beat = MESSAGES["JobManager's last heartbeat"]
    (record,) = Codec(NAMES).encode(beat, SENT_AT_MS)
    other = replace(with_headers(record, version=b"%d" % number), timestamp_ms=SENT_AT_MS)
    with pytest.raises(OtherProtocolError, match=f"{whose} version .* stop all managers"):
        Codec(NAMES).decode(other)
    log = HeartbeatLog(JOB)
    log.take(other)
    assert f"protocol {number}" in log.status(SENT_AT_MS + 1).other_protocol
    assert not log.status(SENT_AT_MS + 3_600_000).other_protocol


def current(written: Iterable[ControlRecord]) -> PipelineVersion | None:
    deployment = Deployment(NAMES)
    for record in written:
        deployment.take(record)
    return deployment.current


@pytest.mark.parametrize("key", [b"version-7", b"wish"])
def test_pipeline_of_a_later_version_is_refused_with_what_to_do(key: bytes) -> None:
    """To leave out what is not known would run another pipeline."""
    version = made(completed("[{id: A, type: forward, to: [sink]}]"))
    written = {each.key: each for each in records(NAMES, Wish(version=7), version)}
    body = json.loads(written[key].value)
    where = body if key == b"wish" else body["processors"][0]
    where["later"] = 1
    written[key] = replace(written[key], value=json.dumps(body).encode())
    with pytest.raises(UnreadableDeploymentError, match=r"later.*newer version of the engine"):
        _ = current(written.values())


def test_version_of_a_later_version_may_have_more_fields() -> None:
    version = made(completed("[{id: A, type: forward, to: [sink]}]"))
    first, wish = records(NAMES, Wish(version=7), version)
    body = {**json.loads(first.value), "later": 1}
    assert current([replace(first, value=json.dumps(body).encode()), wish]) == version
