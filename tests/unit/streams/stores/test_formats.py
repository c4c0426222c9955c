"""Values with a format: former ones are upgraded when they are read, each of them once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline import TopologyBuilder
from kafka_pipeline.common.errors import OwnError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.operations.state import shown as on_terminal
from kafka_pipeline.streams import serdes, stores
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.user_errors import Explanation
from kafka_pipeline.streams.errors import (
    InvalidArgumentError,
    StateStoreError,
    TopologyError,
    UpgradeError,
)
from kafka_pipeline.streams.stores import StoreBuilder, Windowed
from kafka_pipeline.streams.stores.lookup import TimeRange, look_up
from kafka_pipeline.streams.windowed import Window
from kafka_pipeline.testing import TopologyTestDriver
from tests.user_code.upgraded import Totals, upgrade

KEY, VALUE = serdes.string, serdes.json
SESSION = Windowed("a", Window(5, 9))
FAMILIES: dict[str, tuple[StoreBuilder[Any, Any], Callable[[Any, Any], Any], Any]] = {
    "key_value": (stores.key_value("S", KEY, VALUE), lambda s, v: s.put("a", v), "get"),
    "timestamped": (
        stores.timestamped_key_value("S", KEY, VALUE),
        lambda s, v: s.put("a", (v, 7)),
        lambda s: (s.get("a").value, s.get("a").timestamp) == ({"n": 5}, 7) and {"n": 5},
    ),
    "window": (
        stores.window("S", KEY, VALUE, retention_ms=100, window_size_ms=10),
        lambda s, v: s.put("a", v, 5),
        lambda s: s.fetch_window("a", 5),
    ),
    "duplicates": (
        stores.window("S", KEY, VALUE, retention_ms=100, window_size_ms=10, retain_duplicates=True),
        lambda s, v: s.put("a", v, 5),
        lambda s: s.fetch_window("a", 5),
    ),
    "session": (
        stores.session("S", KEY, VALUE, retention_ms=100),
        lambda s, v: s.put(SESSION, v),
        lambda s: s.fetch_session("a", 5, 9),
    ),
    "versioned": (
        stores.versioned_key_value("S", KEY, VALUE, history_retention_ms=100),
        lambda s, v: s.put("a", v, 5),
        lambda s: s.get("a").value,
    ),
}
SCANS: dict[str, Callable[[Any], list[Any]]] = {
    "key_value": lambda s: [
        *(v for _, v in s.all()),
        *(v for _, v in s.reverse_range("a", "b")),
        *(v for _, v in s.prefix_scan("a", KEY)),
        *s.get_all(["a"]),
    ],
    "timestamped": lambda s: [
        *(v.value for _, v in s.all()),
        s.exchange(["a"], [{"n": 5}], [7])[0],
    ],
    "window": lambda s: [
        *(v for _, v in s.fetch_list("a", 0, 9)),
        *(v for _, v in s.backward_fetch("a", 0, 9)),
        *(v for _, v in s.fetch_all(0, 9)),
    ],
    "duplicates": lambda s: [v for _, v in s.fetch("a", 0, 9)],
    "session": lambda s: [
        *(v for _, v in s.fetch("a")),
        *(v for _, v in s.find_sessions("a", 0, 9)),
    ],
    "versioned": lambda s: [v.value for v in s.get_versions("a")],
}
WHOLE = pytest.mark.parametrize("family", FAMILIES)


class Calls(list[tuple[Any, int]]):
    """An upgrade of a number to a map, which keeps its calls."""

    def __call__(self, value: Any, version: int) -> Any:
        self.append((value, version))
        return {"n": value}


def opened(
    family: str, upgrade: Any, *, format_: int = 2, folder: Path | None = None
) -> tuple[StoreBuilder[Any, Any], Any]:
    """Return a definition with integers as format 1, and its bytes."""
    builder = FAMILIES[family][0].with_format(format_, upgrade, [serdes.int64])
    return builder, builder.open_in_memory() if folder is None else builder.open(
        folder, {"id": "t"}
    )


def read(family: str, store: Any) -> Any:
    how = FAMILIES[family][2]
    return store.get("a") if how == "get" else how(store)


@WHOLE
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("scans", [False, True])
def test_value_of_a_former_format_is_upgraded_once(
    family: str, on_disk: bool, scans: bool, tmp_path: Path
) -> None:
    calls = Calls()
    builder, data = opened(family, calls, folder=tmp_path / "store" if on_disk else None)
    FAMILIES[family][1](builder.of_former(1).build(data), 5)
    data.commit(1)
    store = builder.build(data)
    if scans:
        assert {str(value) for value in SCANS[family](store)} == {"{'n': 5}"}
    assert read(family, store) == read(family, store) == {"n": 5}
    (changed,) = {**data.uncommitted}
    assert changed in dict(data.entries()), "it is put under the key that it had"
    data.commit(2)
    assert read(family, builder.build(data)) == {"n": 5}
    assert calls == [(5, 1)]
    data.close()


@WHOLE
def test_store_without_a_format_has_the_same_bytes_as_ever(family: str) -> None:
    builder, put, _ = FAMILIES[family]
    data, plain = builder.open_in_memory(), builder.with_format(1).open_in_memory()
    put(builder.build(data), {"n": 5})
    put(builder.with_format(1).build(plain), {"n": 5})
    assert data.uncommitted == plain.uncommitted
    assert all((value or b"").endswith(b'{"n":5}') for value in data.uncommitted.values())
    assert builder.with_format(1).content == builder.content


@WHOLE
def test_undone_upgrade_is_repeated(family: str) -> None:
    calls = Calls()
    builder, data = opened(family, calls)
    FAMILIES[family][1](builder.of_former(1).build(data), 5)
    data.commit(1)
    store = builder.build(data)
    data.mark()
    assert read(family, store) == {"n": 5}
    data.undo()
    assert not data.uncommitted
    assert read(family, store) == {"n": 5}
    assert len(calls) == 2


def test_values_of_all_formats_are_next_to_each_other_each_with_its_serde() -> None:
    seen: list[tuple[Any, int]] = []

    def upgrade(value: Any, version: int) -> Any:
        seen.append((value, version))
        return value if version == 2 else str(value)

    builder = stores.key_value("S", KEY, serdes.string).with_format(
        3, upgrade, [serdes.int64, serdes.string]
    )
    data = builder.open_in_memory()
    store: Any = builder.of_former(1).build(data)
    store.put("a", 1)
    store = builder.of_former(2).build(data)
    store.put("b", "")
    store = builder.build(data)
    store.put("c", "three")
    with store.all() as entries:
        assert [*entries] == [("a", "1"), ("b", ""), ("c", "three")]
    assert seen == [(1, 1), ("", 2)]
    assert builder.content.formats == {1: "int64", 2: "string", 3: "string"}


def test_deleted_version_stays_deleted() -> None:
    builder, data = opened("versioned", Calls())
    former: Any = builder.of_former(1).build(data)
    former.put("a", 5, 5)
    former.put("a", None, 6)
    store: Any = builder.build(data)
    assert (store.get("a"), store.get("a", 5).value) == (None, {"n": 5})


def fails_with(error: Exception) -> Callable[[Any, int], Any]:
    def upgrade(value: Any, version: int) -> Any:
        raise error

    return upgrade


@pytest.mark.parametrize(
    ("upgrade", "problem"),
    [
        (fails_with(ValueError("no 4711")), "ValueError: no 4711"),
        (fails_with(TypeError("unsupported")), "TypeError: unsupported"),
        (lambda value, version: None, "StateStoreError: the upgrade returned None"),
        (lambda value, version: {1}, "SerializationError: the serde json cannot write this"),
    ],
)
def test_upgrade_that_fails_is_named_with_store_and_key(upgrade: Any, problem: str) -> None:
    builder, data = opened("key_value", upgrade)
    FAMILIES["key_value"][1](builder.of_former(1).build(data), 5)
    before = dict(data.uncommitted)
    with pytest.raises(UpgradeError) as caught:
        read("key_value", builder.build(data))
    where = 'the store "S" has a value of format 1, whose upgrade to format 2 failed'
    assert str(caught.value).startswith(f"{where} for the key b'a': {problem}")
    assert isinstance(caught.value, OwnError)
    assert caught.value.shown.startswith(f"{where}: {problem.partition(':')[0]}")
    assert "4711" not in caught.value.shown
    assert dict(data.uncommitted) == before


@pytest.mark.parametrize(
    ("written", "upgrade", "problem"),
    [
        (3, Calls(), "has a value of format 3, and its declaration has 2$"),
        (1, None, "has a value of format 1, and its declaration has 2, without an upgrade"),
    ],
)
def test_value_that_cannot_be_upgraded_is_refused(written: int, upgrade: Any, problem: str) -> None:
    plain = stores.key_value("S", KEY, VALUE)
    data = plain.open_in_memory()
    store: Any = plain.of_former(written).build(data)
    store.put("a", 5)
    store = plain.with_format(2, upgrade).build(data)
    with pytest.raises(StateStoreError, match=problem):
        store.get("a")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((0,), "a whole number from 1 to 255, not 0"),
        ((256,), "a whole number from 1 to 255, not 256"),
        ((True,), "a whole number from 1 to 255, not True"),
        ((2, "shop:upgrade"), "upgrade is a function"),
        ((1, Calls()), "upgrade goes with a format above 1"),
        ((2, None, [KEY]), "former goes with an upgrade"),
        ((3, Calls(), [KEY]), "former has 1 serde, and format 3 follows 2 formats"),
        ((2, Calls(), [KEY, KEY]), "former has 2 serdes, and format 2 follows 1 format"),
        ((2, Calls(), ["string"]), "former has a str"),
    ],
)
def test_wrong_format_is_refused(given: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f'the store "S": .*{problem}'):
        stores.key_value("S", KEY, VALUE).with_format(*given)


@WHOLE
def test_query_shows_a_value_of_a_former_format_as_it_is(family: str) -> None:
    calls = Calls()
    builder, data = opened(family, calls)
    FAMILIES[family][1](builder.of_former(1).build(data), 5)
    data.commit(1)
    for shown, has in (({"value": 5, "format": 1}, True), ({"value": {"n": 5}}, False)):
        with data.committed(10, 10.0) as view:
            (row,), _ = look_up(builder, view, b"a", TimeRange(), 1)
        assert {name: row[name] for name in ("value", "format") if name in row} == shown
        assert on_terminal(row, "value", 99) == ("5 (format 1)" if has else '{"n": 5}')
        if has:
            read(family, builder.build(data))
            data.commit(2)
    assert calls == [(5, 1)]


def driver(found: Any) -> TopologyTestDriver:
    """Run a class with a store whose values were numbers; it skips records that it rejects."""
    builder = TopologyBuilder()
    builder.add_source("In", "in", key_serde=serdes.string, value_serde=serdes.integer)
    builder.add_processor("Sums", Totals, ["In"])
    store = stores.key_value("Totals", KEY, VALUE).with_format(2, found, [serdes.int64])
    builder.add_state_store(store, ["Sums"])
    builder.add_sink("Out", "out", ["Sums"], key_serde=serdes.string, value_serde=VALUE)
    settings = {"In": GroupSettings(on_error=OnError.SKIP)}
    return TopologyTestDriver(builder, settings=settings)


def test_record_whose_value_cannot_be_upgraded_is_rejected_and_the_others_go_on() -> None:
    with driver(upgrade) as run:
        former = run.get_former_store("Totals", 1)
        former.put("ann", 100)
        former.put("bob", -5)
        source = run.create_input_topic("in", serdes.string, serdes.integer)
        for key in ("bob", "ann", "bob", "ann"):
            source.pipe_input(key, 1)
        out = run.create_output_topic("out", KEY, VALUE)
        assert out.read_key_values() == [
            ("ann", {"sum": 101, "count": 2}),
            ("ann", {"sum": 102, "count": 3}),
        ]
        assert run.metrics["skipped_records_total"] == 2


def test_mistake_in_an_upgrade_is_one_of_user_code() -> None:
    with driver(lambda value, version: value["sum"]) as run:
        run.get_former_store("Totals", 1).put("ann", 100)
        source = run.create_input_topic("in", serdes.string, serdes.integer)
        with pytest.raises(UpgradeError, match="whose upgrade to format 2 failed") as caught:
            source.pipe_input("ann", 1)
        found = Explanation(caught.value)
        assert found.is_mistake
        assert 'processor "Sums"' in found.where


def test_global_store_has_no_format() -> None:
    store = stores.key_value("G", KEY, VALUE).with_format(2)
    with pytest.raises(TopologyError, match='global store "G" has the format 2'):
        TopologyBuilder().add_global_store(store, "Source", "topic", "Fill", Totals)
