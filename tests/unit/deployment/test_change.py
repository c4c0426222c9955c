"""The way from one version of a pipeline to the next: who is held, and which arcs are drained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SumSpec, TopologySpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.plan import Arc
from tests.seeds import parametrize
from tests.unit.streams.pipeline.loading import load

NAMES = TopicNames(None, "in", "out")
MIDDLE = "middle"
SEEDS = 2000
INTERNAL = "W_middle"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS // 4, SEEDS, SEEDS // 4)


def graph(*paths: str, **constants: int) -> Pipeline:
    """Return the pipeline of paths such as `A B C`: A sends to B, and B to C.

    Those with nobody in front of them read the source, and those with nobody after them write the
    sink. `constants` edits processors.
    """
    ids = dict.fromkeys(id_ for path in paths for id_ in path.split())
    arcs = dict.fromkeys(
        pair for path in paths for pair in zip(path.split(), path.split()[1:], strict=False)
    )
    return Pipeline(
        tuple(
            PipelineProcessor(
                id_,
                SumSpec(constant=constants.get(id_, 1)),
                tuple(to for from_, to in arcs if from_ == id_) or (SINK,),
                tuple(from_ for from_, to in arcs if to == id_) or (SOURCE,),
            )
            for id_ in ids
        ),
        NAMES,
        1,
    )


def topics(arcs: Iterable[Arc]) -> list[str]:
    return [arc.topic for arc in arcs]


def state(change: VersionChange, *running: str) -> tuple[set[str], list[str], list[str]]:
    """Return who is held, what can be drained while these run, and what is left."""
    return {*change.held}, topics(change.drainable(running)), topics(change.left)


# Step by step.


def test_replaced_processor_in_a_chain() -> None:
    change = VersionChange(graph("A B C"), graph("A D C"))
    assert state(change, "A", "B", "C") == ({"A"}, [], ["A_B", "B_C"])
    # A has stopped: B processes what is left, and must go on for that.
    assert state(change, "B", "C") == ({"A"}, ["A_B"], ["A_B", "B_C"])
    change.drained("A_B")
    assert state(change, "B", "C") == ({"A", "B"}, [], ["B_C"])
    assert state(change, "C") == ({"A", "B"}, ["B_C"], ["B_C"])
    change.drained("B_C")
    assert state(change, "C") == ({"A", "B"}, [], [])


def test_arc_of_a_writer_that_runs_again_must_wait() -> None:
    """A TaskManager that was taken for dead comes back, say."""
    change = VersionChange(graph("A B"), graph("A", "B"))
    assert state(change, "B") == ({"A"}, ["A_B"], ["A_B"])
    assert state(change, "A", "B") == ({"A"}, [], ["A_B"])


def test_removed_processor_between_two_arcs_is_drained_from_the_front() -> None:
    change = VersionChange(graph("A B C", "A C"), graph("A C"))
    assert state(change, "C", "B") == ({"A"}, ["A_B"], ["A_B", "B_C"])
    # Nobody is drained out of order, whoever has stopped by chance.
    assert state(change) == ({"A"}, ["A_B"], ["A_B", "B_C"])
    change.drained("A_B")
    assert state(change) == ({"A", "B"}, ["B_C"], ["B_C"])


def test_three_arcs_in_a_row_are_drained_one_by_one() -> None:
    change = VersionChange(graph("A B C D"), graph("E"))
    held, order = [], []
    while change.left:
        held.append({*change.held})
        (arc,) = change.drainable(())
        order.append(arc.topic)
        change.drained(arc.topic)
    assert order == ["A_B", "B_C", "C_D"]
    assert held == [{"A"}, {"A", "B"}, {"A", "B", "C"}]


def test_removed_branch_of_a_diamond_does_not_stop_the_other_branch() -> None:
    change = VersionChange(graph("A B D", "A C D"), graph("A B D"))
    assert state(change, "B", "C", "D") == ({"A"}, ["A_C"], ["A_C", "C_D"])
    change.drained("A_C")
    assert state(change, "B", "D") == ({"A", "C"}, ["C_D"], ["C_D"])
    change.drained("C_D")
    assert change.left == ()


def test_both_branches_of_a_diamond_are_drained_on_their_own() -> None:
    change = VersionChange(graph("A B D", "A C D"), graph("A B E", "A C E"))
    assert state(change, "A", "B", "C", "D") == ({"B", "C"}, [], ["B_D", "C_D"])
    assert state(change, "A", "C", "D") == ({"B", "C"}, ["B_D"], ["B_D", "C_D"])
    change.drained("B_D")
    assert state(change, "A", "C", "D") == ({"B", "C"}, [], ["C_D"])
    assert state(change, "A", "D") == ({"B", "C"}, ["C_D"], ["C_D"])


def test_writer_of_an_arc_that_stays_and_of_one_that_goes_is_held() -> None:
    change = VersionChange(graph("A B", "A C"), graph("A B", "C"))
    assert state(change, "B", "C") == ({"A"}, ["A_C"], ["A_C"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (graph("A B"), graph("A B")),
        (graph("A B"), graph("A B", A=2, B=3)),
        (graph("A B"), graph("A B C", "A D", "E")),
        (graph("A B", "C"), graph("A B")),
    ],
    ids=["same", "edited", "added", "removed at the source"],
)
def test_change_that_takes_no_arc_away_can_be_made_at_once(
    before: Pipeline, after: Pipeline
) -> None:
    assert state(VersionChange(before, after), "A", "B", "C") == (set(), [], [])


def test_next_jobmanager_begins_with_the_same() -> None:
    """It does not know what is drained already, and finds out."""
    before, after = graph("A B C"), graph("A D C")
    first = VersionChange(before, after)
    first.drained("A_B")
    assert state(VersionChange(before, after)) == ({"A"}, ["A_B"], ["A_B", "B_C"])


def test_drained_arcs_may_be_reported_twice_and_others_are_ignored() -> None:
    change = VersionChange(graph("A B C"), graph("A D C"))
    for topic in ("A_B", "A_B", "A_D", "unknown"):
        change.drained(topic)
    assert topics(change.left) == ["B_C"]


# Topologies whose records come back.


def drain_all(change: VersionChange) -> None:
    """Drain whatever can be drained while nobody runs who is held, until nothing more can be."""
    while found := change.drainable(()):
        for arc in found:
            change.drained(arc.topic)


TOPOLOGY = "- {id: W, type: topology, builder: 'tests.user_code.%s', config: {%s}}"


@pytest.mark.parametrize(
    ("builder", "arguments"),
    [
        ("joins:with_own_repartition", "left: a, joined: c"),
        ("topologies:enriched", "stream: a, table: b, rows: d, out: c"),
    ],
    ids=["group that reads what it writes", "foreign-key join"],
)
def test_topology_whose_groups_send_to_each_other_can_be_removed(
    builder: str, arguments: str
) -> None:
    change = VersionChange(
        load(TOPOLOGY % (builder, arguments)), load("[{id: F, type: forward, to: [sink]}]")
    )
    drain_all(change)
    assert change.left == ()


# Any graph.


def draw(random: Random, ids: list[str]) -> Pipeline:
    """Draw a graph in which arcs lead forward, perhaps with a topic that several write."""
    chance = random.choice((0.2, 0.5, 0.9))
    arcs = [
        (from_, to)
        for place, to in enumerate(ids)
        for from_ in ids[:place]
        if random.random() < chance
    ]
    made = graph(*ids, *(f"{from_} {to}" for from_, to in arcs))
    order = {id_: place for place, id_ in enumerate(ids)}
    assert [processor.id for processor in made.processors] == ids
    if len(ids) < 3 or random.random() < 0.5:
        return made
    reader = random.choice(ids[1:])
    front = ids[: order[reader]]
    writers = random.sample(front, random.randrange(1, len(front) + 1))
    return with_internal_topic(made, writers, reader)


def with_internal_topic(made: Pipeline, writers: list[str], reader: str) -> Pipeline:
    named = {MIDDLE: INTERNAL}
    spec: ProcessorSpec = TopologySpec(code="shop:f", group="R", internal={MIDDLE: None})
    processors = []
    for processor in made.processors:
        if processor.id == reader:
            processors.append(
                replace(processor, spec=spec, from_=(*processor.from_, MIDDLE), topics=named)
            )
        elif processor.id in writers:
            processors.append(replace(processor, to=(*processor.to, MIDDLE), topics=named))
        else:
            processors.append(processor)
    return replace(made, processors=tuple(processors))


def draw_change(random: Random) -> tuple[Pipeline, Pipeline]:
    ids = [f"P{n}" for n in range(random.randrange(1, 9))]
    others = [id_ if random.random() < 0.7 else f"N{id_}" for id_ in ids if random.random() < 0.9]
    return draw(random, ids), draw(random, others or ["N"])


def protocol(
    random: Random, change: VersionChange, all_: set[str]
) -> Iterator[tuple[set[str], tuple[Arc, ...]]]:
    """Stop who is held, drain what can be drained, in any order; yield who runs, and what can be.

    Now and then, somebody does not run for a while though nobody asked for it, and one that was
    asked to stop runs again.
    """
    stopped: set[str] = set()
    for _ in range(1000):
        if not change.left:
            return
        stopped |= {id_ for id_ in sorted(change.held) if random.random() < 0.5}
        running = {
            id_ for id_ in sorted(all_) if random.random() < (0.1 if id_ in stopped else 0.9)
        }
        found = change.drainable(running)
        yield running, found
        for arc in found:
            if random.random() < 0.5:
                change.drained(arc.topic)
    raise AssertionError(f"the change does not come to an end: {change.left} is left")


def writers_of(pipeline: Pipeline) -> Mapping[str, set[str]]:
    return {
        topic: {p.id for p in pipeline.processors if topic in pipeline.out_topics(p)}
        for topic in pipeline.arcs
    }


def readers_in(change: VersionChange) -> set[str]:
    return {arc.reader for arc in change.left}


def writers_in(change: VersionChange) -> set[str]:
    return {writer for arc in change.left for writer in arc.writers}


def test_following_the_protocol_drains_every_arc_that_goes_in_order(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        before, after = draw_change(random)
        writers = writers_of(before)
        gone = {topic for topic, id_ in before.arcs.items() if after.arcs.get(topic) != id_}
        change = VersionChange(before, after)
        assert {*topics(change.left)} == gone, seed
        held: frozenset[str] = frozenset()
        left = {*gone}
        for running, found in protocol(random, change, {p.id for p in before.processors}):
            assert held <= change.held, f"seed {seed}: a writer is released before the end"
            held = change.held
            assert held <= {id_ for topic in gone for id_ in writers[topic]}, seed
            left = {*topics(change.left)}
            assert not held & {before.arcs[topic] for topic in left}, f"seed {seed}: held reader"
            for arc in found:
                assert arc.topic in left, seed
                assert writers[arc.topic] <= held - running, f"seed {seed}: {arc} is written"
        assert change.left == ()
        assert held <= change.held == {id_ for topic in gone for id_ in writers[topic]}, seed


def test_seeds_draw_changes_of_all_kinds() -> None:
    """Some must take several arcs away, one after the other, and some have shared topics."""
    found = [VersionChange(*draw_change(Random(seed))) for seed in range(100)]
    assert any(not change.left for change in found)
    assert any(
        len({arc.reader for arc in change.left} & writers_in(change)) > 1 for change in found
    )
    assert any(len(arc.writers) > 1 for change in found for arc in change.left)


def test_pipeline_comes_to_rest_from_its_sources_to_its_sinks() -> None:
    drain = VersionChange.to_rest(graph("A B C", "A C", "D"))
    assert state(drain) == ({"A", "D"}, ["A_B", "A_C"], ["A_B", "A_C", "B_C"])
    drain.drained("A_C")
    assert state(drain) == ({"A", "D"}, ["A_B"], ["A_B", "B_C"])
    drain.drained("A_B")
    assert state(drain) == ({"A", "B", "D"}, ["B_C"], ["B_C"])
    drain.drained("B_C")
    assert state(drain) == ({"A", "B", "C", "D"}, [], [])
