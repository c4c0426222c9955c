"""Whole topologies on brokers in memory: windows and joins do not depend on anybody's speed.

Each world is made from a seed. At the end, the results must be those of a model that sees each
source partition alone. A failure prints its seed and the topology; replay it with
`pytest tests/memory/test_event_time.py --seed N`.
"""

from __future__ import annotations

from operator import attrgetter

import pytest

from tests.memory.event_time_sabotage import SABOTAGES, Sabotage
from tests.memory.event_time_world import EventTimeWorld
from tests.seeds import parametrize

SEEDS = 200
CHUNK = 50
SEEDS_FOR_SABOTAGE = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, CHUNK)


def test_results_are_those_of_each_source_partition_alone(seeds: range) -> None:
    for seed in seeds:
        world = EventTimeWorld(seed)
        try:
            world.live()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}\n{world.drawn}\nreplay with --seed {seed}")


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=attrgetter("__name__"))
def test_the_model_sees_what_is_broken(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert any(map(fails, range(SEEDS_FOR_SABOTAGE))), f"nobody has seen: {sabotage.__doc__}"


def fails(seed: int) -> bool:
    """Return whether the results of a world are not those of the model."""
    try:
        EventTimeWorld(seed).live()
    except AssertionError:
        return True
    return False
