"""What would change if another version of a pipeline ran."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec, TopologySpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.plan import (
    Arc,
    Effect,
    NewInput,
    Plan,
    PlannedStore,
    arcs_to_drain,
    plan,
)
from kafka_pipeline.deployment.store_contents import StateEffect
from kafka_pipeline.streams.pipeline.partitions import with_counts
from tests.unit.streams.pipeline.loading import CONFIG, load

JOB = replace(CONFIG, job_name="job")
HEAD = """
sources:
  orders: orders_topic
  news: {topic: news_topic, auto_offset_reset: latest}
sinks: {out: out_topic}
processors:
"""
READ = "- {id: Read, type: forward, from: [orders], to: [Count]}\n"
COUNT = "- {id: Count, type: count, to: [Add]}\n"
ADD = "- {id: Add, type: sum, config: {constant: 2}, to: [out]}\n"
CHAIN = HEAD + READ + COUNT + ADD
TOPICS = (
    "orders_topic",
    "Read_Count_job",
    "Count_Add_job",
    "state_topic_Count_job",
    "out_topic",
)
"""The topics of the chain, in the order in which they are named."""

NO_LOSSES = pytest.mark.parametrize(
    "after",
    [
        CHAIN + "- {id: More, type: count, from: [news, orders], to: [out]}",
        CHAIN.replace("to: [Count]", "to: [Count, More]") + "- {id: More, type: sum, to: [out]}",
        CHAIN.replace("from: [orders]", "from: [orders, news]"),
        CHAIN.replace("constant: 2", "constant: 3"),
        CHAIN.replace("to: [out]", "to: [out, sink]"),
        CHAIN.replace("to: [out]", "to: [sink]"),
        CHAIN.replace("to: [out]", "to: [out], on_error: dead_letter"),
    ],
    ids=["new source", "new arc", "new input", "setting", "new sink", "other sink", "on_error"],
)


def planned(
    before: str | None,
    after: str,
    existing: Collection[str] | None = None,
    was: Config = JOB,
    config: Config = JOB,
) -> Plan:
    """Return the plan; by default, Kafka has the topics of the pipeline that runs."""
    former = None if before is None else load(before, was)
    if existing is None:
        existing = [spec.name for spec in former.data_topics(1)] if former else []
    return plan(former, load(after, config), existing)


def tasks(found: Plan, effect: Effect) -> list[str]:
    return [str(task) for task, of_task in found.tasks.items() if of_task is effect]


# The first version, and no change at all.


def test_first_version_adds_all() -> None:
    found = planned(None, CHAIN)
    assert tasks(found, Effect.ADDED) == [
        f"{name}_{partition}" for name in ("Read", "Count", "Add") for partition in (0, 1)
    ]
    assert found.counts == {
        Effect.ADDED: 6,
        Effect.RESTARTED: 0,
        Effect.REMOVED: 0,
        Effect.UNTOUCHED: 0,
    }
    assert (found.made, found.kept, found.orphaned) == (TOPICS, (), ())
    assert found.stores == (
        PlannedStore("Count", "counts", "state_topic_Count_job", StateEffect.NEW),
    )
    assert found.inputs == (NewInput("Read", "orders_topic", "earliest"),)
    assert (found.losses, found.arcs) == ((), ())
    assert not found.changes_nothing


def test_first_version_finds_topics_and_state_that_are_there() -> None:
    found = planned(None, CHAIN, ["orders_topic", "state_topic_Count_job", "unrelated"])
    assert found.made == ("Read_Count_job", "Count_Add_job", "out_topic")
    assert found.kept == ("orders_topic", "state_topic_Count_job")
    assert [store.effect for store in found.stores] == [StateEffect.FOUND]
    assert found.orphaned == ()


def test_same_pipeline_changes_nothing() -> None:
    found = planned(CHAIN, HEAD + ADD + COUNT + READ)
    assert set(found.tasks.values()) == {Effect.UNTOUCHED}
    assert found.changes_nothing
    assert (found.made, found.kept, found.orphaned) == ((), TOPICS, ())
    assert [store.effect for store in found.stores] == [StateEffect.KEPT]
    assert (found.inputs, found.losses, found.arcs) == ((), (), ())


def test_topic_that_somebody_has_deleted_is_made_again() -> None:
    found = planned(CHAIN, CHAIN, [topic for topic in TOPICS if topic != "Count_Add_job"])
    assert found.made == ("Count_Add_job",)
    assert set(found.tasks.values()) == {Effect.UNTOUCHED}
    assert not found.changes_nothing


# Additions and edits.


@NO_LOSSES
def test_additions_and_edits_lose_nothing(after: str) -> None:
    found = planned(CHAIN, after)
    assert not found.changes_nothing
    assert (found.losses, found.arcs, found.orphaned) == ((), (), ())
    assert tasks(found, Effect.REMOVED) == []
    assert StateEffect.LEFT not in {store.effect for store in found.stores}


def test_added_processor_that_reads_a_source_leaves_the_others_alone() -> None:
    found = planned(CHAIN, CHAIN + "- {id: More, type: count, from: [news, orders], to: [out]}")
    assert tasks(found, Effect.ADDED) == ["More_0", "More_1"]
    assert tasks(found, Effect.RESTARTED) == []
    assert len(tasks(found, Effect.UNTOUCHED)) == 6
    assert found.made == ("news_topic", "state_topic_More_job")
    assert set(found.kept) == set(TOPICS)
    assert found.stores == (
        PlannedStore("Count", "counts", "state_topic_Count_job", StateEffect.KEPT),
        PlannedStore("More", "counts", "state_topic_More_job", StateEffect.NEW),
    )
    assert set(found.inputs) == {
        NewInput("More", "news_topic", "latest"),
        NewInput("More", "orders_topic", "earliest"),
    }


def test_added_target_restarts_only_its_sender() -> None:
    found = planned(
        CHAIN,
        CHAIN.replace("to: [Count]", "to: [Count, More]") + "- {id: More, type: sum, to: [out]}",
    )
    assert tasks(found, Effect.ADDED) == ["More_0", "More_1"]
    assert tasks(found, Effect.RESTARTED) == ["Read_0", "Read_1"]
    assert found.made == ("Read_More_job",)
    assert found.inputs == ()


def test_edited_processor_restarts_and_makes_nothing() -> None:
    found = planned(CHAIN, CHAIN.replace("constant: 2", "constant: 3"))
    assert tasks(found, Effect.RESTARTED) == ["Add_0", "Add_1"]
    assert len(tasks(found, Effect.UNTOUCHED)) == 4
    assert (found.made, found.inputs) == ((), ())


def test_added_input_is_listed_with_where_it_begins() -> None:
    found = planned(CHAIN, CHAIN.replace("from: [orders]", "from: [news, orders]"))
    assert found.inputs == (NewInput("Read", "news_topic", "latest"),)
    assert tasks(found, Effect.RESTARTED) == ["Read_0", "Read_1"]


def test_where_an_input_begins_that_is_read_already_does_not_matter() -> None:
    found = planned(
        CHAIN,
        CHAIN.replace(
            "orders: orders_topic", "orders: {topic: orders_topic, auto_offset_reset: latest}"
        ),
    )
    assert found.inputs == ()


def test_input_that_has_grown_adds_tasks() -> None:
    before = with_counts(load(HEAD + ADD.replace("to:", "from: [orders], to:"), JOB), {})
    found = plan(before, with_counts(before, {"orders_topic": 5}), ["orders_topic", "out_topic"])
    assert tasks(found, Effect.UNTOUCHED) == ["Add_0", "Add_1"]
    assert tasks(found, Effect.ADDED) == ["Add_2", "Add_3", "Add_4"]
    assert found.losses == ()


def test_dead_letter_topic_comes_and_goes_with_on_error() -> None:
    rejecting = CHAIN.replace("to: [out]", "to: [out], on_error: dead_letter")
    assert planned(CHAIN, rejecting).made == ("Add_dead_letter_job",)
    found = planned(rejecting, CHAIN)
    assert found.orphaned == ("Add_dead_letter_job",)
    assert found.losses == ()


# What is taken away.


def test_removed_processor_takes_its_tasks_its_state_and_its_arcs_along() -> None:
    found = planned(CHAIN, HEAD + READ.replace("Count", "Add") + ADD)
    assert tasks(found, Effect.REMOVED) == ["Count_0", "Count_1"]
    # Read sends to another topic, and Add reads another one.
    assert tasks(found, Effect.RESTARTED) == ["Read_0", "Read_1", "Add_0", "Add_1"]
    assert found.losses == (
        '"Count" is removed, and its state in state_topic_Count_job is no longer kept',
        '"Add" no longer reads Count_Add_job',
    )
    assert found.stores == (
        PlannedStore("Count", "counts", "state_topic_Count_job", StateEffect.LEFT),
    )
    assert found.orphaned == ("Count_Add_job", "Read_Count_job", "state_topic_Count_job")
    assert found.made == ("Read_Add_job",)
    assert found.arcs == (
        Arc("Read_Count_job", ("Read",), "Count"),
        Arc("Count_Add_job", ("Count",), "Add"),
    )
    assert found.inputs == ()


def test_only_topics_that_exist_are_left_over() -> None:
    found = planned(CHAIN, HEAD + READ.replace("Count", "out"), ["Read_Count_job"])
    assert found.orphaned == ("Read_Count_job",)


def test_topics_of_the_user_are_never_left_over() -> None:
    before = CHAIN + "- {id: News, type: forward, from: [news], to: [sink]}"
    found = planned(before, HEAD + READ.replace("to: [Count]", "to: [sink]"))
    assert found.orphaned == ("Count_Add_job", "Read_Count_job", "state_topic_Count_job")


def test_removed_processor_without_state_loses_no_state() -> None:
    before = CHAIN + "- {id: News, type: forward, from: [news], to: [out]}"
    found = planned(before, CHAIN)
    assert found.losses == ('"News" is removed',)
    assert (found.stores[0].effect, found.orphaned, found.arcs) == (StateEffect.KEPT, (), ())


def test_input_that_is_no_longer_read_is_a_loss() -> None:
    found = planned(CHAIN.replace("from: [orders]", "from: [news, orders]"), CHAIN)
    assert found.losses == ('"Read" no longer reads news_topic',)
    assert tasks(found, Effect.RESTARTED) == ["Read_0", "Read_1"]


def test_processor_between_two_others_cuts_the_arc_between_them() -> None:
    after = CHAIN.replace("to: [Add]", "to: [New]") + "- {id: New, type: sum, to: [Add]}"
    found = planned(CHAIN, after)
    assert found.losses == ('"Add" no longer reads Count_Add_job',)
    assert found.arcs == (Arc("Count_Add_job", ("Count",), "Add"),)


def test_other_source_topic_in_the_configuration_is_a_loss_and_a_new_input() -> None:
    text = "[{id: A, type: count, to: [sink]}]"
    found = planned(text, text, config=replace(JOB, source_topic="elsewhere"))
    assert found.losses == ('"A" no longer reads in',)
    assert found.inputs == (NewInput("A", "elsewhere", "earliest"),)
    assert tasks(found, Effect.RESTARTED) == ["A_0", "A_1"]
    assert (found.made, found.orphaned) == (("elsewhere",), ())
    assert [store.effect for store in found.stores] == [StateEffect.KEPT]


def test_other_sink_topic_in_the_configuration_loses_nothing() -> None:
    text = "[{id: A, type: count, to: [sink]}]"
    found = planned(text, text, config=replace(JOB, sink_topic="elsewhere"))
    assert (found.losses, found.orphaned) == ((), ())
    assert found.made == ("elsewhere",)
    assert tasks(found, Effect.RESTARTED) == ["A_0", "A_1"]


SHOP = """
- id: Shop
  type: shop:Shop
  stores: [{name: Stock, key: string}, {name: Prices}, {name: Cache, logged: false}]
  to: [sink]
"""


def test_store_that_is_no_longer_kept_is_a_loss() -> None:
    found = planned(SHOP, SHOP.replace("{name: Prices}, ", ""))
    assert found.losses == (
        '"Shop" no longer keeps the store "Prices" (topic state_topic_Shop_Prices_job)',
    )
    assert found.stores == (
        PlannedStore("Shop", "Stock", "state_topic_Shop_Stock_job", StateEffect.KEPT),
        PlannedStore("Shop", "Prices", "state_topic_Shop_Prices_job", StateEffect.LEFT),
    )
    assert found.orphaned == ("state_topic_Shop_Prices_job",)


def test_store_without_a_topic_is_no_loss() -> None:
    found = planned(SHOP, SHOP.replace(", {name: Cache, logged: false}", ""))
    assert found.losses == ()
    assert [store.name for store in found.stores] == ["Stock", "Prices"]


def test_store_that_comes_back_finds_its_state() -> None:
    after = SHOP.replace("{name: Prices}", "{name: Prices}, {name: Old}, {name: New}")
    had = [spec.name for spec in load(SHOP, JOB).data_topics(1)]
    found = planned(SHOP, after, [*had, "state_topic_Shop_Old_job"])
    assert {store.name: store.effect for store in found.stores} == {
        "Stock": StateEffect.KEPT,
        "Prices": StateEffect.KEPT,
        "Old": StateEffect.FOUND,
        "New": StateEffect.NEW,
    }
    assert found.losses == ()


def test_count_that_becomes_a_class_does_not_keep_its_state() -> None:
    after = CHAIN.replace("type: count", "type: 'shop:Count', stores: [{name: counts}]")
    found = planned(CHAIN, after)
    assert found.losses == (
        '"Count" no longer keeps the store "counts" (topic state_topic_Count_job)',
    )
    assert {store.topic: store.effect for store in found.stores} == {
        "state_topic_Count_counts_job": StateEffect.NEW,
        "state_topic_Count_job": StateEffect.LEFT,
    }


# Renaming.


def test_renamed_processor_is_removed_and_one_that_begins_anew_is_added() -> None:
    found = planned(CHAIN, CHAIN.replace("Count", "Total"))
    assert tasks(found, Effect.REMOVED) == ["Count_0", "Count_1"]
    assert tasks(found, Effect.ADDED) == ["Total_0", "Total_1"]
    assert found.losses[0] == (
        '"Count" is removed, and its state in state_topic_Count_job is no longer kept '
        '("Total", which does the same, begins anew: with `was: Count` it would go on with it)'
    )
    assert {store.topic: store.effect for store in found.stores} == {
        "state_topic_Total_job": StateEffect.NEW,
        "state_topic_Count_job": StateEffect.LEFT,
    }


@pytest.mark.parametrize(
    "after",
    [
        CHAIN.replace("Add", "Plus").replace("constant: 2", "constant: 3"),
        # It did the same before, too.
        HEAD + READ + COUNT.replace("Add", "Same") + ADD.replace("Add", "Same"),
    ],
    ids=["another setting", "not new"],
)
def test_there_is_no_hint_unless_a_new_processor_does_the_same(after: str) -> None:
    before = CHAIN + ADD.replace("id: Add", "id: Same").replace("to:", "from: [news], to:")
    (loss, *_) = [loss for loss in planned(before, after).losses if loss.startswith('"Add"')]
    assert loss == '"Add" is removed'


def test_renamed_processor_without_state_is_hinted_at_too() -> None:
    found = planned(CHAIN, CHAIN.replace("Add", "Plus"))
    assert found.losses == (
        '"Add" is removed ("Plus", which does the same, begins anew: with `was: Add` it would go '
        "on with it)",
    )


def test_renamed_reader_of_a_source_begins_at_the_beginning_of_its_input() -> None:
    found = planned(CHAIN, CHAIN.replace("Read", "Take"))
    assert found.inputs == (NewInput("Take", "orders_topic", "earliest"),)


# Arcs.


def test_arc_whose_reader_or_writer_is_replaced_is_taken_away() -> None:
    found = planned(CHAIN, CHAIN.replace("Count", "Total"))
    assert [(arc.topic, arc.writers, arc.reader) for arc in found.arcs] == [
        ("Read_Count_job", ("Read",), "Count"),
        ("Count_Add_job", ("Count",), "Add"),
    ]


def test_arcs_of_a_topology_that_is_edited_are_taken_away() -> None:
    topology = "- {id: W, type: topology, builder: 'tests.user_code.topologies:%s', config: {%s}}"
    before = load(topology % ("chain", "lines: a, words: c"), JOB)
    after = load(topology % ("chain", "lines: a, words: c, middle: other"), JOB)
    assert [*arcs_to_drain(before, after)] == [Arc("W_middle_job", ("W-Split",), "W-Count")]
    assert [*arcs_to_drain(before, before)] == []


def test_internal_topic_names_all_that_write_it() -> None:
    topics = {"middle": "W_middle"}
    reader = TopologySpec(code="shop:f", group="R", internal={"middle": None})
    before = Pipeline(
        (
            PipelineProcessor("W-A", ForwardSpec(), ("middle",), (SOURCE,), topics=topics),
            PipelineProcessor("W-B", ForwardSpec(), (SINK, "middle"), (SOURCE,), topics=topics),
            PipelineProcessor("W-R", reader, (SINK,), ("middle",), topics=topics),
        ),
        TopicNames(None, "in", "out"),
        2,
    )
    after = replace(before, processors=(replace(before.processors[0], to=(SINK,)),))
    assert [*arcs_to_drain(before, after)] == [Arc("W_middle", ("W-A", "W-B"), "W-R")]


def test_arc_that_gets_another_reader_is_not_passed_over() -> None:
    """P groups by key at first; later, P-rows reads the same arc with offsets of its own."""
    query = (
        HEAD + "- {id: A, type: forward, from: [orders], to: [P]}\n"
        '- {id: P, type: sql, query: "SELECT %s AS key, count(*) AS value FROM input GROUP BY %s",'
        " to: [out]}"
    )
    found = planned(query % ("key", "key"), query % ("value", "value"))
    drained = [arc.topic for arc in found.arcs]
    begun = [each.topic for each in found.inputs if each.processor == "P-rows"]
    assert "A_P_job" in (*drained, *begun)


# All of it.


def test_plan_can_be_printed_as_json() -> None:
    after = CHAIN.replace("Count", "Total").replace("from: [orders]", "from: [orders, news]")
    data: Any = json.loads(json.dumps(planned(CHAIN, after).to_json()))
    assert data == {
        "tasks": {
            "added": ["Total_0", "Total_1"],
            "restarted": ["Read_0", "Read_1", "Add_0", "Add_1"],
            "removed": ["Count_0", "Count_1"],
            "untouched": [],
        },
        "topics": {
            "made": [
                "news_topic",
                "Read_Total_job",
                "Total_Add_job",
                "state_topic_Total_job",
            ],
            "made_of_user": ["news_topic"],
            "kept": ["orders_topic", "out_topic"],
            "orphaned": ["Count_Add_job", "Read_Count_job", "state_topic_Count_job"],
        },
        "stores": [
            {
                "processor": "Total",
                "store": "counts",
                "topic": "state_topic_Total_job",
                "state": "new",
                "reason": "",
            },
            {
                "processor": "Count",
                "store": "counts",
                "topic": "state_topic_Count_job",
                "state": "left",
                "reason": "",
            },
        ],
        "new_inputs": [{"processor": "Read", "topic": "news_topic", "begins": "latest"}],
        "renamed": {},
        "losses": [
            '"Count" is removed, and its state in state_topic_Count_job is no longer kept '
            '("Total", which does the same, begins anew: with `was: Count` it would go on with it)',
            '"Add" no longer reads Count_Add_job',
        ],
        "arcs_to_drain": ["Read_Count_job", "Count_Add_job"],
        "arcs_changed": {},
    }


@pytest.mark.parametrize("before", [None, CHAIN])
def test_plans_of_all_kinds_can_be_printed(before: str | None) -> None:
    for after in (CHAIN, SHOP, CHAIN.replace("Add", "Plus")):
        assert json.loads(json.dumps(planned(before, after).to_json()))["tasks"]


def wide(processors: int, **edited: int) -> Pipeline:
    """Return processors next to each other, with 100 tasks each."""
    lines = [
        f"{{id: P{n}, type: sum, config: {{constant: {edited.get(f'P{n}', 1)}}}, to: [sink]}}"
        for n in range(processors)
    ]
    return load(f"[{', '.join(lines)}]", replace(JOB, parallelism=100))


def test_plan_of_a_thousand_tasks() -> None:
    before, after = wide(10), wide(11, P3=2)
    found = plan(before, replace(after, processors=after.processors[1:]), ["in", "out"])
    assert found.counts == {
        Effect.ADDED: 100,
        Effect.RESTARTED: 100,
        Effect.REMOVED: 100,
        Effect.UNTOUCHED: 800,
    }
    for processor, effect in (
        ("P0", Effect.REMOVED),
        ("P3", Effect.RESTARTED),
        ("P9", Effect.UNTOUCHED),
        ("P10", Effect.ADDED),
    ):
        assert {found.tasks[TaskId(processor, n)] for n in range(100)} == {effect}
    assert len(found.to_json()["tasks"]["untouched"]) == 800
