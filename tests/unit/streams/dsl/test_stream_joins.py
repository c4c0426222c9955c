"""Joins of two streams."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_pipeline import windows
from kafka_pipeline.streams.dsl.joining import JoinKind
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.stream_joins import JoinStreams
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.join_cases import JoinCase, Watching, cases, check
from tests.unit.streams.dsl.running import builder

CASES = cases("stream_joins.txt")


def joiner(left: str | None, right: str | None) -> str:
    """Join as MockValueJoiner.TOSTRING_JOINER; numbers are added."""
    if left is not None and right is not None and left.isdigit() and right.isdigit():
        return str(int(left) + int(right))
    return "+".join("null" if each is None else each for each in (left, right))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_of_kafka_streams(case: JoinCase) -> None:
    built, results = builder(), list[str]()
    window = windows.join(**{f"{name}_ms": value for name, value in case.numbers.items()})
    left, right = built.stream("left"), built.stream("right")
    joined = getattr(left, case.method)(right, joiner, window, name="Joined")
    joined.process(lambda: Watching(results))
    with TopologyTestDriver(built) as driver:
        check(driver, case, results)


SELF_JOINS = {
    "shouldMatchInnerJoinWithSelfJoinWithSingleStream": (
        (100, 100, 0),
        "A:1@1 B:1@2 A:2@3 B:2@4 B:3@5",
    ),
    "shouldMatchInnerJoinWithSelfJoinDifferentBeforeAfterWindows": (
        (11_000, 10_000, 0),
        "A:1@0 A:2@11000 B:1@12000 A:3@13000 A:4@15000 C:1@16000 D:1@17000 A:5@30000",
    ),
    "shouldMatchInnerJoinWithSelfJoinOutOfOrderMessages": (
        (10_000, 10_000, 0),
        "A:1@0 A:2@9999 B:1@11000 A:3@13000 A:4@15000 C:1@16000 D:1@17000 A:5@30000 A:5@6000",
    ),
    "late records, and several at one time": (
        (5, 2, 3),
        "A:1@20 A:2@20 A:3@18 A:4@24 A:5@11 A:6@10 A:7@14 A:8@15 A:9@23",
    ),
    "a window that a record itself is not in": ((-2, 9, 1), "A:1@1 A:2@3 A:3@12 A:4@4 A:5@11"),
}


@pytest.mark.parametrize(("numbers", "records"), SELF_JOINS.values(), ids=SELF_JOINS)
def test_a_self_join_with_one_store_gives_what_two_stores_give(
    numbers: tuple[int, int, int], records: str
) -> None:
    """As KStreamKStreamSelfJoinTest."""
    before_ms, after_ms, grace_ms = numbers
    window = windows.join(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)
    found = []
    for same in (True, False):
        built, results = builder(), list[str]()
        source = built.stream("left")
        # Two streams with the same records, the left one first.
        stream = source.filter(lambda key, value: True)
        other = stream if same else source.filter(lambda key, value: True)
        stream.join(other, joiner, window, name="Self").process(partial(Watching, results))
        assert len(built.build().stores) == (1 if same else 2)
        with TopologyTestDriver(built) as driver:
            case = JoinCase("", "join", {}, frozenset(), (f"left {records}",))
            check(driver, case, results)
        found.append(results)
    assert found[0] == found[1]
    assert found[0]


NULL_KEYS = {
    "join": "",
    "left_join": "null=l+null@5",
    "outer_join": "null=l+null@5 null=null+r@6",
}


@pytest.mark.parametrize(("method", "expected"), NULL_KEYS.items())
def test_records_without_a_key_go_out_alone(method: str, expected: str) -> None:
    """As RelaxedNullKeyRequirementJoinTest, also after a repartition (KIP-962).

    Its testRelaxedLeftStreamStreamJoin and testRelaxedOuterStreamStreamJoin.
    """
    window = windows.join(before_ms=5, after_ms=5, grace_ms=0)
    for changed in (False, True):
        built, results = builder(), list[str]()
        sides: list[Stream] = [built.stream("left"), built.stream("right")]
        if changed:
            sides = [side.select_key(lambda key, value: key) for side in sides]
        joined = getattr(sides[0], method)(sides[1], joiner, window, name="Joined")
        joined.process(partial(Watching, results))
        with TopologyTestDriver(built) as driver:
            lines = ("left null:l@5", f"right null:r@6 -> {expected}")
            check(driver, JoinCase("", method, {}, frozenset(), lines), results)


def test_stores_and_topics_are_named_after_the_step() -> None:
    built = builder()
    window = windows.join(before_ms=5, after_ms=5, grace_ms=0)
    left = built.stream("left").select_key(lambda key, value: value)
    left.left_join(built.stream("right"), joiner, window, name="Joined").to("out")
    topology = built.build()
    assert {store.name for store in topology.stores} == {
        "Joined-left",
        "Joined-right",
        "Joined-unmatched",
        "Joined-times",
    }
    assert [topic.name for topic in topology.internal_topics] == ["Joined-left-repartition"]
    assert all(store.logged for store in topology.stores)


def test_only_left_and_outer_joins_keep_records_without_a_key() -> None:
    window = windows.join(before_ms=5, after_ms=5, grace_ms=0)
    for kind in JoinKind:
        built = builder()
        stream = getattr(built.stream("left"), kind.value)(
            built.stream("right"), joiner, window, name="Joined"
        )
        assert isinstance(stream.step.operation, JoinStreams)
        assert stream.step.operation.takes_null_keys is (kind is not JoinKind.INNER)
