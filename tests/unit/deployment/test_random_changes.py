"""Random changes of pipelines: what a plan calls kept can be read, and nothing else fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import SHAPE_STORE
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment import kept_state
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.deployment.plan import Plan, plan
from kafka_pipeline.deployment.store_contents import StateEffect
from kafka_pipeline.streams.pipeline.kept_content import KeptContents
from kafka_pipeline.streams.pipeline.spark_answers import answers_by
from kafka_pipeline.streams.pipeline.units import group_of
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.stores import SessionStore, VersionedKeyValueStore
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.windowed import Windowed
from tests.unit.deployment.test_kept_state import Kafka
from tests.unit.streams.pipeline.loading import CONFIG, load
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

ROOT = Path(__file__).parents[3]
CODE = UserCode(["tests.user_code"], [ROOT])
GOES_ON = (StateEffect.KEPT, StateEffect.CONVERTED, StateEffect.FOUND, StateEffect.UNCHECKED)
SERDES = ("bytes", "string", "json", "integer")
SHORT, LONG = 60, 600
QUERIES = 12

Stores = Mapping[str, Mapping[str, BytesStore]]


def a_class(chance: random.Random) -> str:
    kind = chance.choice(
        ("key_value", "timestamped_key_value", "window", "session", "versioned_key_value")
    )
    key, value = chance.choice(("bytes", "string")), chance.choice(SERDES)
    times = {
        "window": f", retention_ms: {chance.choice((10**8, 10**9))}, window_size_ms: "
        f"{chance.choice((5, 6))}",
        "session": f", retention_ms: {chance.choice((10**8, 10**9))}",
        "versioned_key_value": f", history_retention_ms: {chance.choice((10**8, 10**9))}",
    }.get(kind, "")
    persistent = chance.choice(("", ", persistent: false"))
    return (
        '- {id: K, type: "tests.user_code.changed_windows:Keeps", to: [sink], '
        f"config: {{kind: {kind}, key: {key}, value: {value}}}, "
        f"stores: [{{name: S, type: {kind}, key: {key}, value: {value}{times}{persistent}}}]}}"
    )


def a_topology(chance: random.Random) -> str:
    name, *values = chance.choice(
        (
            ("tumbling", "size_ms: 10", "size_ms: 20", "grace_ms: 70"),
            ("hopping", "advance_ms: 5", "advance_ms: 2"),
            ("sessions", "gap_ms: 5", "gap_ms: 7"),
            ("sliding", "difference_ms: 5", "difference_ms: 7"),
            ("days", "tz: UTC", "tz: Europe/Berlin"),
            ("joined", "within_ms: 5", "within_ms: 50"),
            ("counted", "serde: bytes", "serde: string", "serde: json"),
        )
    )
    code = f"tests.user_code.changed_windows:{name}"
    return f'- {{id: T, type: topology, builder: "{code}", config: {{{chance.choice(values)}}}}}'


def a_query(chance: random.Random) -> str:
    found = ("sum(n)", "max(n)", "sum(m)", "avg(n)", "max(d)", "count(DISTINCT d)")
    chosen = chance.sample(found, chance.choice((1, 2))) + chance.choice(([], ["count(*)"]))
    functions = ", ".join(f"{each} AS v{place}" for place, each in enumerate(chosen))
    digits = chance.choice((10, 10, 12))
    group = chance.choice((*("key",) * 4, "n", "key, window(timestamp, '1 minute')"))
    limit, order = chance.choice((1, 2, 3)), chance.choice(("n", "n DESC", "m"))
    best = (
        "SELECT concat(key, '-', place) AS key, n FROM (SELECT key, n, row_number() OVER "
        f"(PARTITION BY key ORDER BY {order}) AS place FROM input) WHERE place <= {limit}"
    )
    grouped = f"SELECT {functions} FROM input GROUP BY {group}"
    query = chance.choice((grouped, grouped, grouped, best))
    return (
        f'- {{id: Q, type: sql, format: json, schema: "n INT, m BIGINT, d DECIMAL({digits},2)", '
        f'to: [sink], query: "{query}"}}'
    )


def counted(chance: random.Random) -> str:
    return f"- {{id: C, type: count, to: [sink], on_error: {chance.choice(('fail', 'skip'))}}}"


Makes = tuple[Callable[[random.Random], str], ...]


def a_pipeline(chance: random.Random, makes: Makes) -> str:
    """Return a pipeline of some of these processors, at least one."""
    chosen = [make for make in makes if chance.random() < 0.8] or [makes[0]]
    return "\n".join(make(chance) for make in chosen)


def rows(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "key": chance.choice("abc"),
            "n": chance.randrange(9),
            "m": number,
            "d": 0.25,
            "at": number / 9,
        }
        for number in range(12)
    ]


def entries(pipeline: Pipeline, stores: Stores) -> dict[tuple[str, str], list[Any]]:
    """Return what the tasks of a pipeline read in the stores of classes, topologies and `count`."""
    found = {}
    for unit in replicas(pipeline):
        if unit.spec.type == "sql":
            continue
        for builder in group_of(unit, CODE).stores:
            if builder.name in stores.get(str(unit.task), {}):
                store = builder.build(stores[str(unit.task)][builder.name])
                keys = [builder.key_serde.deserialize(key) for key in (b"a", b"b", b"c")]
                found[unit.name, builder.name] = read(store, keys)
    return found


def read(store: Any, keys: Sequence[Any]) -> list[str]:
    """Return what a store of any kind has of some keys."""
    if isinstance(store, VersionedKeyValueStore):
        return [repr(store.get(key)) for key in keys]
    if isinstance(store, SessionStore):
        return [repr([*store.fetch(key)]) for key in keys]
    return [repr((place(key), value)) for key, value in store.all()]


def place(key: Any) -> Any:
    """Return what a store has of a key: not where its window ends, which a change may move."""
    return (key.key, key.window.start) if isinstance(key, Windowed) else key


def planned(
    monkeypatch: pytest.MonkeyPatch,
    pipelines: tuple[Pipeline, Pipeline],
    stores: Stores,
    queries: LocalQueries,
    lose: tuple[str, ...] = (),
) -> Plan:
    before, after = pipelines
    existing = dict.fromkeys((spec.name for spec in before.data_topics(1)), 1)
    contents = {}
    for name, each in stores.items():
        if SHAPE_STORE in each:
            topic = before.names.state(TaskId.parse(name).processor, SHAPE_STORE)
            text = each[SHAPE_STORE].get(b"content")
            contents[topic] = [None if text is None else text.decode()]
    kafka = Kafka(existing, contents)
    monkeypatch.setattr(kept_state, "read_from", kafka.read)
    ask = partial(_ask, queries)
    state = KeptState(CONFIG, cast(Admin, kafka), KeptContents(CONFIG, ask))
    verdicts = state.verdicts(before, after, kafka.topics().keys())
    return plan(before, after, kafka.topics().keys(), verdicts, lose)


def _ask(queries: LocalQueries, config: object, specs: Any) -> Any:
    return answers_by(queries, specs, "content")


def goes_on(found: Plan, stores: Stores) -> Iterator[tuple[str, dict[str, BytesStore]]]:
    """Yield the stores that the tasks of the new pipeline have, by task."""
    names: dict[str, set[str]] = {}
    for store in found.stores:
        if store.effect in GOES_ON:
            names.setdefault(store.processor, set()).add(store.name)
    for task, each in stores.items():
        kept = names.get(TaskId.parse(task).processor, set())
        yield task, {name: store for name, store in each.items() if name in kept}


def change(
    monkeypatch: pytest.MonkeyPatch, seed: int, makes: Makes, queries: LocalQueries
) -> Counter[str]:
    """Make one change, check all that the plan says, and return its words."""
    chance = random.Random(seed)
    settings = replace(CONFIG, parallelism=1)
    texts = a_pipeline(chance, makes), a_pipeline(chance, makes)
    before, after = (load(text, settings) for text in texts)
    shared = OpenedOnce(queries)
    first = Job(texts[0], shared, code=CODE)
    first.send(rows(chance))
    first.close()
    found = planned(monkeypatch, (before, after), first.stores, queries)
    words = Counter(str(store.effect) for store in found.stores)
    if found.impossible:
        lose = tuple(found.impossible)
        found = planned(monkeypatch, (before, after), first.stores, queries, lose)
        assert found.impossible == {}
        assert {id_ for id_, _ in found.lost.stores} == {*lose}
    had, has = entries(before, first.stores), entries(after, dict(goes_on(found, first.stores)))
    assert {name: had[name] for name in has} == has
    second = Job(texts[1], shared, dict(goes_on(found, first.stores)), code=CODE)
    second.send(rows(chance))
    second.restart()
    second.send(rows(chance))
    second.close()
    return words


@pytest.mark.parametrize(
    "seeds",
    [range(SHORT), pytest.param(range(SHORT, LONG), marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_what_goes_on_can_be_read(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    words: Counter[str] = Counter()
    queries = LocalQueries(CODE, Readable())
    for seed in seeds:
        try:
            words += change(monkeypatch, seed, (a_class, a_topology, counted), queries)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert {*words} >= {"kept", "new", "left", "impossible"}


@pytest.mark.long
@pytest.mark.integration
def test_what_queries_go_on_with_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    words: Counter[str] = Counter()
    queries = LocalQueries(CODE, Readable())
    for seed in range(QUERIES):
        try:
            words += change(monkeypatch, seed, (a_query, counted, a_class), queries)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert {*words} >= {"kept", "converted", "impossible"}
