"""Control records with names that leave a folder, or are not topic names, are malformed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.specs import TopologySpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    MalformedMessageError,
    ProcessorReplica,
    Processors,
    Report,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames

NAMES = TopicNames("job_1", "source_topic", "sink_topic")
REPLICA = ProcessorReplica(
    TaskId("Shop", 0),
    TopologySpec(
        code="shop:build",
        group="source",
        internal={"again": None},
        followed={"names": "names_topic"},
    ),
    ("source",),
    ("sink",),
    ("source_topic",),
    ("sink_topic",),
    {"orders": "state_topic_Shop_orders_job_1"},
    dead_letter_topic="Shop_dead_letter_job_1",
)

traversals = st.lists(st.sampled_from(["..", ".", "a", "", "~", "_0"]), min_size=1).map("/".join)
hostile = (traversals | st.text(max_size=10) | st.sampled_from(["a" * 250, "a\0", "a\n"])).filter(
    lambda name: name_problem(name) is not None
)

Places = Mapping[str, Callable[[Any, Any, Any], object]]
PLACES: Places = {
    "processor": lambda body, _, name: body.update(ID=name),
    "from": lambda body, _, name: body.update({"from": [name]}),
    "to": lambda body, _, name: body.update(to=[name]),
    "input": lambda body, _, name: body.update(inTopics=[name]),
    "output": lambda body, _, name: body.update(outTopics=[name]),
    "state topic": lambda body, _, name: body.update(stateTopic=name),
    "store": lambda _, more, name: more.update(state_topics={name: "topic"}),
    "topic of a store": lambda _, more, name: more.update(state_topics={"orders": name}),
    "dead letters": lambda _, more, name: more.update(dead_letter_topic=name),
    "store of a class": lambda body, more, name: (
        body.update(type="CLASS"),
        more.update(spec={"code": "shop:A", "stores": [{"name": name}]}),
    ),
    "global store": lambda _, more, name: more["spec"].update(followed={name: "topic"}),
    "global topic": lambda _, more, name: more["spec"].update(followed={"names": name}),
    "internal topic": lambda _, more, name: more["spec"].update(internal={name: 1}),
    "node group": lambda _, more, name: more["spec"].update(group=name),
}


def assignment(place: str | None = None, name: str = "") -> list[ControlRecord]:
    """Return the records of a command, with one name of the assigned processor exchanged."""
    assign, end = Codec(NAMES).encode(Processors(1, "me", 2, 3, assign=(REPLICA,)), 0)
    headers = dict(assign.headers)
    body, more = json.loads(assign.value), json.loads(headers["parameters"])
    if place is not None:
        PLACES[place](body, more, name)
    headers["parameters"] = json.dumps(more).encode()
    return [replace(assign, value=json.dumps(body).encode(), headers=tuple(headers.items())), end]


def decode(records: list[ControlRecord]) -> object:
    codec = Codec(NAMES)
    return [codec.decode(record) for record in records][-1]


def with_header(record: ControlRecord, name: str, value: str) -> ControlRecord:
    headers = {**dict(record.headers), name: value.encode()}
    return replace(record, headers=tuple(headers.items()))


def test_the_command_is_sound_as_long_as_no_name_is_exchanged() -> None:
    assert decode(assignment()) == Processors(1, "me", 2, 3, assign=(REPLICA,))


def require_refused(place: str, name: str) -> None:
    """Without a sound id there is no task; with one, it cannot run."""
    if place == "processor":
        with pytest.raises(MalformedMessageError):
            decode(assignment(place, name))
        return
    command = decode(assignment(place, name))
    assert isinstance(command, Processors)
    assert not command.assign
    (refused,) = command.unreadable
    assert (refused.task, refused.state) == (TaskId("Shop", 0), TaskState.FAILED)


@given(st.sampled_from(sorted(PLACES)), hostile)
def test_an_assignment_with_a_hostile_name_is_refused(place: str, name: str) -> None:
    require_refused(place, name)


@pytest.mark.parametrize("place", PLACES)
def test_a_path_is_a_hostile_name_in_every_place(place: str) -> None:
    require_refused(place, "../../home")


@given(hostile)
def test_a_revocation_of_a_hostile_id_is_malformed(name: str) -> None:
    revoke, end = Codec(NAMES).encode(Processors(1, "me", 2, 3, revoke=(TaskId("Shop", 0),)), 0)
    value = json.dumps({"pipelineID": 0, "ID": name}).encode()
    with pytest.raises(MalformedMessageError):
        decode([replace(revoke, value=value), end])


@given(hostile)
def test_a_report_of_a_task_with_a_hostile_id_is_malformed(name: str) -> None:
    report = Report(1, "me", 1, 1, tasks=(TaskStatus(TaskId("Shop", 0), TaskState.RUNNING),))
    (record,) = Codec(NAMES).encode(Heartbeat(report), 0)
    body = json.loads(dict(record.headers)["report"])
    body["tasks"]["task"] = [f"{name}_0"]
    with pytest.raises(MalformedMessageError):
        decode([with_header(record, "report", json.dumps(body))])


@given(hostile)
def test_an_owner_of_a_task_with_a_hostile_id_is_malformed(name: str) -> None:
    (record,) = Codec(NAMES).encode(JobManagerBeat(2, 0, {TaskId("Shop", 0): 1}), 0)
    body = json.dumps({"epoch": 2, "owners": {f"{name}_0": 1}})
    with pytest.raises(MalformedMessageError):
        decode([with_header(record, "report", body)])


@pytest.mark.parametrize("key", ["-1", "+1", "1_0", " 1", "01", "../1", "1" * 20, ""])
def test_a_key_that_is_not_the_id_of_a_taskmanager_is_malformed(key: str) -> None:
    """Topics are named after it."""
    for topic in (NAMES.heartbeat_events, NAMES.processors(key), NAMES.processors("1")):
        for value in (b"up", b"eos"):
            _, end = assignment()
            with pytest.raises(MalformedMessageError):
                decode([replace(end, topic=topic, key=key.encode(), value=value)])
