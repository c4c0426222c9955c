"""Draws topologies and inputs from seeds."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from tests.differential.drawing import Drawing
from tests.differential.operators import OPERATORS
from tests.differential.topologies import Input, Topology

_STRINGS = ("", "x", "yy", "zzz", "ab", "abcd")
_LONGS = (-1, 0, 1, 2, 3, 5)
_KEYS = {"string": ("a", "b", "c"), "long": (0, 1, 2)}
_STEPS = (0, 0, 1, 1, 2, 3, 5, 8, 15, 40)
_LONGEST_DELAY = 30


def draw_topology(seed: int, operators: Collection[str] = tuple(OPERATORS)) -> Topology:
    """Return the topology of a seed.

    It has the operator with the number of the seed, so as many consecutive seeds as there are
    operators have them all. Names of `operators` limit what is drawn.
    """
    random = Random(f"topology {seed}")
    draw = Drawing(random)
    names = [name for name in OPERATORS if name in operators]
    weights = [OPERATORS[name][0] for name in names]
    count = random.choice((0, 1, 2, 3, 4, 6))
    drawn = random.choices(names, weights, k=count)
    drawn.insert(random.randrange(count + 1), names[seed % len(names)])
    for name in drawn:
        OPERATORS[name][1](draw)
    return draw.topology()


def draw_inputs(topology: Topology, seed: int) -> list[Input]:
    """Return the inputs of a seed: records of few keys, out of order, and waits in between."""
    random = Random(f"inputs {seed}")
    scale = _scale(topology)
    now = random.choice((0, 0, 3, 60)) * scale
    nulls, late = random.choice((0, 0.1, 0.3)), random.choice((0, 0.2, 0.5))
    inputs: list[Input] = []
    for _ in range(random.choice((5, 15, 30, 30))):
        if random.random() < 0.05:
            inputs.append({"advance_ms": random.choice((1, 1000, 100_000))})
        now += random.choice(_STEPS) * scale + (random.randrange(3) if scale > 1 else 0)
        delay = random.randrange(_LONGEST_DELAY) * scale if random.random() < late else 0
        topic = random.choice(sorted(topology.sources))
        inputs.append(_record(topology, topic, max(0, now - delay), nulls, random))
    if random.random() < 0.6:
        # All windows close.
        for topic in sorted(topology.sources):
            now += 1000 * scale
            inputs.append(_record(topology, topic, now, 0, random))
    return inputs


def _record(topology: Topology, topic: str, ts: int, nulls: float, random: Random) -> Input:
    source = topology.sources[topic]
    key = random.choice(_KEYS[source.key]) if random.random() >= nulls / 3 else None
    values = _STRINGS if source.value == "string" else _LONGS
    value = random.choice(values) if random.random() >= nulls else None
    return {"topic": topic, "key": key, "value": value, "ts": ts}


def _scale(topology: Topology) -> int:
    """Return what the times of the topology are multiplied with, as far as they show it."""
    times = [
        value
        for step in topology.steps
        for args in (step.args, step.args.get("window") or {})
        for name, value in args.items()
        if name.endswith("_ms") and value
    ]
    return 1 if not times or min(times) < 1000 else 20_000
