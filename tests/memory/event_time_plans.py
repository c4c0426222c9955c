"""Draws topologies, inputs and surroundings from a seed, for the runs of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from common.config import Config
from common.kafka.clients import Partition
from common.messages import ProcessorReplica, replicas
from common.pipeline import Pipeline
from common.processors import OnError
from common.specs import TopologySpec
from common.topics import TopicSpec
from common.yaml_positions import Place, Problems
from streams.pipeline.kinds.entry import Entry, PipelineFile
from streams.pipeline.kinds.user_topology import UserTopology
from streams.pipeline.partitions import with_counts
from tests.memory.event_time_model import Input
from tests.memory.faults import CALM, Weather
from tests.user_code.timed_windows import FIRST_STEPS, OUT, STEPS, Join, Level, Plan

MODULE = "tests.user_code.timed_windows"
START_MS = 1_000_000
_UNITS_MS = (1, 10, 1000, 20_000)
_MOST_PARTITIONS = 8
_MOST_RECORDS = 40
_MOST_RECORDS_TO_JOIN = 15
_SPAN = 100
_IRREGULAR = 0.04
"""How many partitions end early, or have no records."""
_NEVER_MS = 10**9
_ID = "T"


@dataclass(frozen=True, slots=True)
class Drawn:
    """All that a seed decides before the run; `arrives` says that input comes while tasks run."""

    plan: Plan
    inputs: Mapping[Partition, Sequence[Input]]
    arrives: bool
    becomes_idle: bool
    """Whether partitions go idle, and then bring older records."""
    idle_after_ms: int
    end_ms: int
    """The time of the closing records."""
    weather: Weather


def draw(random: Random, *, becomes_idle: bool = False) -> Drawn:
    """Return a topology with its input and surroundings."""
    unit = random.choice(_UNITS_MS)
    disorder = random.choice((0, 1, 5, 20)) * unit
    plan = _idle_plan(random, unit) if becomes_idle else _plan(random, unit, disorder)
    inputs: dict[Partition, Sequence[Input]] = {}
    ids, most = 0, _MOST_RECORDS if plan.join is None else _MOST_RECORDS_TO_JOIN
    for topic in plan.topics:
        count = random.randint(1, _MOST_PARTITIONS)
        for number in range(count):
            records = _records(random, unit, disorder, ids, most, plan.drops)
            inputs[topic, number] = records
            ids += len(records)
    arrives = becomes_idle or random.random() < 0.5
    idle_after_ms = random.choice((300, 3000, _NEVER_MS))
    if becomes_idle:
        idle_after_ms = random.choice((300, 1000))
    elif arrives:
        idle_after_ms = _NEVER_MS
    last = max((r.time_ms for each in inputs.values() for r in each), default=START_MS)
    return Drawn(
        plan, inputs, arrives, becomes_idle, idle_after_ms, last + 10_000 * unit, _weather(random)
    )


def _plan(random: Random, unit: int, disorder: int) -> Plan:
    hops = tuple(random.randint(1, 4) for _ in range(random.choice((0, 0, 0, 1, 1, 2))))
    join = _join(random, unit) if random.random() < 0.3 else None
    if join is not None:
        hops = hops[:1]
    room = 3 - len(hops) - (join is not None)
    levels: list[Level] = []
    for number in range(random.randint(0 if join else 1, max(min(room, 2), 0 if join else 1))):
        levels.append(_level(random, unit, levels[-1] if number else None))
        if levels[-1].kind == "sessions" and levels[-1].grace_ms < disorder:
            break
    if join is not None and levels:
        # What becomes of a pair would depend on which of the two records came second.
        levels = [_with_grace(levels[0], disorder), *levels[1:]]
    steps = tuple(_steps(random) for _ in range(len(hops) + 1))
    return Plan(steps, hops, join, tuple(levels))


def _with_grace(level: Level, least_ms: int) -> Level:
    return Level(
        level.kind,
        level.size_ms,
        level.advance_ms,
        max(level.grace_ms, least_ms),
        level.keys,
        level.partitions,
    )


def _idle_plan(random: Random, unit: int) -> Plan:
    hops = tuple(random.randint(1, 4) for _ in range(random.choice((0, 0, 1))))
    level = _level(random, unit, None)
    if level.kind == "sessions":
        level = Level("tumbling", level.size_ms, level.size_ms, level.grace_ms, level.keys, 2)
    return Plan(tuple(_steps(random) for _ in range(len(hops) + 1)), hops, None, (level,))


def _steps(random: Random) -> tuple[str, ...]:
    first = tuple(FIRST_STEPS) if random.random() < 0.1 else ()
    return first + tuple(random.choice(STEPS) for _ in range(random.choice((0, 0, 1, 1, 2))))


def _level(random: Random, unit: int, former: Level | None) -> Level:
    kind = random.choice(("tumbling", "tumbling", "hopping", "sessions"))
    size = random.choice((3, 10, 30)) * unit
    keys = random.randint(1, 6)
    if former is not None:
        kind = random.choice(("tumbling", "hopping"))
        size = former.size_ms * random.randint(1, 4)
        keys = random.randint(1, former.keys)
    advance = size if kind != "hopping" else max(size // random.choice((2, 3, 5)), 1)
    grace = random.choice((0, 0, 0, 1, 5, 20)) * unit
    return Level(kind, size, advance, grace, keys, random.randint(1, 4))


def _join(random: Random, unit: int) -> Join:
    before, after = (random.choice((0, 1, 5, 20)) * unit for _ in range(2))
    grace = random.choice((0, 0, 1, 5, 20)) * unit
    if random.random() < 0.2:
        # One of the two may be negative: partners are then only before, or only after a record.
        before = -random.randint(0, after)
        if random.random() < 0.5:
            before, after = after, before
    kind = random.choice(("join", "left_join", "outer_join"))
    return Join(kind, before, after, grace, random.randint(1, 6), random.randint(1, 4))


def _records(
    random: Random, unit: int, disorder: int, first_id: int, most: int, drops: bool
) -> list[Input]:
    """Return the records of a partition: few or many, some of them behind by up to `disorder`.

    Most partitions reach the same time in the end, as time waits for those that do not.
    """
    count = random.choice((random.randint(1, 5), random.randint(1, most)))
    first, last = START_MS, START_MS + _SPAN * unit
    if random.random() < _IRREGULAR:
        count = random.choice((0, count))
        first, last = sorted(random.randint(first, last) for _ in range(2))
    grain = random.choice((1, unit, 5 * unit))
    stays = random.choice((0.0, 0.05, 0.5, 1.0)) if drops else 1.0
    behind = random.choice((0.1, 0.3, 0.7)) if disorder else 0.0
    times = sorted(random.randint(first, last) // grain * grain for _ in range(count - 1))
    records = []
    for number, time in enumerate([*times, last][:count]):
        lag = random.randint(0, disorder) if random.random() < behind else 0
        is_kept = random.random() < stays
        records.append(Input(random.randrange(12), first_id + number, time - lag, is_kept))
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
    )


def tasks_of(
    plan: Plan, inputs: Mapping[Partition, object], config: Config
) -> tuple[list[ProcessorReplica], list[TopicSpec], Pipeline]:
    """Return the tasks of a plan, as the loader and the JobManager make them, and the topics."""
    spec = TopologySpec(code=f"{MODULE}:build", config={"plan": plan.write()})
    at = Place(1, 1)
    entry = Entry(_ID, at, spec, (), OnError.FAIL)
    problems = Problems(Path("pipeline.yaml"))
    file = PipelineFile(None, [entry])  # type: ignore[arg-type]
    processors = UserTopology().processors(entry, spec, file, config, problems)
    problems.raise_if_any()
    existing = {topic: sum(of == topic for of, _ in inputs) for topic in plan.topics}
    names = config.topic_names
    found = Pipeline(tuple(processors), names, config.parallelism, _counts(processors))
    pipeline = with_counts(found, {**existing, OUT: 2})
    return replicas(pipeline), list(pipeline.data_topics(1)), pipeline


def _counts(processors: Sequence[object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in processors:
        topics, internal = each.topics, each.internal_topics  # type: ignore[attr-defined]
        found |= {topics[t]: count for t, count in internal.items() if count is not None}
    return found
