"""How many partitions topics have, how many tasks that makes, and which topics fit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.deployment.desired_state import is_same
from kafka_pipeline.deployment.plan import plan
from kafka_pipeline.deployment.prepare import check_parallelism, with_partitions
from kafka_pipeline.streams.pipeline.partitions import check_co_partitioning, with_more_partitions
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from tests.small_config import small_config
from tests.unit.streams.pipeline.loading import load

CONFIG = small_config(job_name="job", parallelism=2, modules=("shop", "tests.user_code"))
NAMES = CONFIG.topic_names
SOURCES = "sources: {a: a_topic, b: b_topic}\nsinks: {c: c_topic}\nprocessors:\n"
TAKES_BOTH = "{id: P, type: %s, from: [a, b], to: [c]}"


class FakeAdmin:
    """Has topics; asked for others, it leaves them out, as they do not exist."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self.asked: set[str] = set()

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        wanted = set(names)
        self.asked |= wanted
        return {name: count for name, count in self._counts.items() if name in wanted}


def in_kafka(text: str, counts: Mapping[str, int]) -> Pipeline:
    """Return a pipeline where topics have so many partitions."""
    return with_partitions(load(text, CONFIG), cast(Admin, FakeAdmin(counts)))


def reads(loaded: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return the tasks, with what they read."""
    units = replicas(loaded)
    assert [unit.task for unit in units] == list(loaded.tasks)
    return {str(unit.task): unit.in_topics for unit in units}


# --- tasks ---


def test_only_topics_of_the_user_are_looked_up() -> None:
    text = SOURCES + "- {id: P, type: count, from: [a], to: [Q]}\n- {id: Q, type: sum, to: [c]}"
    admin = FakeAdmin({})
    with_partitions(load(text, CONFIG), cast(Admin, admin))
    assert admin.asked == {"a_topic", "c_topic"}


def test_topics_that_do_not_exist_yet_have_the_parallelism() -> None:
    loaded = in_kafka(SOURCES + "- " + TAKES_BOTH % "sum", {})
    assert loaded == load(SOURCES + "- " + TAKES_BOTH % "sum", CONFIG)
    assert reads(loaded) == dict.fromkeys(("P_0", "P_1"), ("a_topic", "b_topic"))
    assert {spec.partitions for spec in loaded.data_topics(CONFIG.replication_factor)} == {2}


def test_tasks_know_the_partitions_of_the_arcs_that_they_write_to() -> None:
    text = SOURCES + "- {id: P, type: count, from: [a], to: [Q, c]}\n- {id: Q, type: sum, to: [c]}"
    units = replicas(in_kafka(text, {"a_topic": 3, "c_topic": 5}))
    arc = NAMES.arc("P", "Q")
    assert [unit.arcs for unit in units] == [{arc: 2}] * 3 + [{}] * 2


def test_a_processor_has_as_many_tasks_as_its_topic_has_partitions() -> None:
    text = SOURCES + "- {id: P, type: count, from: [a], to: [Q]}\n- {id: Q, type: sum, to: [c]}"
    loaded = in_kafka(text, {"a_topic": 3, "c_topic": 7})
    assert reads(loaded) == {
        "P_0": ("a_topic",),
        "P_1": ("a_topic",),
        "P_2": ("a_topic",),
        "Q_0": ("P_Q_job",),
        "Q_1": ("P_Q_job",),
    }
    specs = {spec.name: spec.partitions for spec in loaded.data_topics(CONFIG.replication_factor)}
    assert specs == {"a_topic": 3, "P_Q_job": 2, "state_topic_P_job": 3, "c_topic": 7}


def test_a_topic_with_fewer_partitions_than_the_parallelism_makes_fewer_tasks() -> None:
    loaded = in_kafka("[{id: P, type: sum, to: [sink]}]", {"in": 1, "out": 5})
    assert reads(loaded) == {"P_0": ("in",)}


@pytest.mark.parametrize("type_", ["forward", "sum"])
def test_the_last_tasks_do_not_read_the_topics_that_have_no_partition_for_them(type_: str) -> None:
    loaded = in_kafka(SOURCES + "- " + TAKES_BOTH % type_, {"a_topic": 1, "b_topic": 3})
    assert reads(loaded) == {
        "P_0": ("a_topic", "b_topic"),
        "P_1": ("b_topic",),
        "P_2": ("b_topic",),
    }
    units = replicas(loaded)
    assert [unit.from_ for unit in units] == [("a", "b"), ("b",), ("b",)]
    assert [unit.out_topics for unit in units] == [("c_topic",)] * 3


def test_an_arc_beside_a_larger_source_is_read_by_the_first_tasks_only() -> None:
    text = (
        SOURCES
        + "- {id: P, type: sum, from: [b], to: [Q]}\n"
        + ("- {id: Q, type: forward, from: [a], to: [c]}")
    )
    loaded = in_kafka(text, {"a_topic": 3})
    assert {name: topics for name, topics in reads(loaded).items() if name[0] == "Q"} == {
        "Q_0": ("a_topic", "P_Q_job"),
        "Q_1": ("a_topic", "P_Q_job"),
        "Q_2": ("a_topic",),
    }


# --- co-partitioning ---

KEYED = ["count", "'shop:Class'"]


@pytest.mark.parametrize("type_", KEYED)
def test_topics_that_meet_by_key_must_have_as_many_partitions(type_: str) -> None:
    with pytest.raises(ConfigError) as raised:
        in_kafka(SOURCES + "- " + TAKES_BOTH % type_, {"a_topic": 3, "b_topic": 4})
    assert str(raised.value) == (
        '"P" reads topics with different numbers of partitions: a_topic has 3, b_topic has 4. '
        "Records of one key would be spread over different tasks: give all of them as many, or "
        "let a processor in between spread them anew"
    )


def test_a_topic_that_will_be_made_is_counted_with_the_parallelism() -> None:
    with pytest.raises(ConfigError) as raised:
        in_kafka(SOURCES + "- " + TAKES_BOTH % "count", {"a_topic": 3})
    assert "a_topic has 3, b_topic has 2." in str(raised.value)


def test_an_arc_beside_a_larger_source_is_refused_with_both_counts() -> None:
    text = (
        SOURCES
        + "- {id: P, type: sum, from: [b], to: [Q]}\n"
        + ("- {id: Q, type: 'shop:Class', from: [a], to: [c]}")
    )
    with pytest.raises(ConfigError) as raised:
        in_kafka(text, {"a_topic": 5})
    assert (
        '"Q" reads topics with different numbers of partitions: a_topic has 5, P_Q_job has 2.'
        in (str(raised.value))
    )


def test_the_inputs_of_a_topologys_group_must_have_as_many_partitions() -> None:
    text = """
- id: W
  type: topology
  builder: tests.user_code.topologies:join
  config: {left: a_topic, right: b_topic, joined: c_topic}
"""
    with pytest.raises(ConfigError) as raised:
        in_kafka(text, {"a_topic": 3})
    assert '"W-Left" reads topics with different numbers of partitions' in str(raised.value)
    assert "a_topic has 3, b_topic has 2." in str(raised.value)
    assert len(reads(in_kafka(text, {"a_topic": 3, "b_topic": 3}))) == 3


def test_internal_topics_of_joins_have_as_many_partitions_as_what_they_meet() -> None:
    text = """
processors:
- id: W
  type: topology
  builder: tests.user_code.topologies:enriched
  config: {stream: a_topic, table: b_topic, rows: d_topic, out: c_topic}
"""
    loaded = in_kafka(text, {"a_topic": 3, "b_topic": 6, "d_topic": 4})
    counts = {
        topic: loaded.partitions_of(processor.topics[topic])
        for processor in loaded.processors
        for topic in processor.internal_topics
    }
    assert counts == {
        "Enriched-by-key-repartition": 6,
        "Joined-subscriptions-repartition": 6,
        "Joined-answers-repartition": 4,
    }


@pytest.mark.parametrize("type_", KEYED)
def test_topics_with_as_many_partitions_meet_in_as_many_tasks(type_: str) -> None:
    counts = {"a_topic": 5, "b_topic": 5, "c_topic": 1}
    loaded = in_kafka(SOURCES + "- " + TAKES_BOTH % type_, counts)
    assert reads(loaded) == {f"P_{n}": ("a_topic", "b_topic") for n in range(5)}


@pytest.mark.parametrize("type_", KEYED)
def test_what_is_written_may_have_any_number_of_partitions(type_: str) -> None:
    text = f"{SOURCES}- {{id: P, type: {type_}, from: [a], to: [c]}}"
    check_co_partitioning(in_kafka(text, {"c_topic": 9}))


# --- a changed parallelism ---

CHAINED = (
    SOURCES + "- {id: P, type: sum, from: [a], to: [Q], on_error: dead_letter}\n"
    "- {id: Q, type: count, to: [c]}"
)


def check_parallel(text: str, counts: Mapping[str, int], *, has_started: bool = True) -> None:
    control = {NAMES.threads_jm: 1} if has_started else {}
    admin = cast(Admin, FakeAdmin({**counts, **control}))
    check_parallelism(load(text, CONFIG), admin)


def test_a_changed_parallelism_is_named_with_the_former_number() -> None:
    counts = {"a_topic": 4, "P_Q_job": 4, "P_dead_letter_job": 4, "state_topic_Q_job": 4}
    with pytest.raises(ConfigError) as error:
        check_parallel(CHAINED, counts)
    assert str(error.value) == (
        "parallelism is 2 in config.yaml, but was 4 when the topics of this job were made: "
        "P_Q_job has 4 partitions. Set parallelism back to 4, and use `pipeline rescale`: "
        'docs/how-to/troubleshoot.md, "A topic has the wrong number of partitions"'
    )
    with pytest.raises(ConfigError, match=r": P_Q_job has 1 partition\. Set parallelism back to 1"):
        check_parallel(CHAINED, {"P_Q_job": 1})


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"a_topic": 4, "c_topic": 4},
        {"P_Q_job": 2, "P_dead_letter_job": 2},
        # Dead letters may have any number.
        {"P_Q_job": 2, "P_dead_letter_job": 4},
    ],
)
def test_other_counts_do_not_say_that_parallelism_was_changed(counts: Mapping[str, int]) -> None:
    check_parallel(CHAINED, counts)


def test_topics_that_were_made_before_the_job_do_not_say_it_either() -> None:
    check_parallel(CHAINED, {"P_Q_job": 4}, has_started=False)


def test_an_internal_topic_of_a_topology_says_nothing_about_parallelism() -> None:
    check_parallel(CHAIN % "", {"a_topic": 6, "W_middle_job": 6})


# --- internal topics of a topology ---

CHAIN = """
- id: W
  type: topology
  builder: tests.user_code.topologies:chain
  config: {lines: a_topic, words: c_topic%s}
"""


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_an_internal_topic_has_as_many_partitions_as_the_largest_topic_that_leads_to_it(
    partitions: int,
) -> None:
    loaded = in_kafka(CHAIN % "", {"a_topic": partitions, "c_topic": 4})
    specs = {spec.name: spec.partitions for spec in loaded.data_topics(CONFIG.replication_factor)}
    assert specs["W_middle_job"] == partitions
    assert specs["state_topic_W-Count_Kept_job"] == partitions
    assert list(reads(loaded)) == [
        f"W-{group}_{number}" for group in ("Split", "Count") for number in range(partitions)
    ]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_an_internal_topic_keeps_the_partitions_that_the_builder_gives_it(partitions: int) -> None:
    loaded = in_kafka(CHAIN % f", partitions: {partitions}", {"a_topic": 5})
    assert loaded.task_count(loaded.processor("W-Split")) == 5
    assert loaded.task_count(loaded.processor("W-Count")) == partitions


@pytest.mark.parametrize("partitions", [1, 6])
def test_internal_topics_behind_each_other_have_as_many_partitions_in_any_order(
    partitions: int,
) -> None:
    text = CHAIN.replace("chain", "steps") % ""
    loaded = in_kafka(text, {"a_topic": partitions})
    assert [node.id for node in loaded.processors] == ["W-Third", "W-Second", "W-First"]
    assert loaded.partitions == {
        "a_topic": partitions,
        "W_one_job": partitions,
        "W_two_job": partitions,
    }


# --- topologies of the DSL: which topics meet ---

DSL = """
- id: W
  type: topology
  builder: tests.user_code.joins:%s
  config: {left: a_topic, joined: c_topic%s}
"""
RIGHT = ", right: b_topic"
THREE_AND_FOUR = {"a_topic": 3, "b_topic": 4}


def partitions_of(name: str, arguments: str, counts: Mapping[str, int]) -> Pipeline:
    return in_kafka(DSL % (name, arguments), counts)


def test_a_join_of_topics_with_different_counts_is_refused_with_its_name_and_both() -> None:
    with pytest.raises(ConfigError) as raised:
        partitions_of("of_streams", RIGHT, THREE_AND_FOUR)
    assert str(raised.value).startswith(
        '"Both" of "W-Left" reads topics with different numbers of partitions: a_topic has 3, '
        "b_topic has 4. "
    )
    loaded = partitions_of("of_streams", RIGHT, {"a_topic": 4, "b_topic": 4})
    assert loaded.task_count(loaded.processor("W-Left")) == 4


def test_a_repartition_topic_has_as_many_partitions_as_the_table_that_it_is_joined_with() -> None:
    loaded = partitions_of("with_table", RIGHT, {"a_topic": 6, "b_topic": 3})
    assert loaded.partitions_of("W_Moved-repartition_job") == 3
    specs = {spec.name: spec.partitions for spec in loaded.data_topics(1)}
    assert specs["W_Moved-repartition_job"] == 3
    (state,) = [name for name in specs if name.startswith("state_topic")]
    assert specs[state] == 3


def test_a_repartition_topic_that_must_have_another_count_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        partitions_of("with_table", f"{RIGHT}, partitions: 5", {"b_topic": 3})
    assert "W_Moved-repartition_job has 5" in str(raised.value)
    assert "b_topic has 3" in str(raised.value)


def test_counts_that_the_topology_itself_gives_are_compared_without_kafka() -> None:
    given = f"{RIGHT}, partitions: 5, table: 4"
    with pytest.raises(ConfigError) as raised:
        load(DSL % ("with_table", given), CONFIG)
    assert "pipeline.yaml:2:7: " in str(raised.value)
    assert "W_Moved-repartition_job has 5" in str(raised.value)
    assert "W_Spread-repartition_job has 4" in str(raised.value)
    alike = f"{RIGHT}, partitions: 4, table: 4"
    assert load(DSL % ("with_table", alike), CONFIG).partitions == {
        "W_Moved-repartition_job": 4,
        "W_Spread-repartition_job": 4,
    }


def test_repartition_topics_that_meet_have_as_many_partitions_as_the_largest_source() -> None:
    loaded = partitions_of("of_repartitions", RIGHT, THREE_AND_FOUR)
    assert loaded.partitions_of("W_LeftAgain-repartition_job") == 4
    assert loaded.partitions_of("W_RightAgain-repartition_job") == 4


def test_a_group_may_read_the_repartition_topic_that_it_writes() -> None:
    loaded = partitions_of("with_own_repartition", "", {"a_topic": 5})
    assert loaded.partitions_of("W_Again-repartition_job") == 5
    assert set(reads(loaded).values()) == {("a_topic", "W_Again-repartition_job")}


def test_topics_that_are_only_merged_may_have_different_counts() -> None:
    loaded = partitions_of("merged", f"{RIGHT}, counts: false", THREE_AND_FOUR)
    assert reads(loaded) == {
        **{f"W-Left_{n}": ("a_topic", "b_topic") for n in range(3)},
        "W-Left_3": ("b_topic",),
    }
    with pytest.raises(ConfigError, match='"Counts" of "W-Left" reads topics with different'):
        partitions_of("merged", f"{RIGHT}, counts: true", THREE_AND_FOUR)


# --- internal topics that a rescale has given another number ---

BY_WORD = (
    '- {id: W, type: topology, builder: "tests.user_code.topologies:counted_words", '
    "config: {lines: a, words: c}}"
)


def test_internal_topics_keep_the_number_that_they_have_in_kafka() -> None:
    text = SOURCES + BY_WORD
    topic = "W_ByWord-repartition_job"
    assert in_kafka(text, {"a_topic": 3}).partitions_of(topic) == 3
    assert in_kafka(text, {"a_topic": 3, topic: 5}).partitions_of(topic) == 5
    admin = cast(Admin, FakeAdmin({"a_topic": 3, topic: 5}))
    rescaled = with_partitions(load(text, CONFIG), admin, {topic: 7})
    assert rescaled.partitions_of(topic) == 7
    assert [rescaled.task_count(each) for each in rescaled.processors] == [3, 7]


def test_internal_topics_with_new_names_have_the_number_of_the_former_ones() -> None:
    text, topic = SOURCES + BY_WORD, "W_ByWord-repartition_job"
    former = in_kafka(text, {"a_topic": 3, topic: 5})
    admin = cast(Admin, FakeAdmin({"a_topic": 3}))
    renamed = load(text.replace("id: W,", "id: V, was: W,"), CONFIG)
    assert with_partitions(renamed, admin).partitions_of("V_ByWord-repartition_job") == 3
    found = with_partitions(renamed, admin, former=former)
    assert found.partitions_of("V_ByWord-repartition_job") == 5
    rescaled = replace(former, parallelism=4)
    again = with_partitions(renamed, admin, former=rescaled)
    assert again.partitions_of("V_ByWord-repartition_job") == 3


# --- sources that get more while the job runs ---


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("processor", "is_taken_up"),
    [
        ("- {id: P, type: forward, from: [a], to: [c]}", True),
        ("- {id: P, type: forward, from: [a, b], to: [c]}", True),
        ("- {id: P, type: count, from: [a], to: [c]}", False),
        ('- {id: P, type: "tests.user_code.echo:Echo", from: [a], to: [c]}', True),
        ('- {id: P, type: "tests.user_code.echo:Echo", from: [a, b], to: [c]}', False),
    ],
)
def test_new_partitions_are_taken_up_unless_keys_matter(
    processor: str, count: int, is_taken_up: bool
) -> None:
    text = SOURCES + processor
    before = in_kafka(text, {"a_topic": 1, "b_topic": 1})
    after = with_more_partitions(before, {"a_topic": count})
    assert (after is not before) == is_taken_up
    if is_taken_up:
        assert is_same(after, in_kafka(text, {"a_topic": count, "b_topic": 1}))


TOPOLOGY = '- {id: P, type: topology, builder: "tests.user_code.%s", config: {%s}}'


@pytest.mark.parametrize(
    "text",
    [
        "sources: {a: {topic: a_topic, auto_offset_reset: latest}}\nprocessors:\n"
        "- {id: P, type: forward, from: [a], to: [sink]}",
        SOURCES + TOPOLOGY % ("topologies:newest", "lines: a, words: c"),
        TOPOLOGY % ("lookups:gather", 'pattern: "a_.*", gathered: out, begins: latest'),
    ],
    ids=["source", "topology", "pattern"],
)
def test_new_partitions_of_what_is_read_from_its_end_are_not_taken_up(text: str) -> None:
    """Records that came to them before the tasks start would be skipped."""
    loaded = with_matching_topics(load(text, CONFIG), ["a_topic"])
    before = with_partitions(loaded, cast(Admin, FakeAdmin({"a_topic": 1})))
    assert before.user_topics[0] == "a_topic"
    assert with_more_partitions(before, {"a_topic": 2}) is before
    assert [each.begins for each in plan(None, before, ()).inputs] == ["latest"]
