"""The names and policies of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import ClassSpec, CountSpec, SumSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames, collision_key, job_names
from kafka_pipeline.common.topics import STATE_NEEDS, TopicSpec, state_policy
from tests.small_config import small_config

COUNTS = (LoggedStore("counts"),)
CONFIG = small_config(tm_number=2, parallelism=4, replication_factor=3)
ADDER = PipelineProcessor("Adder", SumSpec(), ("Counter",), (SOURCE,), OnError.DEAD_LETTER)
COUNTER = PipelineProcessor("Counter", CountSpec(), (SINK,), ("Adder",), stores=COUNTS)
BARE = TopicNames(None, "in", "out")
OF_JOB = TopicNames("x", "in", "out")

ids = st.text(alphabet="ab_01.-", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("bare", "of_job", "expected"),
    [
        (BARE.arc("p1", "p2"), OF_JOB.arc("p1", "p2"), "p1_p2"),
        (BARE.state("p"), OF_JOB.state("p"), "state_topic_p"),
        (BARE.dead_letter("p"), OF_JOB.dead_letter("p"), "p_dead_letter"),
        (BARE.threads_jm, OF_JOB.threads_jm, "threads_jm_topic"),
        (BARE.threads_tm, OF_JOB.threads_tm, "threads_tm_topic"),
        (BARE.processors("0"), OF_JOB.processors("0"), "processors_topic_0"),
        (BARE.heartbeat, OF_JOB.heartbeat, "heartbeat_topic"),
        (BARE.heartbeat_events, OF_JOB.heartbeat_events, "heartbeat_events_topic"),
        (BARE.fetch_group, OF_JOB.fetch_group, "processors"),
        (BARE.consumer_group("P"), OF_JOB.consumer_group("P"), "processors_P"),
    ],
)
def test_names_end_in_the_job_name_where_there_is_one(
    bare: str, of_job: str, expected: str
) -> None:
    assert (bare, of_job) == (expected, f"{expected}_x")


def test_source_and_sink_never_carry_the_job_name() -> None:
    pipeline = Pipeline((ADDER, COUNTER), OF_JOB, 2)
    assert pipeline.in_topics(ADDER) == ("in",)
    assert pipeline.out_topics(ADDER) == ("Adder_Counter_x",)
    assert pipeline.in_topics(COUNTER) == ("Adder_Counter_x",)
    assert pipeline.out_topics(COUNTER) == ("out",)


def test_transactional_ids_begin_with_the_job_name() -> None:
    task = TaskId("Counter", 3)
    assert BARE.transactional_id(task) == "/task/Counter_3"
    assert OF_JOB.transactional_id(task) == "x/task/Counter_3"
    assert BARE.jobmanager_transactional_id == "/jobmanager"
    assert OF_JOB.jobmanager_transactional_id == "x/jobmanager"


@given(
    st.one_of(st.none(), ids), st.one_of(st.none(), ids), st.builds(TaskId, ids, st.integers(0, 20))
)
def test_a_right_on_the_ids_of_a_jobs_tasks_is_a_right_on_nothing_else(
    job_name: str | None, other: str | None, task: TaskId
) -> None:
    names, others = TopicNames(job_name, "in", "out"), TopicNames(other, "in", "out")
    assert names.transactional_id(task).startswith(names.task_ids)
    theirs = [
        others.jobmanager_transactional_id,
        others.pipeline_transactional_id,
        others.dead_letters_transactional_id,
        others.tool_transactional_id("restore"),
        *([others.transactional_id(task)] if job_name != other else []),
    ]
    assert not [id_ for id_ in theirs if id_.startswith(names.task_ids)]
    tools = [*theirs[:3], names.transactional_id(task)]
    assert not [id_ for id_ in tools if id_.startswith(names.tool_ids)]


@given(
    st.one_of(st.none(), ids),
    st.lists(st.builds(TaskId, ids, st.integers(0, 20)), unique=True, max_size=20),
)
def test_transactional_ids_of_one_job_are_all_different(
    job_name: str | None, tasks: list[TaskId]
) -> None:
    names = TopicNames(job_name, "in", "out")
    all_ids = [names.transactional_id(task) for task in tasks]
    all_ids.append(names.jobmanager_transactional_id)
    assert len(set(all_ids)) == len(all_ids)


def test_data_topics_have_one_partition_per_replica_and_compacted_state() -> None:
    def spec(name: str, config: dict[str, str], *needs: str) -> TopicSpec:
        return TopicSpec(name, 4, 3, config, frozenset(needs))

    takes_all = {
        "max.message.bytes": "100000000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.after.max.ms": "9223372036854775807",
    }
    keep = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        **takes_all,
    }
    compact = {
        "cleanup.policy": "compact",
        "segment.bytes": "67108864",
        "delete.retention.ms": "604800000",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "100000000",
    }
    assert Pipeline((ADDER, COUNTER), CONFIG.topic_names, 4).data_topics(3) == (
        spec("in", {}),
        spec("Adder_Counter", keep, "cleanup.policy", "retention.ms", "retention.bytes"),
        spec("state_topic_Counter", compact, *STATE_NEEDS),
        spec("Adder_dead_letter", keep),
        spec("out", {}),
    )


def test_control_topics_have_one_partition_and_one_command_topic_per_taskmanager() -> None:
    topics = control_topics(replace(CONFIG, job_name="x"))
    assert [topic.name for topic in topics] == [
        "threads_jm_topic_x",
        "threads_tm_topic_x",
        "processors_topic_0_x",
        "processors_topic_1_x",
        "heartbeat_topic_x",
        "heartbeat_events_topic_x",
        "pipeline_topic_x",
    ]
    assert {(topic.partitions, topic.replication_factor) for topic in topics} == {(1, 3)}


def test_only_heartbeats_are_deleted_after_a_time() -> None:
    topics = {topic.name: topic.config for topic in control_topics(CONFIG)}
    assert topics.pop("heartbeat_topic")["retention.ms"] == "3600000"
    assert {config["retention.bytes"] for config in topics.values()} == {"-1"}
    assert topics.pop("pipeline_topic")["cleanup.policy"] == "delete"
    assert {config["retention.ms"] for config in topics.values()} == {"-1"}


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("threads_jm_topic_x", 'the control topic "threads_jm_topic_x"'),
        ("heartbeat.topic_x", 'the control topic "heartbeat_topic_x"'),
        ("rehearsal_topic_x", 'the control topic "rehearsal_topic_x"'),
        ("processors_topic_77_x", 'one of the control topics "processors_topic_<id>_x"'),
        ("processors_topic_a.b_x", 'one of the control topics "processors_topic_<id>_x"'),
        ("__consumer_offsets", 'Kafka\'s own topic "__consumer_offsets"'),
        ("heartbeat_topic", None),
        ("processors_topic_x", None),
        ("processors_topic_77", None),
        ("in", None),
    ],
)
def test_names_of_control_topics_and_of_kafka_are_reserved(name: str, owner: str | None) -> None:
    assert OF_JOB.reserved_for(name) == owner


@given(st.one_of(st.none(), ids), st.integers(0, 9))
def test_every_control_topic_is_reserved(job_name: str | None, tm_number: int) -> None:
    config = replace(CONFIG, job_name=job_name, tm_number=tm_number)
    for topic in control_topics(config):
        assert config.topic_names.reserved_for(topic.name)


def test_dot_and_underscore_are_the_same_to_kafka() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b_c")


def test_a_store_called_counts_never_has_the_topic_of_a_count() -> None:
    """This holds even if a class replaces a `count` in pipeline.yaml."""
    count = PipelineProcessor("A", CountSpec(), (SINK,), (SOURCE,), stores=COUNTS)
    class_ = PipelineProcessor(
        "A", ClassSpec(code="shop:A"), (SINK,), (SOURCE,), stores=(LoggedStore("counts"),)
    )
    pipeline = Pipeline((count, class_), OF_JOB, 2)
    assert pipeline.state_topics(count) == {"counts": "state_topic_A_x"}
    assert pipeline.state_topics(class_) == {"counts": "state_topic_A_counts_x"}


def test_jobs_are_known_by_their_control_topics() -> None:
    topics = {OF_JOB.threads_jm, "threads_jm_topic_a_b", "threads_tm_topic_y", "clicks_z"}
    assert job_names(topics) == {"x", "a_b"}
    assert job_names({BARE.threads_jm}) == {None}


@pytest.mark.parametrize(
    ("names", "topic", "expected"),
    [(OF_JOB, "A_B_x", True), (OF_JOB, "A_B", False), (OF_JOB, "A_Bx", False), (BARE, "A_B", True)],
)
def test_what_a_job_may_own_ends_with_its_name(
    names: TopicNames, topic: str, expected: bool
) -> None:
    assert names.may_own(topic) is expected


GOOD_STATE = {
    "cleanup.policy": "compact",
    "retention.ms": "604800000",
    "delete.retention.ms": "604800000",
    "message.timestamp.type": "LogAppendTime",
}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({}, None),
        ({"delete.retention.ms": "999999999999"}, None),
        ({"cleanup.policy": "delete"}, "cleanup.policy is delete, and must be compact"),
        # A store without windows keeps its state for ever.
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy is compact,delete"),
        ({"delete.retention.ms": "86400000"}, "delete.retention.ms is 86400000, and must be"),
        ({"message.timestamp.type": "CreateTime"}, "message.timestamp.type is CreateTime"),
    ],
)
def test_state_topic_that_loses_state_is_found(found: dict[str, str], problem: str | None) -> None:
    topics = Pipeline((ADDER, COUNTER), CONFIG.topic_names, 4).data_topics(3)
    (state,) = (spec for spec in topics if spec.name == "state_topic_Counter")
    misfits = list(state.misfits({**GOOD_STATE, **found}))
    assert len(misfits) == (problem is not None)
    if problem:
        assert misfits[0].startswith(f"topic state_topic_Counter: {problem}")
        assert "kafka-configs.sh --alter" in misfits[0]


def test_state_topics_have_no_limit_of_size_if_kafka_would_delete_by_it() -> None:
    policy = state_policy({"cleanup.policy": "compact,delete", "retention.ms": "604800009"})
    assert policy["retention.bytes"] == "-1"
    spec = TopicSpec("t", 1, 1, policy, STATE_NEEDS)
    by_broker = {**policy, "retention.bytes": "1073741824"}
    assert [each.split(", ")[0] for each in spec.misfits(by_broker)] == [
        "topic t: retention.bytes is 1073741824"
    ]
    # Without windows, nothing is deleted for its age or size.
    assert "retention.bytes" not in state_policy({"cleanup.policy": "compact"})


@pytest.mark.parametrize(
    ("wanted", "found", "is_right"),
    [
        ("-1", "-1", True),
        ("-1", "604800000", False),
        ("86400000", "-1", True),
        ("86400000", "86400001", True),
        ("86400000", "86399999", False),
    ],
)
@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_topic_that_keeps_more_is_right(name: str, wanted: str, found: str, is_right: bool) -> None:
    spec = TopicSpec("t", 1, 1, {name: wanted}, frozenset({name}))
    assert bool(list(spec.misfits({name: found}))) != is_right


def test_order_of_policies_plays_no_role_and_what_is_not_needed_is_not_looked_at() -> None:
    config = {"cleanup.policy": "compact,delete", "segment.bytes": "1"}
    spec = TopicSpec("t", 1, 1, config, frozenset({"cleanup.policy"}))
    assert not list(spec.misfits({"cleanup.policy": "delete, compact", "segment.bytes": "2"}))


def test_two_copies_must_have_a_record_if_there_are_three() -> None:
    assert TopicSpec("t", 1, 3, {"a": "b"}).made_with == {"a": "b", "min.insync.replicas": "2"}
    assert TopicSpec("t", 1, 2, {"a": "b"}).made_with == {"a": "b"}
    assert TopicSpec("t", 1, 3, {"min.insync.replicas": "3"}).made_with == {
        "min.insync.replicas": "3"
    }
