"""Which arcs are drained because the records in them get another form."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import cast

import pytest
from msgspec import structs

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.lookup_tables import TableSpec
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import SqlSpec, TopologySpec
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.deploy import require_usable_state
from kafka_pipeline.deployment.desired_state import (
    PipelineVersion,
    version_from_json,
    version_to_json,
)
from kafka_pipeline.deployment.plan import Arc, plan
from kafka_pipeline.deployment.record_forms import changed_forms
from tests.unit.streams.pipeline.loading import load

CHAIN = """
- {id: A, type: "shop:A", serdes: {value: json, out_value: %s}, to: [F]}
- {id: F, type: forward, to: [B]}
- {id: B, type: "shop:B", serdes: {value: %s}, to: [sink]}
"""
QUERIES = """
- {id: A, type: sql, query: "%s", format: json, schema: "a INT, b INT", to: [B]}
- {id: B, type: sql, query: "SELECT %s AS a FROM input", format: json, schema: "a INT", to: [sink]}
"""
GROUPS = """
- {id: P, type: sql, query: "SELECT value AS key, %s AS value FROM input GROUP BY value",
   to: [sink]%s}
"""
FRAMES = """
- {id: P, type: sql, query: "SELECT value AS key, %s OVER (PARTITION BY value ORDER BY timestamp
   ROWS 9 PRECEDING) AS value FROM input", to: [sink], grace: %s}
"""
TOTALS = """
sources: {a: a, b: b}
processors:
- {id: T, type: sql, query: "SELECT a.x AS key, %s(b.y) AS value FROM a JOIN b ON a.n = b.n GROUP BY
   a.x", from: [a, b], format: json, schema: {a: "n INT, x STRING", b: "n INT, y INT"}, ttl: none,
   to: [sink], on_error: %s}
"""
TOPOLOGY = "- {id: W, type: topology, builder: 'tests.user_code.topologies:%s', config: {%s}}"
WORDS = load(TOPOLOGY % ("counted_words", "lines: a, words: b"))


def changed(before: str, after: str) -> list[str]:
    return sorted(changed_forms(load(before), load(after)))


def with_serdes(pipeline: Pipeline, **serdes: str) -> Pipeline:
    """Return a topology whose internal topics have other serdes; without any, they are unknown."""

    def edited(spec: TopologySpec) -> TopologySpec:
        of_topics = {name: structs.replace(had, **serdes) for name, had in spec.serdes.items()}
        return structs.replace(spec, serdes=of_topics if serdes else {})

    processors = (
        replace(each, spec=edited(each.spec)) if isinstance(each.spec, TopologySpec) else each
        for each in pipeline.processors
    )
    return replace(pipeline, processors=tuple(processors))


def test_arcs_of_a_changed_serde_are_drained_also_where_records_are_passed_on() -> None:
    before, after = load(CHAIN % ("string", "string")), load(CHAIN % ("json", "json"))
    found = plan(before, after, ()).arcs
    assert [(arc.topic, arc.writers, arc.reader) for arc in found] == [
        ("A_F", ("A",), "F"),
        ("F_B", ("F",), "B"),
    ]
    assert found[1].change == (
        "its values were string, and now are json. B reads keys by bytes and values by json"
    )
    assert plan(before, before, ()).arcs == ()


def test_what_makes_rows_of_groups_goes_into_the_tasks_of_a_join_once_its_arc_is_drained() -> None:
    """As it does if an earlier engine has written the version that runs."""
    apart, within = load(TOTALS % ("sum", "skip")), load(TOTALS % ("sum", "fail"))
    (arc,) = plan(apart, within, ()).arcs
    assert arc == Arc("T.a_b_T", ("T.a_b",), "T-rows")
    assert plan(within, apart, ()).arcs == ()
    # Rows of other groups do not meet those that wait.
    (arc,) = plan(within, load(TOTALS % ("max", "fail")), ()).arcs
    assert (arc.topic, arc.writers, arc.reader) == ("T_groups-repartition", ("T.a_b",), "T")
    stay = "its keys and values stay bytes or rows of a query as json, but are written in another"
    assert arc.change.startswith(f"{stay} way. ")


@pytest.mark.parametrize(
    ("before", "after", "arcs"),
    [
        # The reader stays as it is: it reads the records that wait as it always did.
        (CHAIN % ("string", "bytes"), CHAIN % ("json", "bytes"), []),
        # What waits is like what follows. A reader that has FAILED can be mended so.
        (CHAIN % ("json", "string"), CHAIN % ("json", "json"), []),
        (QUERIES % ("SELECT a FROM input", "a"), QUERIES % ("SELECT b AS a FROM input", "a"), []),
        (
            QUERIES % ("SELECT a FROM input", "a"),
            QUERIES % ("SELECT a, b FROM input", "a + 1"),
            ["A_B"],
        ),
        (GROUPS % ("count(*)", ""), GROUPS % ("sum(1)", ""), ["P_groups-repartition"]),
        (GROUPS % ("count(*)", ""), GROUPS % ("count(*)", ", max_collected: 5"), []),
        (FRAMES % ("count(*)", "1 s"), FRAMES % ("sum(1)", "1 s"), ["P_over-repartition"]),
        (FRAMES % ("count(*)", "1 s"), FRAMES % ("count(*)", "9 s"), []),
        (
            CHAIN.replace("shop:A", "shop:Old") % ("bytes", "string"),
            CHAIN % ("bytes", "json"),
            ["A_F", "F_B"],
        ),
        (
            "- {id: C, type: count, to: [B]}\n- {id: B, type: 'shop:B', to: [sink]}",
            "- {id: C, type: sum, to: [B]}\n- {id: B, type: 'shop:Other', to: [sink]}",
            ["C_B"],
        ),
    ],
    ids=[
        *("same reader", "reader only", "same query reads", "both queries", "groups", "limit"),
        *("frames", "grace", "other code", "other type"),
    ],
)
def test_only_records_that_new_readers_would_misread_are_drained(
    before: str, after: str, arcs: list[str]
) -> None:
    assert changed(before, after) == arcs


@pytest.mark.parametrize(("schema", "is_drained"), [("", True), ("x INT", False)])
def test_rows_with_the_columns_of_another_table_are_drained(schema: str, is_drained: bool) -> None:
    def of_table(path: str, reader: str) -> Pipeline:
        pipeline = load(QUERIES % ("SELECT * FROM input", reader))
        first, second = pipeline.processors
        table = TableSpec(format="parquet", path=path, schema=schema, refresh_s=len(path))
        spec = structs.replace(cast(SqlSpec, first.spec), tables={"t": table})
        return replace(pipeline, processors=(replace(first, spec=spec), second))

    assert changed_forms(of_table("a", "a"), of_table("a", "b")) == {}
    assert list(changed_forms(of_table("a", "a"), of_table("a/b", "b"))) == ["A_B"] * is_drained


def test_serdes_of_internal_topics_are_part_of_a_version() -> None:
    written = version_to_json(PipelineVersion(1, WORDS, "", 0, "ada"))
    read = version_from_json(written, WORDS.names).pipeline
    assert read == WORDS
    after = with_serdes(read, value="json")
    assert changed_forms(read, after) == {
        "W_ByWord-repartition": "its values were string, and now are json. W-ByWord reads what its "
        "writers write"
    }
    assert changed_forms(with_serdes(read), after) == {}, "an earlier engine has not said them"


def test_loop_of_processors_that_would_misread_is_refused_unless_its_state_is_lost() -> None:
    text = TOPOLOGY % ("enriched", "stream: a, table: b, rows: d, out: c")
    before = load(text)
    after = with_serdes(before, value="json")
    found = plan(before, after, ())
    loop = set(changed_forms(before, after)) - {arc.topic for arc in found.arcs}
    assert len(loop) == 2
    with pytest.raises(ConfigError, match="cannot be drained, as processors that send to each"):
        require_usable_state(found)
    assert plan(before, after, (), lost=[each.id for each in before.processors]).misread == {}


def test_reader_of_an_arc_that_stays_stops_before_the_new_version_runs() -> None:
    """Else the former reader could get what the new writer writes."""
    change = VersionChange(load(CHAIN % ("string", "string")), load(CHAIN % ("json", "json")))
    assert ({*change.held}, {*change.to_silence(())}) == ({"A"}, set())
    change.drained("A_F")
    assert ({*change.held}, {*change.to_silence(())}) == ({"A", "F"}, set())
    change.drained("F_B")
    assert ({*change.held}, change.is_complete) == ({"A", "F", "B"}, False)
    assert change.to_silence({"B"}) == {"F"}
    for processor in ("F", "B"):
        assert processor in change.to_silence(())
        change.silenced(processor)
    assert change.is_complete


def test_arc_that_goes_needs_no_reader_to_stop() -> None:
    change = VersionChange(load(CHAIN % ("json", "json")), load("[{id: B, type: sum, to: [sink]}]"))
    assert change.left[0] == Arc("A_F", ("A",), "F")
    for arc in change.left:
        change.drained(arc.topic)
    assert (change.to_silence(()), change.is_complete) == (frozenset(), True)


class _World:
    """Old and new processes of a chain A -> F -> B, and what waits between them, by form.

    A process that is said to have stopped may go on until it is fenced, as one does on a
    TaskManager that was taken for dead.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.waiting: dict[str, list[str]] = {"A_F": [], "F_B": []}
        self.acting = {(id_, "string") for id_ in "AFB"}
        self.read: list[tuple[str, str]] = []

    def act(self) -> None:
        """Have any process write, pass on or read a record; the first arc gets a long backlog."""
        id_, form = self._random.choice(sorted(self.acting))
        if id_ == "A":
            self.waiting["A_F"] += [form] * self._random.choice((1, 1, 20))
        elif id_ == "F" and self.waiting["A_F"]:
            self.waiting["F_B"].append(self.waiting["A_F"].pop(0))
        elif id_ == "B" and self.waiting["F_B"]:
            self.read.append((self.waiting["F_B"].pop(0), form))

    def fence(self, id_: str) -> None:
        self.acting.discard((id_, "string"))

    def look(self, change: VersionChange) -> None:
        """Do what the JobManager does: believe that who is held has stopped, and fence them."""
        running = {id_ for id_ in "AFB" if id_ not in change.held or self._random.random() < 0.3}
        for arc in change.drainable(running):
            for writer in arc.writers:
                self.fence(writer)
            if not self.waiting[arc.topic]:
                change.drained(arc.topic)
        for id_ in change.to_silence(running):
            self.fence(id_)
            change.silenced(id_)


def test_no_reader_gets_what_the_other_version_has_written() -> None:
    before, after = load(CHAIN % ("string", "string")), load(CHAIN % ("json", "json"))
    for seed in range(200):
        world, change = _World(Random(seed)), VersionChange(before, after)
        while not change.is_complete:
            world.act()
            world.look(change)
        world.acting |= {(id_, "json") for id_ in "AFB"}
        for _ in range(60):
            world.act()
        assert all(written == reader for written, reader in world.read), seed


def test_the_form_of_records_is_found_however_many_processors_have_passed_them_on() -> None:
    first, forward, last = load(CHAIN % ("json", "json")).processors
    ids = ["A", *(f"F{number}" for number in range(1200)), "B"]
    passing = [
        replace(forward, id=id_, from_=(before,), to=(after,))
        for before, id_, after in zip(ids, ids[1:-1], ids[2:], strict=False)
    ]
    pipeline = load(CHAIN % ("json", "string"))
    other_last = replace(pipeline.processors[-1], from_=(ids[-2],))
    before = [replace(first, to=("F0",)), *passing, replace(last, from_=(ids[-2],))]
    after = [passing[-1], other_last]
    versions = (replace(pipeline, processors=tuple(each)) for each in (before, after))
    assert changed_forms(*versions) == {
        "F1199_B": "its keys stay bytes, but are written in another way; its values were json, "
        "and now are bytes. B reads keys by bytes and values by string"
    }
