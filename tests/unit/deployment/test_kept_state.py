"""What a plan says about the state of queries and their tables, before anything stops."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, cast

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.specs import ProcessorSpec
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.deployment import kept_state
from kafka_pipeline.deployment.deploy import require_usable_state
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.deployment.plan import Plan, plan, processors_with_state
from kafka_pipeline.deployment.store_contents import StateEffect
from kafka_pipeline.streams.pipeline.kept_content import KeptContents
from kafka_pipeline.streams.pipeline.spark_answers import Answer
from tests.unit.deployment.test_partitions import CONFIG, SOURCES, in_kafka
from tests.unit.deployment.test_state_topics import FakeKafka

SPARK = ".".join(metadata.version("pyspark").split(".")[:2])
BY_KEY, BETWEEN = "by their key", "through an internal topic"
INPUTS = {"a_topic": 2, "b_topic": 2, "c_topic": 2}
HOUR_US = 3_600_000_000
HOUR = [HOUR_US, HOUR_US, 0]
SESSION = ["sessions", HOUR_US]


def content(**changed: Any) -> str:
    """Return what `grouped("key")` keeps, with changes."""
    kept = {
        "groups": ["string"],
        "window": [],
        "functions": ["count() in (bigint)"],
        "spark": SPARK,
        "route": BY_KEY,
    }
    return json.dumps({**kept, **changed}, sort_keys=True)


def told(*functions: str, **changed: Any) -> str:
    """Return what a query keeps with these functions, each `expression: types`."""
    expressions, types = zip(*(each.split(": ") for each in functions), strict=True)
    known = {"expressions": expressions, "buffers": "", "labels": expressions}
    return content(functions=types, **known, **changed)


COUNT = "count(1): count(int) in (bigint)"
SUM, SUM_OF_M = "sum(n): sum(int) in (bigint)", "sum(m): sum(int) in (bigint)"
TIME = "max(timestamp): max(timestamp) in (timestamp)"


class Kafka(FakeKafka):
    """Has topics, and the contents that the tasks of queries have recorded, by shape topic."""

    def __init__(
        self, counts: Mapping[str, int], contents: Mapping[str, Sequence[str | None]]
    ) -> None:
        super().__init__({**counts, **{topic: len(each) for topic, each in contents.items()}})
        self.contents = contents

    def stable_ends(self, places: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 2)

    def oldest_offsets(self, places: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 0)

    def read(
        self, config: Config, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> Iterator[RecordBatch]:
        for topic, number in starts:
            if text := self.contents[topic][number]:
                keys, values = [b"content", b"uncounted"], [text.encode(), b""]
                yield RecordBatch(topic, number, keys, values, [1, 1], [0, 1])


class Spark:
    """Says what queries keep, and notes how many it was asked about."""

    def __init__(self, *contents: Answer) -> None:
        self._contents = list(contents)
        self.asked = 0

    def ask(self, config: Config, specs: Sequence[ProcessorSpec]) -> Sequence[Answer]:
        self.asked += len(specs)
        assert self._contents, "Spark is not needed"
        return [self._contents.pop(0) for _ in specs]


def planned(
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    after: str,
    kept: Mapping[str, Sequence[str | None]],
    spark: Spark,
    *,
    others: Collection[str] = (),
    lose: Collection[str] = (),
) -> Plan:
    """Return the plan; Kafka has all topics of what ran, these contents, and other topics."""
    former = None if before is None else in_kafka(before, INPUTS)
    later = in_kafka(after, INPUTS)
    topics = [spec.name for spec in former.data_topics(1)] if former else []
    kafka = Kafka({**INPUTS, **dict.fromkeys([*topics, *others], 2)}, kept)
    monkeypatch.setattr(kept_state, "read_from", kafka.read)
    state = KeptState(CONFIG, cast(Admin, kafka), KeptContents(CONFIG, spark.ask))
    existing = kafka.topics().keys()
    verdicts = state.verdicts(former, later, existing)
    return plan(former, later, existing, verdicts, processors_with_state(later, lose))


def effects(found: Plan) -> dict[str, StateEffect]:
    return {store.name: store.effect for store in found.stores}


def grouped(groups: str, select: str = "count(*) AS value", more: str = "") -> str:
    query = f'"SELECT {select} FROM input GROUP BY {groups}"'
    return SOURCES + f"- {{id: P, type: sql, query: {query}, from: [a], to: [c]{more}}}"


def grouped_frame(group_by: str) -> str:
    function = f'function: "tests.user_code.grouped_frames:totals", group_by: {group_by}'
    return SOURCES + f"- {{id: P, type: dataframe, {function}, from: [a], to: [c]}}"


WINDOW = "window(timestamp, '1 hour')"
SHAPE = "state_topic_P_shape_job"


@pytest.mark.parametrize("kept", [[content()], [None, content()], [None, None]])
def test_query_that_stays_the_same_is_kept_without_spark(
    kept: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    after = grouped("key", more=", max_process_time_ms: 7")
    found = planned(monkeypatch, grouped("key"), after, {SHAPE: kept}, Spark())
    assert effects(found) == dict.fromkeys(("groups", "shape"), StateEffect.KEPT)
    assert {store.reason for store in found.stores} == {""}


@pytest.mark.parametrize(
    ("kept", "now", "effect", "reason"),
    [
        ([content()], Answer(content()), "kept", "results go on from what was kept"),
        (
            [content()],
            Answer(content(functions=["sum(int) in (bigint)"])),
            "impossible",
            "the aggregate functions were count() in (bigint), now sum(int) in (bigint)",
        ),
        (
            [content(), content(functions=["max(int) in (int)"])],
            Answer(content()),
            "impossible",
            "the aggregate functions were max(int) in (int), now count() in (bigint)",
        ),
        (
            [content(spark="3.5")],
            Answer(content()),
            "impossible",
            f"the version of Spark was 3.5, now {SPARK}",
        ),
        (
            [content(best=[3, "int asc"])],
            Answer(content(best=[5, "int asc"])),
            "converted",
            "3 best rows of a group were kept, and 5 will be: rows that were left out do not come",
        ),
        (
            [content(best=[3, "int asc"])],
            Answer(content(best=[2, "int asc"])),
            "converted",
            "3 best rows of a group were kept, and 2 will be: a group is cut",
        ),
        ([content()], Answer(unknown="no Java"), "unchecked", "no Java"),
        (
            [told(COUNT, TIME)],
            Answer(told(SUM, COUNT, TIME)),
            "converted",
            "sum(n) starts now in groups that are kept: there, it covers only later records",
        ),
        (
            [content(), told("count(1): count() in (bigint)", SUM)],
            Answer(told("count(1): count() in (bigint)")),
            "converted",
            "sum(n) is no longer kept: a group loses it when it changes next",
        ),
        (
            [told(COUNT, SUM, TIME)],
            Answer(told(COUNT, SUM_OF_M, TIME)),
            "kept",
            "sum(m) goes on with what was kept for sum(n)",
        ),
        (
            [told(COUNT, SUM, TIME)],
            Answer(told(COUNT, SUM_OF_M, "max(n): max(int) in (int)", TIME)),
            "converted",
            "covers only later records; sum(m) goes on with what was kept for sum(n)",
        ),
        (
            [told(SUM, "max(n): max(decimal(5,2)) in (decimal(5,2))", groups=["decimal(10,2)"])],
            Answer(
                told(SUM, "max(n): max(decimal(7,2)) in (decimal(7,2))", groups=["decimal(12,2)"])
            ),
            "converted",
            "decimal(10,2) becomes decimal(12,2): values stay as they are; max(decimal(5,2)) in",
        ),
        *(
            ([kept], Answer(now), "impossible", "the aggregate functions were ")
            for kept, now in (
                (told(COUNT, TIME), told(SUM, TIME)),
                (told(SUM, SUM_OF_M, TIME), told(SUM_OF_M, SUM, TIME)),
                (told(SUM, SUM_OF_M), told("sum(k): sum(int) in (bigint)")),
                (content(functions=["a() in (int)", "b() in (int)"]), told("b(): b() in (int)")),
                (content(functions=["sum(int) in (bigint)"]), told(SUM, SUM_OF_M)),
                (told("s: sum(bigint) in (bigint)"), told("s: sum(int) in (bigint)")),
                (
                    told("s: collect_set(int) in (binary)"),
                    told("s: collect_set(bigint) in (binary)"),
                ),
                (
                    told("s: collect_set(decimal(5,2)) in (binary)"),
                    told("s: collect_set(decimal(19,2)) in (binary)"),
                ),
                (
                    told("s: sum(bigint) in (bigint)", unscaled=["decimal(5,2)"]),
                    told("s: sum(bigint) in (bigint)", unscaled=["decimal(5,3)"]),
                ),
                (
                    json.dumps({**json.loads(told(SUM_OF_M)), "labels": ["sum(n)"]}),
                    told(SUM_OF_M, SUM),
                ),
            )
        ),
    ],
)
def test_changed_query_is_compared_with_what_all_tasks_have_kept(
    kept: list[str], now: Answer, effect: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(now)
    after = grouped("key", "sum(value) AS value")
    found = planned(monkeypatch, grouped("key"), after, {SHAPE: kept}, spark)
    assert spark.asked == 1
    assert {str(store.effect) for store in found.stores} == {effect}
    assert all(reason in store.reason for store in found.stores)
    assert {store["state"] for store in found.to_json()["stores"]} == {effect}
    assert all(reason in store["reason"] for store in found.to_json()["stores"])


CHANGED_GROUPS = [
    ("key", content(window=HOUR), "the window .* was 3600000000, 3600000000, 0, now none"),
    ("key", content(window=SESSION), "the window .* was sessions, 3600000000, now none"),
    (f"key, {WINDOW}", content(), "the window .* was none, now 3600000000, 3600000000, 0"),
    (f"key, {WINDOW}", content(window=[HOUR_US, 1_000_000, 0]), "the window .* was 3600000000, 1"),
    (f"key, session_{WINDOW}", content(window=HOUR), "now sessions, 3600000000"),
    ("value", content(), "how records of a group meet was by their key, now through an internal"),
    ("key", content(route=BETWEEN), "how records of a group meet was through an internal topic"),
    ("key", '{"left": [], "right": [], "keeps": []}', "it was kept for a join of two inputs"),
]


@pytest.mark.parametrize(("groups", "kept", "changed"), CHANGED_GROUPS)
def test_what_the_file_shows_to_be_impossible_needs_no_spark(
    groups: str, kept: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(monkeypatch, grouped("offset"), grouped(groups), {SHAPE: [kept]}, Spark())
    assert [*found.impossible] == ["P"]
    with pytest.raises(ConfigError, match=changed) as error:
        require_usable_state(found)
    assert "pipeline apply --lose P" in str(error.value)


def test_another_grace_period_of_a_query_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (
        grouped(f"key, {WINDOW}", more=f", emit: on_close, grace: {grace}")
        for grace in ("10 min", "1 min")
    )
    kept = {SHAPE: [content(window=HOUR)]}
    found = planned(monkeypatch, before, after, kept, Spark())
    assert effects(found) == {
        "windows": StateEffect.CONVERTED,
        "windows-times": StateEffect.KEPT,
        "shape": StateEffect.KEPT,
    }
    assert "windows close 540000 ms earlier" in found.stores[0].reason


@pytest.mark.parametrize(
    ("group_by", "kept"),
    [
        ("{key: true}", content(window=SESSION)),
        ("{key: true, window: 1 h}", content()),
        ("{}", content()),
        ("{key: true}", content(route=BETWEEN)),
    ],
)
def test_state_of_a_function_with_other_groups_is_impossible(
    group_by: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = grouped_frame(group_by)
    found = planned(monkeypatch, None, after, {SHAPE: [kept]}, Spark())
    assert [*found.impossible] == ["P"]


def test_windows_of_a_function_begin_at_any_of_their_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = content(window=[HOUR_US, HOUR_US, 5 * HOUR_US])
    spark = Spark(Answer(kept))
    after = grouped_frame("{key: true, window: 1 h}")
    found = planned(monkeypatch, None, after, {SHAPE: [kept]}, spark)
    assert found.impossible == {}
    assert spark.asked == 1


def test_code_of_a_function_that_stays_the_same_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = grouped_frame("{key: true}")
    found = planned(monkeypatch, text, text, {SHAPE: [content()]}, Spark())
    assert {store.effect for store in found.stores} == {StateEffect.KEPT}
    assert {store.reason for store in found.stores} == {
        "if tests.user_code.grouped_frames:totals keeps the same"
    }


def test_state_of_another_spark_is_unchecked_if_the_query_stays_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tasks run on; this host may not have the Spark of the TaskManagers."""
    text, kept = grouped("key"), content(spark="3.5")
    found = planned(monkeypatch, text, text, {SHAPE: [kept]}, Spark())
    assert {store.effect for store in found.stores} == {StateEffect.UNCHECKED}
    assert "it was kept by Spark 3.5, and here is Spark" in found.stores[0].reason
    require_usable_state(found)


def test_state_of_a_processor_that_was_gone_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ["state_topic_P_groups_job"]
    kept = {SHAPE: [content()]}
    spark = Spark(Answer(content()), Answer(content(groups=["int"])))
    found = planned(monkeypatch, None, grouped("key"), kept, spark, others=others)
    assert set(effects(found).values()) == {StateEffect.FOUND}
    found = planned(monkeypatch, None, grouped("key"), kept, spark, others=others)
    assert set(effects(found).values()) == {StateEffect.IMPOSSIBLE}


def test_state_of_a_renamed_query_is_read_under_its_former_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = grouped("key").replace("id: P", "id: Q, was: P")
    found = planned(monkeypatch, grouped("key"), after, {SHAPE: [content()]}, Spark())
    assert set(effects(found).values()) == {StateEffect.KEPT}
    after = after.replace("GROUP BY key", f"GROUP BY key, {WINDOW}")
    found = planned(monkeypatch, grouped("key"), after, {SHAPE: [content()]}, Spark())
    assert [*found.impossible] == ["Q"]


def test_spark_is_asked_once_about_the_same_query(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(Answer(content()))
    contents = KeptContents(CONFIG, spark.ask)
    spec = in_kafka(grouped("key"), INPUTS).processor("P").spec
    for _ in range(2):
        contents.compare({"P": (None, spec, [content()])})
    assert spark.asked == 1


JOIN = (
    "SELECT l.value FROM a l {kind}JOIN b r ON l.key = r.key "
    "AND r.timestamp BETWEEN l.timestamp AND l.timestamp + INTERVAL 1 HOUR"
)


def joined(kind: str = "", grace: str = "") -> str:
    query = JOIN.format(kind=kind)
    more = f", grace: {grace}" if grace else ""
    return SOURCES + f'- {{id: P, type: sql, query: "{query}", from: [a, b], to: [c]{more}}}'


JOIN_CONTENT = json.dumps({"left": ["key string"], "right": ["key string"], "keeps": []})


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("b l JOIN a r", "b was the right side of the join, and now is the left one"),
        ("d l JOIN a r", "a was the left side of the join, and now is the right one"),
        ("d l JOIN b r", ""),
    ],
)
def test_rows_of_a_join_are_not_those_of_its_other_side(
    inputs: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns that both sides keep are the same."""
    before = joined().replace("a_topic,", "a_topic, d: d_topic,")
    after = before.replace("a l JOIN b r", inputs)
    names = inputs.split()
    after = after.replace("from: [a, b]", f"from: [{names[0]}, {names[-2]}]")
    spark = Spark(Answer(JOIN_CONTENT))
    found = planned(monkeypatch, before, after, {SHAPE: [JOIN_CONTENT]}, spark)
    effect = StateEffect.IMPOSSIBLE if reason else StateEffect.KEPT
    assert set(effects(found).values()) == {effect}
    assert all(reason in store.reason for store in found.stores)


def test_join_is_compared_by_its_columns_and_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {SHAPE: [JOIN_CONTENT]}
    more = json.dumps({"left": ["key string", "n int"], "right": ["key string"], "keeps": []})
    same = planned(monkeypatch, joined(), joined(grace="5 s"), kept, Spark())
    assert set(effects(same).values()) == {StateEffect.KEPT}
    outer = joined("LEFT ", "5 s")
    kind = planned(monkeypatch, joined(), outer, kept, Spark())
    assert "the kind of the join (INNER, LEFT, RIGHT, FULL, SEMI or ANTI)" in kind.impossible["P"]
    wider = [
        json.dumps({"left": ["key string", f"n decimal({size},2)"], "right": [], "keeps": []})
        for size in (20, 10)
    ]
    other = joined().replace("l.value", "r.value")
    for kept_for, now, effect in (
        (wider[1], wider[0], StateEffect.CONVERTED),
        (wider[0], wider[1], StateEffect.IMPOSSIBLE),
    ):
        found = planned(monkeypatch, joined(), other, {SHAPE: [kept_for]}, Spark(Answer(now)))
        assert {*effects(found).values()} == {effect}
    columns = planned(monkeypatch, joined(), other, kept, Spark(Answer(more)))
    assert (
        "of a, it has the columns key string, and now key string, n int"
        in (columns.impossible["P"])
    )
    groups = {SHAPE: [content()]}
    was_grouped = planned(monkeypatch, grouped("key"), joined(), groups, Spark())
    assert "it was kept for groups, and not for a join" in was_grouped.impossible["P"]


# --- lost state ---


def test_state_that_is_given_up_is_lost_with_what_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = grouped(f"value, {WINDOW}")
    kept = {SHAPE: [content(route=BETWEEN)]}
    found = planned(monkeypatch, grouped("value"), after, kept, Spark(), lose=["P"])
    assert found.impossible == {}
    assert effects(found) == {
        "windows": StateEffect.NEW,
        "windows-times": StateEffect.NEW,
        "shape": StateEffect.LOST,
        "groups": StateEffect.LEFT,
    }
    assert found.lost.inputs == {("P", "groups-repartition")}
    assert {processor for processor, _ in found.lost.stores} == {"P"}


def test_tables_of_a_query_are_not_lost_with_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_table(LATEST, " GROUP BY i.key")
    kept = {SHAPE: [content(window=HOUR)]}
    found = planned(monkeypatch, text, text, kept, Spark(), lose=["P"])
    assert effects(found) == {
        "table-t": StateEffect.KEPT,
        "groups": StateEffect.LOST,
        "shape": StateEffect.LOST,
    }


def test_what_is_kept_of_the_keys_of_change_events_stays_with_their_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = with_table('{topic: b, schema: "x INT"}', " GROUP BY i.key")
    text = text.replace("b: b_topic", "b: {topic: b_topic, format: debezium}")
    text = text.replace("from: [a]", 'format: json, schema: "value INT", from: [a]')
    kept = {SHAPE: [content(window=HOUR)]}
    refused = planned(monkeypatch, text, text, kept, Spark())
    assert effects(refused)["changes-t"] is StateEffect.KEPT
    found = planned(monkeypatch, text, text, kept, Spark(), lose=["P"])
    assert effects(found) == {
        "table-t": StateEffect.KEPT,
        "changes-t": StateEffect.KEPT,
        "groups": StateEffect.LOST,
        "shape": StateEffect.LOST,
    }


@pytest.mark.parametrize("id_", ["p", "Q", "X"])
def test_processor_without_state_cannot_lose_it(id_: str) -> None:
    text = grouped("key") + "\n- {id: Q, type: forward, from: [a], to: [c]}"
    with pytest.raises(ConfigError, match=f'no processor "{id_}" with state'):
        processors_with_state(in_kafka(text, INPUTS), [id_])


# --- tables ---


def with_table(table: str, groups: str = "") -> str:
    query = f"SELECT i.value FROM input i JOIN t ON i.key = t.key{groups}"
    if groups:
        query = query.replace("i.value", "count(*) AS value", 1)
    return (
        f'{SOURCES}- {{id: P, type: sql, query: "{query}", from: [a], tables: {{t: {table}}}, '
        "to: [c]}"
    )


LATEST, HISTORY = "{topic: b}", "{topic: b, history: 1 d}"
KEPT = "state_topic_P_table-t_job"
KEPT_HISTORY = "state_topic_P_table-t-history_job"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (LATEST, HISTORY, "was kept without a history, in another format, and would begin empty"),
        (HISTORY, LATEST, "was kept with a history, in another format, and would begin empty"),
    ],
)
def test_table_that_was_kept_in_another_way_is_impossible(
    before: str, after: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(monkeypatch, with_table(before), with_table(after), {}, Spark())
    assert problem in found.impossible["P"]
    lost = planned(monkeypatch, with_table(before), with_table(after), {}, Spark(), lose=["P"])
    assert lost.impossible == {}
    assert {store.effect for store in lost.stores} == {StateEffect.LOST, StateEffect.LEFT}


def test_table_of_a_renamed_query_is_looked_at_under_its_former_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = with_table(HISTORY).replace("id: P", "id: Q, was: P")
    found = planned(monkeypatch, with_table(LATEST), after, {}, Spark())
    assert "was kept without a history" in found.impossible["Q"]


def test_table_that_follows_another_topic_says_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = with_table(LATEST).replace("a_topic,", "a_topic, d: d_topic,")
    after = before.replace("topic: b}", "topic: d}")
    for text, reason in ((after, "rows that came from b_topic stay"), (before, "")):
        (store,) = planned(monkeypatch, before, text, {}, Spark()).stores
        assert (store.effect, store.reason) == (StateEffect.KEPT, reason)


def test_table_of_the_processor_in_front_of_groups_is_looked_at_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = with_table(HISTORY, " GROUP BY i.value")
    others = ["state_topic_P-rows_table-t_job"]
    found = planned(monkeypatch, None, text, {}, Spark(), others=others)
    assert [*found.impossible] == ["P-rows"]
    found = planned(monkeypatch, None, text, {}, Spark(), others=[KEPT])
    assert found.impossible == {}


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        (HISTORY, KEPT_HISTORY),
        ("{topic: b, history: 2 h}", KEPT_HISTORY),
        (LATEST, KEPT),
        (HISTORY, "state_topic_Q_table-t_job"),
        ("{topic: b, global: true}", KEPT_HISTORY),
    ],
)
def test_table_that_was_kept_in_the_same_way_or_not_at_all_is_fine(
    table: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for others in ([kept], []):
        found = planned(monkeypatch, None, with_table(table), {}, Spark(), others=others)
        assert found.impossible == {}
