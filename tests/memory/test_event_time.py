"""Real tasks of whole topologies on brokers in memory: what is late hangs on the source alone.

Windows and joins behind one to three repartitions must have the results of a model that looks at
each source partition by itself, however fast the tasks are and wherever they run. A failure prints
its seed, the topology and the story; replay it with
`pytest tests/memory/test_event_time.py --seed N`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory.event_time_sabotage import HARSH_WEATHER, SABOTAGES, Sabotage
from tests.memory.event_time_world import EventTimeWorld, let_live
from tests.memory.faults import Weather
from tests.seeds import parametrize
from tests.tiers import long_but_the_first

SHORT_SEEDS = 15
SEEDS = 300
CHUNK = 15
SEEDS_FOR_SABOTAGE = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SHORT_SEEDS, SEEDS, CHUNK)


def live(seed: int, state_dir: Path | None = None) -> None:
    let_live(EventTimeWorld(seed, state_dir=state_dir), seed)


def test_what_is_late_hangs_on_the_source_partition_alone(seeds: range) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.parametrize("seed", long_but_the_first(range(8), short=3))
def test_the_same_with_stores_on_disk(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path)


@pytest.mark.parametrize("seed", long_but_the_first(range(30), short=4))
def test_tasks_that_look_up_rows_of_each_other_do_not_wait_for_ever(seed: int) -> None:
    EventTimeWorld(seed, looks_up=True).live()  # it fails if a record waits in the end


def test_partitions_that_were_idle_bring_older_records() -> None:
    for seed in range(4, 1000, 5):
        world = EventTimeWorld(seed)
        world.live()
        if world.after_idle:
            return
    pytest.fail("no run shows what comes after an idle period")


@pytest.mark.parametrize("sabotage", long_but_the_first(SABOTAGES), ids=lambda each: each.__name__)
def test_the_model_sees_what_is_broken(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    weather = HARSH_WEATHER.get(sabotage)
    assert is_seen(weather), f"nobody has seen: {sabotage.__doc__}"


def is_seen(weather: Weather | None) -> bool:
    """Return whether any of several worlds differs from the model."""
    for seed in range(SEEDS_FOR_SABOTAGE):
        try:
            EventTimeWorld(seed, weather=weather).live()
        except AssertionError:
            return True
    return False


def test_the_same_seed_gives_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = EventTimeWorld(4711)
        world.live()
        stories.append(world.broker.story)
    assert len(stories[0]) > 10
    assert stories[0] == stories[1]
