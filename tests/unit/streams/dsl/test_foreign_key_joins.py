"""Foreign-key joins: the cases of KTableKTableForeignKeyJoinIntegrationTest as data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kafka_pipeline import (
    Record,
    SerializationError,
    StreamsBuilder,
    Suppress,
    serdes,
    windows,
)
from kafka_pipeline.streams.clocks import CLOCK_HEADER
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    Instruction,
    answer,
    parts_of_subscription,
    subscription,
)
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.event_time.input_time import SOURCE, InputTime
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.join_cases import JoinCase, Watching, check
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, outputs, pipe
from tests.unit.streams.nodes import Nodes, Tasks, batch, expanded


def foreign_key(value: str) -> str | None:
    """Return what comes after the bar of `lhs1|rhs1`."""
    return value.partition("|")[2] or None


def joined(left: str, right: str | None) -> str:
    return f"({left},{'null' if right is None else right})"


def _of(shared: tuple[str, ...], left: dict[int, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of an inner join, and of a left one with other results at some lines."""
    other = [
        line.partition("->")[0] + f"-> {left[number]}" if number in left else line
        for number, line in enumerate(shared)
    ]
    return shared, tuple(other)


CASES = {
    "doJoinFromLeftThenDeleteLeftEntity": _of(
        (
            "right rhs1:rhsValue1@1 rhs2:rhsValue2@2 rhs3:rhsValue3@3 ->",
            "left lhs1:lhsValue1|rhs1@4 lhs2:lhsValue2|rhs2@5 -> "
            "lhs1=(lhsValue1|rhs1,rhsValue1)@4 lhs2=(lhsValue2|rhs2,rhsValue2)@5",
            "left lhs3:lhsValue3|rhs1@6 -> lhs3=(lhsValue3|rhs1,rhsValue1)@6",
            "left lhs1:null@7 -> lhs1=null@7",
            "left lhs1:null@8 ->",
        ),
        {},
    ),
    "doJoinFromRightThenDeleteRightEntity": _of(
        (
            "left lhs1:lhsValue1|rhs1@1 lhs2:lhsValue2|rhs2@2 lhs3:lhsValue3|rhs1@3 ->",
            "right rhs1:rhsValue1@4 -> "
            "lhs1=(lhsValue1|rhs1,rhsValue1)@4 lhs3=(lhsValue3|rhs1,rhsValue1)@4",
            "right rhs2:rhsValue2@5 -> lhs2=(lhsValue2|rhs2,rhsValue2)@5",
            "right rhs3:rhsValue3@6 ->",
            "right rhs1:null@7 -> lhs1=null@7 lhs3=null@7",
        ),
        {
            0: "lhs1=(lhsValue1|rhs1,null)@1 lhs2=(lhsValue2|rhs2,null)@2 "
            "lhs3=(lhsValue3|rhs1,null)@3",
            4: "lhs1=(lhsValue1|rhs1,null)@7 lhs3=(lhsValue3|rhs1,null)@7",
        },
    ),
    "shouldEmitTombstoneWhenDeletingNonJoiningRecords": _of(
        ("left lhs1:lhsValue1|rhs1@1 ->", "left lhs1:null@2 -> lhs1=null@2", "left lhs1:null@3 ->"),
        {0: "lhs1=(lhsValue1|rhs1,null)@1"},
    ),
    "shouldNotEmitTombstonesWhenDeletingNonExistingRecords": _of(("left lhs1:null@1 ->",), {}),
    "joinShouldProduceNullsWhenValueHasNonMatchingForeignKey": _of(
        (
            "left lhs1:lhsValue1|rhs1@1 ->",
            "left lhs1:lhsValue1|rhs2@2 -> lhs1=null@2",
            "left lhs1:lhsValue1|rhs3@3 -> lhs1=null@3",
            "right rhs1:rhsValue1@4 ->",
            "right rhs3:rhsValue3@5 -> lhs1=(lhsValue1|rhs3,rhsValue3)@5",
            "left lhs1:lhsValue1|rhs1@6 -> lhs1=(lhsValue1|rhs1,rhsValue1)@6",
        ),
        {
            0: "lhs1=(lhsValue1|rhs1,null)@1",
            1: "lhs1=(lhsValue1|rhs2,null)@2",
            2: "lhs1=(lhsValue1|rhs3,null)@3",
        },
    ),
    "shouldUnsubscribeOldForeignKeyIfLeftSideIsUpdated": _of(
        (
            "right rhs1:rhsValue1@1 rhs2:rhsValue2@2 ->",
            "left lhs1:lhsValue1|rhs1@3 -> lhs1=(lhsValue1|rhs1,rhsValue1)@3",
            "left lhs1:lhsValue1|rhs2@5 -> lhs1=(lhsValue1|rhs2,rhsValue2)@5",
            "right rhs1:rhsValue1Delta@6 ->",
            "right rhs2:rhsValue2Delta@7 -> lhs1=(lhsValue1|rhs2,rhsValue2Delta)@7",
        ),
        {},
    ),
    "shouldEmitRecordOnNullForeignKeyForLeftJoins, KAFKA-16394": _of(
        (
            "left lhs1:lhsValue1@1 ->",
            "right rhs1:rhsValue1@2 ->",
            "left lhs1:lhsValue1|rhs1@3 -> lhs1=(lhsValue1|rhs1,rhsValue1)@3",
            "left lhs1:lhsValue2@4 -> lhs1=null@4",
            "left lhs1:null@5 ->",
        ),
        {0: "lhs1=(lhsValue1,null)@1", 3: "lhs1=(lhsValue2,null)@4", 4: "lhs1=null@5"},
    ),
    "KAFKA-16407: from a key without a value to none and back": _of(
        (
            "left lhs1:lhsValue1|rhs9@1 ->",
            "left lhs1:lhsValue1@2 -> lhs1=null@2",
            "left lhs1:lhsValue1|rhs9@3 ->",
            "right rhs9:rhsValue9@4 -> lhs1=(lhsValue1|rhs9,rhsValue9)@4",
        ),
        {
            0: "lhs1=(lhsValue1|rhs9,null)@1",
            1: "lhs1=(lhsValue1,null)@2",
            2: "lhs1=(lhsValue1|rhs9,null)@3",
        },
    ),
    "a result has the later time of both if the left value changes": _of(
        (
            "right rhs1:rhsValue1@10 ->",
            "left lhs1:lhsValue1|rhs1@3 -> lhs1=(lhsValue1|rhs1,rhsValue1)@10",
            "right rhs1:rhsValue2@2 -> lhs1=(lhsValue1|rhs1,rhsValue2)@2",
        ),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_left", [False, True], ids=["join", "left_join"])
def test_cases_of_kafka_streams(
    case: tuple[tuple[str, ...], tuple[str, ...]], is_left: bool
) -> None:
    built, results = builder(), list[str]()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    join = left.left_join if is_left else left.join
    table = join(right, joined, foreign_key=foreign_key, name="Joined")
    table.to_stream().process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), case[is_left]), results)


def test_changes_of_versioned_tables_out_of_order_change_nothing() -> None:
    """As shouldIgnoreOutOfOrderRecordsIffVersioned."""
    built, results = builder(), list[str]()
    left = built.table("left", name="Left", history_retention_ms=100)
    right = built.table("right", name="Right", history_retention_ms=100)
    table = left.join(right, joined, foreign_key=foreign_key, name="Joined")
    table.to_stream().process(partial(Watching, results))
    lines = (
        "left l:x|r@10 ->",
        "right r:one@20 -> l=(x|r,one)@20",
        "left l:y|r@5 ->",
        "right r:zero@15 ->",
    )
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def test_a_function_of_key_and_value_returns_the_foreign_key() -> None:
    built, results = builder(), list[str]()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    table = left.join(right, joined, foreign_key=lambda key, value: key[:1], name="Joined")
    table.to_stream().process(partial(Watching, results))
    lines = ("right r:one@1 ->", "left rx:x@2 -> rx=(x,one)@2")
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def test_stores_and_topics_are_named_after_the_step() -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    left.join(right, joined, foreign_key=foreign_key, name="Joined")
    topology = built.build()
    assert {store.name for store in topology.stores} - {"Left", "Right"} == {
        "Joined",
        "Joined-subscriptions",
    }
    assert {topic.name for topic in topology.internal_topics} == {
        "Joined-subscriptions-repartition",
        "Joined-answers-repartition",
    }


ROWS = "lhs1:a|rhs1@1 lhs2:b|rhs2@2 lhs3:c@3 null:d|rhs1@4 lhs4:e|rhs9@5 lhs2:f|rhs1@6 lhs1:null@7"
LATER = "lhs3:g|rhs2@8 lhs3:h|rhs1@9 lhs4:i@10 lhs2:j@11 lhs2:k|rhs2@12 lhs5:l|rhs1@13 lhs5:null@14"


def _tables_joined(is_left: bool, has_view: bool) -> StreamsBuilder:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    if has_view:
        left, right = left.map_values(str.lower), right.map_values(str.upper)
    join = left.left_join if is_left else left.join
    join(right, joined, foreign_key=foreign_key, name="Joined").to_stream().to("out")
    return built


def _last_results(driver: TopologyTestDriver) -> dict[str, tuple[str, int]]:
    last = {key: (value, at) for key, value, at in outputs(driver)}
    return {key: found for key, found in last.items() if found[0] is not None}


@pytest.mark.parametrize("is_left", [False, True], ids=["join", "left_join"])
@pytest.mark.parametrize("has_view", [False, True], ids=["stores", "views"])
def test_batches_lead_to_the_same_table(is_left: bool, has_view: bool) -> None:
    runs = [inputs(text, side) for text, side in ((ROWS, "left"), (LATER, "left"))]
    runs.insert(1, inputs("rhs1:x@1 rhs2:y@20 rhs1:z@21", "right"))
    with TopologyTestDriver(_tables_joined(is_left, has_view)) as driver:
        for run in runs:
            pipe(driver, run)
        expected, dropped = _last_results(driver), driver.dropped_records
    with TopologyTestDriver(_tables_joined(is_left, has_view)) as driver:
        for run in runs:
            topic = driver.create_input_topic(run[0][0], serdes.string, serdes.string)
            topic.pipe_batch([Record(key, value, at) for _, key, value, at in run])
        assert _last_results(driver) == expected
        assert driver.dropped_records == dropped
        store = driver.get_timestamped_key_value_store("Joined")
        assert {key: tuple(value) for key, value in store.all()} == expected
    assert expected["lhs2"] == (("(k|rhs2,Y)" if has_view else "(k|rhs2,y)"), 20)


def test_answers_for_former_rows_of_a_batch_are_left_out() -> None:
    built = _tables_joined(False, has_view=False)
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("right", "rhs1", "x", 1)])
        topic = driver.create_input_topic("left", serdes.string, serdes.string)
        topic.pipe_batch([Record("lhs1", f"{number}|rhs1", number) for number in range(5)])
        assert outputs(driver) == [("lhs1", "(4|rhs1,x)", 4)]


@pytest.mark.parametrize("is_left", [False, True], ids=["join", "left_join"])
@pytest.mark.parametrize(
    "values",
    [("2", "3"), ("2", None), (None, "2"), ("2", "3|rhs9"), (None, "2|rhs9"), ("2|rhs9", "3")],
    ids=str,
)
def test_a_row_that_changes_before_its_answer_comes_keeps_no_former_result(
    values: tuple[str | None, ...], is_left: bool
) -> None:
    """The answer that takes the result back is for the first change, and out of date by then."""
    built = _tables_joined(is_left, has_view=False)
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("right", "rhs1", "x", 1), ("left", "lhs1", "1|rhs1", 2)])
        assert _last_results(driver) == {"lhs1": ("(1|rhs1,x)", 2)}
        topic = driver.create_input_topic("left", serdes.string, serdes.string)
        topic.pipe_batch([Record("lhs1", value, at) for at, value in enumerate(values, 3)])
        alone = values[-1] and is_left
        assert _last_results(driver) == ({"lhs1": (f"({values[-1]},null)", 4)} if alone else {})


@pytest.mark.parametrize("times", [(3, 4), (4, 3)], ids=["row first", "value first"])
def test_a_row_that_changes_while_its_value_is_deleted_has_no_result(
    times: tuple[int, int],
) -> None:
    """The right side has forgotten the value when it is asked, and its answer is out of date."""
    built = builder()
    rows = built.stream("in").split(
        {"left": lambda key, value: key == "lhs1", "right": lambda key, value: key == "rhs1"}
    )
    tables = [
        stream.map_values(lambda value: None if value == "gone" else value)
        .repartition(name=f"To{side}")
        .to_table(name=side)
        for side, stream in rows.items()
    ]
    joins = tables[0].join(tables[1], joined, foreign_key=foreign_key, name="Joined")
    joins.to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", "rhs1", "x", 1), ("in", "lhs1", "1|rhs1", 2)])
        assert _last_results(driver) == {"lhs1": ("(1|rhs1,x)", 2)}
        changes = zip(("lhs1", "rhs1"), ("2|rhs1", "gone"), times, strict=True)
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record(*change) for change in changes])
        assert _last_results(driver) == {}


@pytest.mark.parametrize("is_batch", [False, True], ids=["record", "batch"])
def test_a_foreign_key_that_is_not_a_key_of_the_right_table_is_refused(is_batch: bool) -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    left.join(right, joined, foreign_key=len, name="Joined").to_stream().to("out")
    records = [Record("a", "x", 1), Record("b", "y", 2)]
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("left", serdes.string, serdes.string)
        write = topic.pipe_batch if is_batch else topic.pipe_records
        with pytest.raises(SerializationError, match='foreign_key of join "Joined" returned'):
            write(records)


def test_a_result_keeps_the_headers_of_the_row_in_a_batch() -> None:
    built = _tables_joined(False, has_view=False)
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("right", "rhs1", "x", 1)])
        topic = driver.create_input_topic("left", serdes.string, serdes.string)
        rows = [Record("a", "1|rhs1", 1, [("h", b"1")]), Record("b", "2|rhs9", 2)]
        topic.pipe_batch([*rows, Record("c", "3|rhs1", 3, [("h", b"3")])])
        reader = driver.create_output_topic("out", serdes.string, serdes.string)
        found = {record.key: list(record.headers) for record in reader.read_records()}
    assert found == {"a": [("h", b"1")], "c": [("h", b"3")]}


def test_an_answer_has_the_clock_of_its_own_question() -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    left.join(right, joined, foreign_key=foreign_key, name="Joined").to_stream().to("out")
    group = next(each for each in built.build().groups if "right" in each.in_topics)
    (answers,) = group.out_topics
    nodes = Nodes(group, clocked_topics=[answers])
    nodes.process(batch([b"value"], keys=[b"r"], timestamps=[5], topic="right"))
    (asked,) = set(group.in_topics) - {"right"}
    rows = [subscription(Instruction.ANSWER, None, key, 0) for key in (b"a", b"b", b"c")]
    questions = batch(rows, keys=[b"r"] * 3, timestamps=[7, 7, 3], topic=asked)
    nodes.process(replace(questions, clocks=[9, 50, 4]))
    found = [each for output in nodes.runtime.outputs for each in expanded(output)]
    clocks = {key: dict(headers or ()).get(CLOCK_HEADER) for _, key, _, _, headers in found}
    assert clocks == {b"a": b"9", b"b": b"50", b"c": None}


def test_what_is_held_back_ahead_of_a_join_does_not_wait_for_answers() -> None:
    """Who reads the questions goes by the rows: it would be ahead of one that waits longer."""
    built = builder()
    held = built.table("left", name="Left").suppress(Suppress.until_time_limit(10), name="Held")
    right = built.table("right", name="Right")
    held.join(right, joined, foreign_key=foreign_key, name="Joined").to_stream().to("out")
    group = next(each for each in built.build().groups if "left" in each.in_topics)
    rows, answers = (("left", 0), ("Joined-answers-repartition", 0))
    assert group.in_topics == (rows[0], answers[0])
    input_time = InputTime({rows: SOURCE, answers: 2}, 1000, returning=answers[:1])
    tasks = Tasks(group, GroupSettings(), input_time=input_time)
    assert tasks.run(batch([b"x|a"], keys=[b"k"], timestamps=[100], topic="left")) == []
    late = batch([b"y|b"], keys=[b"l"], timestamps=[111], topic="left", offset=1)
    (question,) = tasks.run(late)
    assert question[:2] == ("Joined-subscriptions-repartition", b"a")
    assert input_time.time_ms == -1


def test_a_window_waits_for_its_answer_although_time_leaps() -> None:
    built = builder()
    counts = built.stream("left", name="Left").group_by_key()
    closed = counts.windowed_by(windows.tumbling(10, grace_ms=0), emit="on_close").count(
        name="Counted", value_serde=serdes.json
    )
    found = closed.join(
        built.table("right", name="Right"),
        lambda count, name: f"{count} {name}",
        foreign_key=lambda _: "a",
        name="Joined",
    )
    found.to_stream().map(lambda key, value: (key.key, value)).to("out")
    group = next(each for each in built.build().groups if "left" in each.in_topics)
    rows, answers = ("left", 0), ("Joined-answers-repartition", 0)
    input_time = InputTime(
        {rows: SOURCE, answers: 2}, 1000, returning=answers[:1], passes_sources_on=True
    )
    tasks = Tasks(group, GroupSettings(), input_time=input_time)
    week_ms = 7 * 86_400_000
    questions = []
    for number, time in enumerate((1, week_ms, week_ms + 10, week_ms + 20)):
        row = batch([b"x"], keys=[b"k"], timestamps=[time], topic="left", offset=number)
        questions += tasks.run(row)
        for store in tasks.stores.values():
            store.commit(number + 1)
    _, key, head = parts_of_subscription(questions[0][2] or b"")
    row = batch([answer(head, b"one")], keys=[key], timestamps=[1], topic=answers[0])
    assert tasks.run(row) == [("out", b"k", b"1 one", -1)]
