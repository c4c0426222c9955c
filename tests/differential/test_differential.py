"""Random topologies give the same records, times included, here and in Kafka Streams.

`python -m tests.differential` runs more of them, and replays one by its seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.differential import functions
from tests.differential.comparison import Case, compare
from tests.differential.generator import draw_inputs, draw_topology
from tests.differential.java_side import JavaSide
from tests.differential.operators import OPERATORS
from tests.differential.outcome import Outcome
from tests.differential.shrinking import shrink
from tests.differential.topologies import Input, Topology

TOPOLOGIES = 40
SEEDS = 4


@pytest.mark.long
@pytest.mark.parametrize("number", range(TOPOLOGIES))
def test_both_sides_give_the_same_records(
    number: int, java: JavaSide, request: pytest.FixtureRequest
) -> None:
    def compared(topology: Topology, inputs: Sequence[Input]) -> Case:
        return next(compare(java, topology, [inputs]))

    seed: int | None = request.config.getoption("--seed")
    seeds = range(request.config.getoption("--seeds") or SEEDS)
    if seed is not None:
        seeds = range(seed, seed + 1)
    topology = draw_topology(number)
    runs = [draw_inputs(topology, each) for each in seeds]
    for each, case in zip(seeds, compare(java, topology, runs), strict=True):
        if case.kind:
            pytest.fail(
                f"{shrink(case, compared)}\n\nreplay: python -m tests.differential "
                f"--topology {number} --seed {each}",
                pytrace=False,
            )


@pytest.mark.long
def test_a_wrong_sum_is_seen(java: JavaSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(functions.COMBINERS, "sum", lambda left, right: functions.number(left))

    kinds = set[str]()
    for number in range(TOPOLOGIES):
        topology = draw_topology(number, ["count", "to_stream"])
        inputs = draw_inputs(topology, 0)
        kinds |= {case.kind for case in compare(java, topology, [inputs])}

    assert kinds == {"", "other outputs"}


def test_the_topologies_have_every_operator() -> None:
    found = {step.op for number in range(TOPOLOGIES) for step in draw_topology(number).steps}
    named_otherwise = {
        *("count", "tumbling", "hopping", "sliding", "session"),  # aggregate
        "table_lookup_with_grace",
        *("suppress_until_close", "suppress_for_a_time"),
    }

    assert {*OPERATORS} - named_otherwise <= found
    assert {"stream", "table", "global_table", "aggregate", "suppress", "group_by"} <= found


@pytest.mark.parametrize(
    ("op", "argument", "expected"),
    [
        ("stream_join", "kind", {"inner", "left", "outer"}),
        ("table_join", "kind", {"inner", "left", "outer"}),
        ("foreign_key_join", "kind", {"inner", "left"}),
        ("aggregate", "emit", {"update", "close", None}),
        ("aggregate", "how", {"count", "reduce", "aggregate"}),
    ],
)
def test_the_topologies_have_every_kind(op: str, argument: str, expected: set[str | None]) -> None:
    steps = [step for number in range(TOPOLOGIES) for step in draw_topology(number).steps]

    assert {step.args.get(argument) for step in steps if step.op == op} == expected


def test_aggregates_have_every_kind_of_window() -> None:
    steps = [step for number in range(TOPOLOGIES) for step in draw_topology(number).steps]
    kinds = {
        (step.args.get("window") or {}).get("kind") for step in steps if step.op == "aggregate"
    }

    assert kinds == {"time", "sliding", "session", None}


def test_a_seed_draws_the_same_again() -> None:
    topology = draw_topology(7)

    assert topology == draw_topology(7) != draw_topology(7 + len(OPERATORS))
    assert draw_inputs(topology, 3) == draw_inputs(topology, 3) != draw_inputs(topology, 4)


def test_inputs_are_late_and_tie_and_have_nulls_and_waits() -> None:
    topology = draw_topology(0)
    runs = [draw_inputs(topology, seed) for seed in range(20)]
    times = [[given["ts"] for given in run if "ts" in given] for run in runs]
    records = [given for run in runs for given in run if "ts" in given]

    assert any(time < before for run in times for before, time in pairwise(run))
    assert any(time == before for run in times for before, time in pairwise(run))
    assert any(given["value"] is None for given in records)
    assert any(given["key"] is None for given in records)
    assert any("advance_ms" in given for run in runs for given in run)


def test_a_difference_is_shrunk_to_what_makes_it() -> None:
    def compared(topology: Topology, inputs: Sequence[Input]) -> Case:
        """Differ if a null is given and a table is read."""
        reads = {topic for topic, step in topology.sources.items() if step.op == "table"}
        lost = [g for g in inputs if g.get("topic") in reads and g["value"] is None]
        written = [("a", "x", 0)] if lost else []
        theirs, ours = Outcome({"out": written}, None, 1), Outcome({"out": []}, None, 1)
        return Case(topology, inputs, theirs, ours)

    number, seed = next(
        (number, seed)
        for number in range(TOPOLOGIES)
        for seed in range(SEEDS)
        if compared(draw_topology(number), draw_inputs(draw_topology(number), seed)).kind
        and len(draw_topology(number).steps) > 10
    )
    topology = draw_topology(number)

    small = shrink(compared(topology, draw_inputs(topology, seed)), compared)

    assert [step.op for step in small.topology.steps] == ["table", "to_stream", "to"]
    assert len(small.inputs) == 1
    assert "out" in str(small)


def test_an_error_of_only_one_side_is_a_difference() -> None:
    fine, failed = Outcome({"out": []}, None, 2), Outcome({"out": []}, "RuntimeError: no", 1)
    failed_early = Outcome({"out": []}, "RuntimeError: no", 0)
    topology = draw_topology(0)

    assert Case(topology, [], fine, failed).kind == "only we fail"
    assert Case(topology, [], failed, fine).kind == "only Kafka Streams fails"
    assert Case(topology, [], failed, failed_early).kind == "failures at other inputs"
    assert Case(topology, [], failed, failed).kind == ""
