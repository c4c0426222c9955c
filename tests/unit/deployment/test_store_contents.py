"""Which stores can go on with their state, as far as their contents say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    PipelineProcessor,
    StoreContent,
)
from kafka_pipeline.common.pipelines.specs import ClassSpec, TopologySpec
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.common.pipelines.store_specs import StoreSpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import (
    PipelineVersion,
    version_from_json,
    version_to_json,
)
from kafka_pipeline.deployment.plan import plan
from kafka_pipeline.deployment.store_contents import StateEffect, Verdict, combined
from tests.unit.deployment.test_plan import JOB
from tests.unit.streams.pipeline.loading import load

NAMES = TopicNames("job", "in", "out")
CONTENT = StoreContent(family="window", key="string", value="json", windows="of 10 ms, every 5 ms")
UNKNOWN = "are not compared"


def topology(content: StoreContent | None, **others: object) -> Pipeline:
    stores = (structs.replace(LoggedStore("S", content=content), **others),)
    spec = TopologySpec(code="m:f", group="G")
    return Pipeline((PipelineProcessor("T-G", spec, (SINK,), (SOURCE,), stores=stores),), NAMES, 1)


def verdict(before: Pipeline, after: Pipeline) -> tuple[StateEffect, str]:
    topics = [spec.name for spec in before.data_topics(1)]
    (store,) = plan(before, after, topics).stores
    return store.effect, store.reason


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"family": "session", "windows": "of sessions with a gap of 3 ms"},
            "is a window, and now",
        ),
        ({"windows": "of 10 ms, every 10 ms"}, "has windows of 10 ms, every 5 ms, and now of 10"),
        ({"key": "bytes"}, "has keys by the serde string, and now bytes is wanted"),
        ({"value": "integer"}, "has values by the serde json, and now integer is wanted"),
    ],
)
def test_store_with_another_content_is_impossible(changed: dict[str, str], reason: str) -> None:
    after = topology(structs.replace(CONTENT, **changed))
    effect, found = verdict(topology(CONTENT), after)
    assert effect is StateEffect.IMPOSSIBLE
    assert reason in found
    assert plan(topology(CONTENT), after, ["state_topic_T-G_S_job"]).impossible == {"T-G": found}


def test_retention_and_place_of_a_store_may_change() -> None:
    policy = {"cleanup.policy": "compact,delete", "retention.ms": "7"}
    after = topology(CONTENT, topic_config=policy, persistent=False)
    assert verdict(topology(CONTENT), after) == (StateEffect.KEPT, "")


@pytest.mark.parametrize("content", [CONTENT, None])
def test_another_grace_period_changes_which_windows_close(content: StoreContent | None) -> None:
    before, after, never = (
        topology(content, spreading=Spreading(rule="key", time="window", closes_ms=closes_ms))
        for closes_ms in (60_000, 15_000, None)
    )
    effect, reason = verdict(before, after)
    assert effect is StateEffect.CONVERTED
    assert reason.startswith("windows close 45000 ms earlier, by their grace period: those that")
    effect, reason = verdict(after, before)
    assert effect is StateEffect.CONVERTED
    assert reason.endswith("are open again, and give a second result")
    assert verdict(never, before)[0] is verdict(before, before)[0] is StateEffect.KEPT
    effect, reason = verdict(before, never)
    assert effect is StateEffect.CONVERTED
    assert reason.endswith("windows that are open have none unless another record comes")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, ("kept", "a"), ("kept", "a")),
        (("converted", "a"), ("kept", "b"), ("converted", "b; a")),
        (("converted", "a"), ("converted", "b"), ("converted", "b; a")),
        (("converted", "a"), ("impossible", "b"), ("impossible", "b")),
        (("impossible", "a"), ("kept", "b"), ("impossible", "a")),
        (("converted", "a"), ("unchecked", ""), ("unchecked", "a")),
    ],
)
def test_verdicts_about_a_store_are_combined(
    one: tuple[str, str] | None, other: tuple[str, str], expected: tuple[str, str]
) -> None:
    first, second, both = (
        each and Verdict(StateEffect(each[0]), each[1]) for each in (one, other, expected)
    )
    assert second is not None
    assert combined(first, second) == both


def test_store_of_a_version_without_contents_is_kept_with_a_remark() -> None:
    effect, reason = verdict(topology(None), topology(CONTENT))
    assert effect is StateEffect.KEPT
    assert UNKNOWN in reason


def test_version_keeps_the_contents_of_its_stores() -> None:
    written = PipelineVersion(1, topology(CONTENT), "", 0, "me")
    read = version_from_json(version_to_json(written), NAMES)
    assert read.pipeline == written.pipeline
    former = PipelineVersion(1, topology(None), "", 0, "me")
    assert "content" not in version_to_json(former)["processors"][0]["stores"][0]


def with_store(store: str) -> Pipeline:
    return load(f'- {{id: C, type: "shop:C", to: [sink], stores: [{{name: S, {store}}}]}}', JOB)


@pytest.mark.parametrize("has_contents", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("value: integer", "value: integer", ""),
        ("value: integer", "value: integer, persistent: false", ""),
        ("value: integer", "value: json", "has values by the serde integer, and now json"),
        ("key: string", "key: bytes", "has keys by the serde string, and now bytes"),
        ("type: key_value", "type: timestamped_key_value", "is a key-value, and now timestamped"),
        (
            "type: window, retention_ms: 9, window_size_ms: 3",
            "type: window, retention_ms: 7, window_size_ms: 3",
            "",
        ),
        (
            "type: window, retention_ms: 9, window_size_ms: 3",
            "type: window, retention_ms: 9, window_size_ms: 4",
            "has windows of 3 ms, and now of 4 ms",
        ),
        (
            "type: session, retention_ms: 9",
            "type: session, retention_ms: 5",
            "",
        ),
    ],
)
def test_stores_of_a_class_are_compared(
    before: str, after: str, reason: str, has_contents: bool
) -> None:
    """Even those of versions that do not say what their stores have: the class's spec does."""
    former = with_store(before)
    if not has_contents:
        (processor,) = former.processors
        stores = tuple(structs.replace(store, content=None) for store in processor.stores)
        former = replace(former, processors=(replace(processor, stores=stores),))
    effect, found = verdict(former, with_store(after))
    assert effect is (StateEffect.IMPOSSIBLE if reason else StateEffect.KEPT)
    assert reason in found if reason else found == ""


UPGRADED = "value: json, format: 2, upgrade: 'shop:f', former: [integer]"
THIRD = "value: json, format: 3, upgrade: 'shop:f', former: [integer, json]"
TO = "values are upgraded from format"


@pytest.mark.parametrize(
    ("before", "after", "effect", "reason"),
    [
        ("value: integer", UPGRADED, StateEffect.CONVERTED, f"{TO} 1 to 2 as they are read"),
        ("value: integer", THIRD, StateEffect.CONVERTED, f"{TO} 1 to 3 as they are read"),
        (UPGRADED, THIRD, StateEffect.CONVERTED, f"{TO} 2 to 3 as they are read"),
        (UPGRADED, UPGRADED, StateEffect.KEPT, ""),
        ("value: json, format: 2", "value: json, format: 2", StateEffect.KEPT, ""),
        (
            UPGRADED,
            "value: integer",
            StateEffect.IMPOSSIBLE,
            "its values have format 2, and now 1 is wanted: give it format 2 or a later one",
        ),
        (
            "value: json",
            UPGRADED,
            StateEffect.IMPOSSIBLE,
            "it has values of format 1 by the serde json, and now integer is wanted",
        ),
        (
            "value: json",
            "value: json, format: 2",
            StateEffect.IMPOSSIBLE,
            "it may have values of format 1, and now 2 is wanted without an `upgrade`",
        ),
        # Those of format 1 that nobody has read since then are still there.
        (
            UPGRADED,
            "value: json, format: 3, upgrade: 'shop:f'",
            StateEffect.IMPOSSIBLE,
            "it has values of format 1 by the serde integer, and now json is wanted",
        ),
        (
            UPGRADED,
            "value: json, format: 2",
            StateEffect.IMPOSSIBLE,
            "it may have values of format 1, and now 2 is wanted without an `upgrade`",
        ),
        (
            "value: json, format: 2",
            "value: json, format: 3, upgrade: 'shop:f', former: [string, json]",
            StateEffect.CONVERTED,
            f"{TO} 2 to 3",
        ),
    ],
)
def test_formats_of_values_are_compared(
    before: str, after: str, effect: StateEffect, reason: str
) -> None:
    for former in (with_store(before), read_again(with_store(before))):
        found, why = verdict(former, with_store(after))
        assert found is effect
        assert reason in why


def read_again(pipeline: Pipeline) -> Pipeline:
    written = version_to_json(PipelineVersion(1, pipeline, "", 0, "me"))
    return version_from_json(json.loads(json.dumps(written)), NAMES).pipeline


@pytest.mark.parametrize("type_", ["key_value", "timestamped_key_value", "window", "session"])
def test_spec_of_a_class_says_the_same_as_its_store(type_: str) -> None:
    times = {"window": ", retention_ms: 9, window_size_ms: 3", "session": ", retention_ms: 9"}
    loaded = with_store(f"type: {type_}, key: string, value: json{times.get(type_, '')}")
    (processor,) = loaded.processors
    spec = processor.spec
    assert isinstance(spec, ClassSpec)
    assert isinstance(spec.stores[0], StoreSpec)
    bare = replace(
        processor, stores=tuple(structs.replace(each, content=None) for each in processor.stores)
    )
    assert verdict(replace(loaded, processors=(bare,)), loaded) == (StateEffect.KEPT, "")


def dsl(builder: str, **config: object) -> Pipeline:
    given = ", ".join(f"{name}: {value}" for name, value in config.items())
    code = f"tests.user_code.changed_windows:{builder}"
    return load(f"- {{id: W, type: topology, builder: '{code}', config: {{{given}}}}}", JOB)


@pytest.mark.parametrize(
    ("builder", "before", "after", "reason"),
    [
        ("tumbling", {"size_ms": 10}, {"size_ms": 20}, "has windows of 10 ms, every 10 ms"),
        ("hopping", {"advance_ms": 5}, {"advance_ms": 2}, "has windows of 10 ms, every 5 ms"),
        ("sessions", {"gap_ms": 5}, {"gap_ms": 6}, "has windows of sessions with a gap of 5 ms"),
        ("sliding", {"difference_ms": 5}, {"difference_ms": 6}, "has windows that slide, of 5 ms"),
        ("days", {"tz": "UTC"}, {"tz": "Europe/Berlin"}, "has windows of 1 day in UTC"),
        ("tumbling", {"grace_ms": 5}, {"grace_ms": 90}, ""),
        ("joined", {"within_ms": 5}, {"within_ms": 50}, ""),
        ("counted", {"serde": "json"}, {"serde": "string"}, "has values by the serde"),
    ],
)
def test_windows_and_serdes_of_the_dsl_are_compared(
    builder: str, before: dict[str, object], after: dict[str, object], reason: str
) -> None:
    former, later = dsl(builder, **before), dsl(builder, **after)
    topics = [spec.name for spec in former.data_topics(1)]
    found = plan(former, later, topics)
    assert bool(found.impossible) is bool(reason)
    assert all(reason in each for each in found.impossible.values())
    assert plan(former, former, topics).impossible == {}


@pytest.mark.parametrize("of", ["stream", "windows", "table"])
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("[count, sum]", "[count, sum]", ""),
        ("[sum]", "[count]", "it has agg.sum("),
        ("[count, sum]", "[sum, count]", "it has agg.count()"),
        ("[count]", "[count, sum]", "it has agg.count()"),
        ("[count, mean]", "[count]", "is wanted"),
        ("[sum]", "[other sum]", "it has agg.sum("),
    ],
)
def test_aggregations_of_the_dsl_are_compared(
    before: str, after: str, reason: str, of: str
) -> None:
    former, later = dsl("fields", kept=before, of=of), dsl("fields", kept=after, of=of)
    topics = [spec.name for spec in former.data_topics(1)]
    found = plan(read_again(former), later, topics).impossible
    assert bool(found) is bool(reason)
    assert all(reason in each for each in found.values())


def test_a_version_that_does_not_say_what_its_values_consist_of_is_kept() -> None:
    named = structs.replace(CONTENT, parts=("agg.count()",))
    assert verdict(topology(CONTENT), topology(named)) == (StateEffect.KEPT, "")
    assert verdict(topology(named), topology(CONTENT)) == (StateEffect.KEPT, "")


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"limit_ms": 5}, {"limit_ms": 9}, StateEffect.KEPT),
        ({"limit_ms": 5}, {}, StateEffect.IMPOSSIBLE),
        ({}, {"limit_ms": 5}, StateEffect.IMPOSSIBLE),
        ({"emit": "on_close"}, {}, StateEffect.CONVERTED),
        ({}, {"emit": "on_close"}, StateEffect.KEPT),
    ],
)
def test_another_moment_of_results_is_noticed(
    before: dict[str, object], after: dict[str, object], effect: StateEffect
) -> None:
    former, later = dsl("suppressed", **before), dsl("suppressed", **after)
    topics = [spec.name for spec in former.data_topics(1)]
    effects = {store.effect for store in plan(read_again(former), later, topics).stores}
    assert effects == {StateEffect.KEPT, effect}


@pytest.mark.parametrize(
    ("builder", "left", "right", "reason"),
    [
        ("of_streams", "b", "a", "the records of a, and now those of the other side of the join"),
        ("of_streams", "b", "c", "the records of a, and now those of the other side of the join"),
        ("of_streams", "c", "a", "the records of b, and now those of the other side of the join"),
        ("of_streams", "c", "b", ""),
        ("of_repartitions", "b", "a", "are wanted, b"),
    ],
)
def test_records_of_a_join_of_streams_are_not_those_of_its_other_side(
    builder: str, left: str, right: str, reason: str
) -> None:
    text = (
        "- {id: W, type: topology, builder: 'tests.user_code.joins:%s', "
        "config: {left: %s, right: %s, joined: d}}"
    )
    former, later = load(text % (builder, "a", "b"), JOB), load(text % (builder, left, right), JOB)
    topics = [spec.name for spec in former.data_topics(1)]
    found = plan(former, later, topics).impossible
    assert bool(found) is bool(reason)
    assert all(reason in each for each in found.values())
    assert plan(read_again(former), former, topics).impossible == {}


@pytest.mark.parametrize(
    ("left", "right", "swapped", "reason"),
    [
        ("a", "b", "true", "the records of a, and now those of the other side of the join"),
        ("b", "a", "false", "the records of a, and now those of the other side of the join"),
        ("b", "a", "true", ""),
        ("c", "b", "false", ""),
    ],
)
def test_subscriptions_of_a_table_are_not_those_of_the_other_one(
    left: str, right: str, swapped: str, reason: str
) -> None:
    text = (
        "- {id: W, type: topology, builder: 'tests.user_code.joins:by_foreign_key', "
        "config: {left: %s, right: %s, joined: d, swapped: %s}}"
    )
    former, later = load(text % ("a", "b", "false"), JOB), load(text % (left, right, swapped), JOB)
    topics = [spec.name for spec in former.data_topics(1)]
    found = {
        store.name: store.reason
        for store in plan(read_again(former), later, topics).stores
        if store.effect is StateEffect.IMPOSSIBLE
    }
    assert [*found] == (["Both-subscriptions"] if reason else [])
    assert all(reason in each for each in found.values())


ROWS_STAY = (StateEffect.KEPT, "rows that came from a stay")


@pytest.mark.parametrize("counts", ["true", "false"])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a", "b", ROWS_STAY),
        ("a", "a", (StateEffect.KEPT, "")),
        (
            "a\nsources: {a: t}",
            "a\nsources: {a: u}",
            (
                StateEffect.KEPT,
                "rows that came from t stay",
            ),
        ),
        ("a\nsources: {a: t}", "b\nsources: {b: t}", (StateEffect.KEPT, "")),
    ],
)
def test_rows_that_came_from_another_topic_stay(
    before: str, after: str, expected: tuple[StateEffect, str], counts: str
) -> None:
    def kept(source: str) -> Pipeline:
        name, _, sources = source.partition("\n")
        return load(
            f"{sources}\nprocessors:\n"
            "- {id: W, type: topology, builder: 'tests.user_code.joins:of_table', "
            f"config: {{source: {name}, counted: d, counts: {counts}}}}}",
            JOB,
        )

    former, later = kept(before), kept(after)
    topics = [spec.name for spec in former.data_topics(1)]
    (store,) = plan(read_again(former), later, topics).stores
    assert (store.effect, store.reason) == expected
