"""Draws topologies, inputs and surroundings from a seed, for the runs of event time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.yaml_positions import Place, Problems
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import TopologySpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.user_topology import UserTopology
from kafka_pipeline.streams.pipeline.partitions import with_counts
from tests.memory.event_time_model import Input
from tests.memory.faults import CALM, Weather
from tests.user_code.timed_windows import (
    BACK,
    FIRST_STEPS,
    HOLDING,
    KEPT,
    OUT,
    ROWS,
    SELF_JOIN,
    STEPS,
    VERSIONED,
    Join,
    Kept,
    Level,
    Plan,
)

MODULE = "tests.user_code.timed_windows"
_STARTS_MS = (1, 1_000_000_000, 1_000_000_000, 1_600_000_000_000)
_UNITS_MS = (1, 10, 1000, 20_000)
_MOST_PARTITIONS = 8
_MOST_RECORDS = 40
_MOST_RECORDS_TO_JOIN = 15
_MOST_REPARTITIONS = 3
_MANY_KEYS = 1_000_000
_SPAN = 100
_UNITS_PER_EPOCH = 2_000
_LEAPS_MS = (0, 0, 3 * 86_400_000)
"""How much later in time the next epoch is, in addition: longer than windows are looked up."""
_ROWS_AWAY = 10_000
"""How much older or younger than the stream a table may be, in units."""
_IRREGULAR = 0.04
"""How many partitions end early, or have no records."""
_REJECTED_MS = (-1, -5_000, 10**17)
"""Times of records that are rejected: none, before 1970, or far in the future."""
NEVER_MS = 10**9
_NOTHING_KEPT = Kept((), 0, 0)
_ID = "T"


Records = Mapping[Partition, Sequence[Input]]


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True, slots=True)
class Drawn(Generic[P]):
    """All that a seed decides before the run; `arrives` says that input comes while tasks run.

    Otherwise, each of the `epochs` comes at once, and is far later in time than the one before.
    """

    plan: P
    epochs: Sequence[Records]
    arrives: bool
    becomes_idle: bool
    """Whether partitions go idle, and then bring older records."""
    idle_after_ms: int
    end_ms: int
    """The time of the closing records."""
    weather: Weather
    is_rescaled: bool
    """Whether tasks get other numbers in between."""

    @property
    def may_miss(self) -> bool:
        """Whether records may be late that event time did not wait for."""
        return self.becomes_idle or self.plan.feedback

    @property
    def inputs(self) -> Records:
        """All records, by partition."""
        places = self.epochs[0]
        return {place: [r for epoch in self.epochs for r in epoch[place]] for place in places}


def draw(random: Random, *, becomes_idle: bool = False, looks_up: bool = False) -> Drawn[Plan]:
    """Return a topology with its input and surroundings."""
    unit = random.choice(_UNITS_MS)
    disorder = draw_disorder(random, unit)
    if looks_up:
        plan = Plan((), (), None, (), looks_up=True)
    elif not becomes_idle and random.random() < 0.05:
        plan = _plan_with_feedback(random, unit)
    else:
        plan = _idle_plan(random, unit) if becomes_idle else _plan(random, unit, disorder)
    return drawn_around(plan, random, unit, disorder, becomes_idle=becomes_idle)


def draw_disorder(random: Random, unit: int) -> int:
    """Return by how much records are behind others of their partition at most."""
    return random.choice((0, 1, 5, 20)) * unit


def drawn_around(
    plan: P, random: Random, unit: int, disorder: int, *, becomes_idle: bool = False
) -> Drawn[P]:
    """Return the input and the surroundings of a plan, whose times are multiples of a unit."""
    is_rescaled = not plan.looks_up and random.random() < 0.25
    if is_rescaled:
        plan = plan.without_counts
    waits = plan.waits
    arrives = becomes_idle or (random.random() < 0.5 and not waits)
    if becomes_idle or plan.looks_up or (waits and not plan.begins_with_windows):
        idle_after_ms = random.choice((300, 1000))
    elif arrives or plan.begins_with_windows or plan.holds_one_of_two:
        # What is held back of a source that is idle would be late further on.
        idle_after_ms = NEVER_MS
    else:
        idle_after_ms = random.choice((300, 300, 3000, NEVER_MS))
    is_one_epoch = arrives or (waits and plan.holds_one_of_two)
    counts = {topic: random.randint(1, _MOST_PARTITIONS) for topic in plan.topics}
    if plan.meets_by_key:
        counts = dict.fromkeys(counts, counts[plan.topics[0]])
    rows_ms = 0
    if plan.table:
        counts[ROWS] = counts[plan.topics[0]]
        rows_ms = random.choice(plan.rows_away) * _ROWS_AWAY * unit
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    epochs = []
    first_id = 0
    start_ms, rejected = random.choice(_STARTS_MS), random.choice((0, 0, 0.2))
    step_ms = _UNITS_PER_EPOCH * unit + random.choice(_LEAPS_MS)
    for number in range(1 if is_one_epoch else random.choice((1, 1, 2, 3))):
        first_ms = start_ms + number * step_ms
        epoch = _epoch(
            random, places, unit, disorder, plan, first_ms, first_id, is_first=not number
        )
        rows = {
            place: [each._replace(time_ms=max(each.time_ms + rows_ms, 1)) for each in records]
            for place, records in epoch.items()
            if place[0] == ROWS
        }
        first_id += sum(map(len, epoch.values()))
        epochs.append(_with_rejected(random, {**epoch, **rows}, rejected))
    end_ms = start_ms + len(epochs) * step_ms
    weather = _weather(random)
    return Drawn(plan, epochs, arrives, becomes_idle, idle_after_ms, end_ms, weather, is_rescaled)


def _epoch(
    random: Random,
    places: Sequence[Partition],
    unit: int,
    disorder: int,
    plan: Plan,
    first_ms: int,
    first_id: int,
    *,
    is_first: bool,
) -> Records:
    """Return records of all partitions; after the first epoch, some partitions have none."""
    most = _MOST_RECORDS if plan.join is None else _MOST_RECORDS_TO_JOIN
    found: dict[Partition, list[Input]] = {}
    for place in places:
        records: list[Input] = []
        if is_first or random.random() < 0.5:
            records = _records(random, unit, disorder, most, first_ms, drops=plan.drops)
        if plan.begins_with_windows:
            # Each key is in one partition.
            records = [r._replace(key=_MOST_PARTITIONS * r.key + place[1]) for r in records]
        found[place] = [each._replace(id=first_id + at) for at, each in enumerate(records)]
        first_id += len(records)
    return found


def _with_rejected(random: Random, epoch: Records, rate: float) -> Records:
    """Return an epoch with records in between that are rejected because of their times."""
    if not rate:
        return epoch
    found: dict[Partition, list[Input]] = {place: [] for place in epoch}
    for place, records in epoch.items():
        for each in records:
            if random.random() < rate:
                found[place].append(each._replace(time_ms=random.choice(_REJECTED_MS)))
            found[place].append(each)
    return found


def _plan(random: Random, unit: int, disorder: int) -> Plan:
    if random.random() < 0.1:
        return _plan_that_begins_with_windows(random, unit, disorder)
    hops = tuple(random.randint(1, 4) for _ in range(random.choice((0, 0, 0, 1, 1, 2))))
    join = _join(random, unit) if random.random() < 0.3 else None
    if join is not None:
        hops = hops[:1]
        if join.kind == VERSIONED:
            # No version comes after the record that has waited for it.
            grace = max(join.grace_ms, disorder)
            after = grace + random.choice((0, 0, abs(join.after_ms)))
            deletes, view = random.random() < 0.5, random.random() < 0.3
            join = replace(join, grace_ms=grace, after_ms=after, deletes=deletes, view=view)
    room = min(_MOST_REPARTITIONS - len(hops) - (join is not None), 2)
    count = random.randint(0, room) if join else random.randint(1, max(room, 1))
    levels = _levels(random, unit, disorder, count)
    if join is not None and levels:
        # What becomes of a pair would depend on which of the two records came second.
        first = levels[0]
        levels = (replace(first, grace_ms=max(first.grace_ms, disorder)), *levels[1:])
    steps = tuple(_steps(random) for _ in range(len(hops) + 1))
    table = random.choice(("", "", "", "directly", "repartitioned"))
    if table:
        # A call comes directly after a topic.
        steps = (tuple(step for step in steps[0] if step not in FIRST_STEPS), *steps[1:])
    # In a join of streams, the closing records must meet those of the other side.
    may_hold = join is None or join.kind == VERSIONED
    kept = tuple(_kept(random, unit, disorder, may_hold=may_hold) for _ in hops)
    steps = tuple(
        tuple(step for step in each if step not in FIRST_STEPS) if after.kinds else each
        for each, after in zip(steps, (_NOTHING_KEPT, *kept), strict=True)
    )
    return Plan(steps, hops, join, levels, table=table, kept=kept)


def _kept(random: Random, unit: int, disorder: int, *, may_hold: bool) -> Kept:
    """Return what a hop keeps: histories that are long enough for what comes late, and no longer.

    What is late by more than a step holds back passes at once if all inputs are that far.
    """
    kinds = tuple(random.choice(tuple(KEPT)) for _ in range(random.choice((0, 1, 1, 2))))
    if not may_hold:
        kinds = tuple(kind for kind in kinds if kind not in HOLDING)
    hold = max(disorder, random.choice((1, 5, 30)) * unit)
    waits = hold if "later lookup" in kinds else 0
    return Kept(kinds, max(disorder, waits), hold)


def _plan_that_begins_with_windows(random: Random, unit: int, disorder: int) -> Plan:
    levels = _levels(random, unit, disorder, random.randint(1, 2))
    first = replace(levels[0], keys=_MANY_KEYS)
    if first.kind == "sessions":
        # In the order of one source, sessions are judged as in Kafka Streams.
        first = replace(first, grace_ms=max(first.grace_ms, disorder))
        if first.suppressed:
            # Which of them a record at the very end of a session is in depends on its neighbours.
            levels = levels[:1]
    steps = random.choice(((), ("filter",)))
    return Plan((steps,), (), None, (first, *levels[1:]), begins_with_windows=True)


def _levels(random: Random, unit: int, disorder: int, count: int) -> tuple[Level, ...]:
    levels: list[Level] = []
    for number in range(count):
        level = _level(random, unit, levels[-1] if number else None)
        if level.kind == "sliding" and not number:
            # Which windows there are would depend on which ones a late record is late for.
            level = replace(level, grace_ms=max(level.grace_ms, disorder))
        levels.append(level)
        if level.kind == "sessions" and level.grace_ms < disorder:
            break
    return tuple(levels)


def _idle_plan(random: Random, unit: int) -> Plan:
    hops = tuple(random.randint(1, 4) for _ in range(random.choice((0, 0, 1))))
    level = _level(random, unit, None)
    if level.kind in ("sessions", "sliding"):
        level = replace(level, kind="tumbling", advance_ms=level.size_ms)
    steps = tuple(_steps(random) for _ in range(len(hops) + 1))
    return Plan(steps, hops, None, (level,), kept=(_NOTHING_KEPT,) * len(hops))


def _plan_with_feedback(random: Random, unit: int) -> Plan:
    plan = _idle_plan(random, unit)
    steps = tuple(tuple(step for step in each if step not in FIRST_STEPS) for each in plan.steps)
    return replace(plan, steps=steps, feedback=True)


def _steps(random: Random) -> tuple[str, ...]:
    first = tuple(FIRST_STEPS) if random.random() < 0.1 else ()
    return first + tuple(random.choice(STEPS) for _ in range(random.choice((0, 0, 1, 1, 2))))


def _level(random: Random, unit: int, former: Level | None) -> Level:
    kind = random.choice(("tumbling", "tumbling", "hopping", "sessions", "sliding"))
    size = random.choice((3, 10, 30)) * unit
    keys = random.randint(1, 6)
    if former is not None:
        kind = random.choice(("tumbling", "hopping", "sliding"))
        size = former.size_ms * random.randint(1, 4)
        keys = random.randint(1, former.keys)
    advance = size if kind != "hopping" else max(size // random.choice((2, 3, 5)), 1)
    grace = random.choice((0, 0, 0, 1, 5, 20)) * unit
    is_suppressed = random.random() < 0.2
    return Level(kind, size, advance, grace, keys, random.randint(1, 4), is_suppressed)


def _join(random: Random, unit: int) -> Join:
    before, after = (random.choice((0, 1, 5, 20)) * unit for _ in range(2))
    grace = random.choice((0, 0, 1, 5, 20)) * unit
    if random.random() < 0.2:
        # One of the two may be negative: partners are then only before, or only after a record.
        before = -random.randint(0, after)
        if random.random() < 0.5:
            before, after = after, before
    kind = random.choice(("join", "left_join", "outer_join", SELF_JOIN, VERSIONED))
    return Join(kind, before, after, grace, random.randint(1, 6), random.randint(1, 4))


def _records(
    random: Random, unit: int, disorder: int, most: int, first_ms: int, *, drops: bool
) -> list[Input]:
    """Return the records of a partition: few or many, some of them behind by up to `disorder`.

    Most partitions reach the same time in the end, as time waits for those that do not.
    """
    count = random.choice((random.randint(1, 5), random.randint(1, most)))
    first, last = first_ms, first_ms + _SPAN * unit
    if random.random() < _IRREGULAR:
        count = random.choice((0, count))
        first, last = sorted(random.randint(first, last) for _ in range(2))
    grain = random.choice((1, unit, 5 * unit, 50 * unit))
    stays = random.choice((0.0, 0.05, 0.5, 1.0)) if drops else 1.0
    behind = random.choice((0.1, 0.3, 0.7)) if disorder else 0.0
    times = sorted(random.randint(first, last) // grain * grain for _ in range(count - 1))
    records = []
    for time in [*times, last][:count]:
        lag = random.randint(0, disorder) if random.random() < behind else 0
        is_kept = random.random() < stays
        records.append(Input(random.randrange(12), 0, max(time - lag, 1), is_kept))
    return records


def _weather(random: Random) -> Weather:
    choose = random.choice
    if random.random() < 0.4:
        return CALM
    return Weather(
        delay_ms=choose((0, 5, 100)),
        marker_delay_ms=choose((0, 20, 1000, 3000)),
        preempted=choose((0, 0.02, 0.2)),
        quiet_fetch=choose((0, 0.03)),
        replaced_reader=choose((0, 0.02)),
        partial_fetch=choose((0, 0.5)),
        late_end=choose((0, 0.5)),
        early_send=choose((0, 0.3, 1)),
        unknown_offset=choose((0, 0.05)),
        bad_commit=choose((0, 0, 0.1, 0.3)),
        broken_connection=choose((0, 0, 0, 0.01)),
        crash=choose((0, 0, 0, 0.005)),
        occupied_thread=choose((0, 0, 0.3)),
    )


def pipeline_of(plan: Plan, inputs: Collection[Partition], config: Config) -> Pipeline:
    """Return the pipeline of a plan, as the loader and the JobManager make it."""
    spec = TopologySpec(code=f"{MODULE}:build", config={"plan": plan.write()})
    at = Place(1, 1)
    entry = Entry(_ID, at, spec, (), OnError.SKIP)
    problems = Problems(Path("pipeline.yaml"))
    file = PipelineFile(None, [entry])  # type: ignore[arg-type]
    processors = UserTopology().processors(entry, spec, file, config, problems)
    problems.raise_if_any()
    existing = {topic: sum(of == topic for of, _ in inputs) for topic in plan.all_topics}
    if plan.feedback:
        existing[BACK] = existing[plan.topics[0]]
    names = config.topic_names
    found = Pipeline(tuple(processors), names, config.parallelism, _counts(processors))
    return with_counts(found, {**existing, OUT: 2})


def _counts(processors: Sequence[object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in processors:
        topics, internal = each.topics, each.internal_topics  # type: ignore[attr-defined]
        found |= {topics[t]: count for t, count in internal.items() if count is not None}
    return found
