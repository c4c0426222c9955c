"""The real `Task` and PipelineThread on brokers in memory: every record counts once.

Each world is made from a seed. Whenever a transaction is decided, the results in the topics must be
those of the records before the committed offsets. A failure prints its seed and the story; replay
it with `pytest tests/memory --seed N`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from kafka_pipeline.common.kafka.clients import NonRetriableError
from tests.memory.driving import Owner, TaskOwner, ThreadOwner
from tests.memory.pipelines import PIPELINES, Pipeline
from tests.memory.sabotage import SABOTAGES, SABOTAGES_OF_THREADS, Sabotage
from tests.memory.world import World
from tests.seeds import parametrize
from tests.tiers import long_but_the_first

SHORT_SEEDS = 25
SEEDS = 500
CHUNK = 25
SEEDS_FOR_SABOTAGE = 1000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SHORT_SEEDS, SEEDS, CHUNK)


def live(seed: int, owner: type[Owner] = TaskOwner, state_dir: Path | None = None) -> None:
    """Let a world live; print its story if it fails."""
    world = World(seed, owner, state_dir=state_dir)
    try:
        world.live()
    except Exception as error:
        story = "\n".join(f"{at_s:10.3f} {what}" for at_s, what in world.broker.story)
        pytest.fail(
            f"{story}\n\nseed {seed}: {type(error).__name__}: {error}\nreplay with --seed {seed}",
            pytrace=not isinstance(error, AssertionError),
        )


def test_every_record_counts_once_whoever_runs_the_task(seeds: range) -> None:
    for seed in seeds:
        live(seed)


def test_every_record_counts_once_in_a_pipeline_thread(seeds: range) -> None:
    for seed in seeds:
        live(seed, ThreadOwner)


@pytest.mark.parametrize("seed", long_but_the_first(range(10), short=4))
def test_every_record_counts_once_with_stores_on_disk(seed: int, tmp_path: Path) -> None:
    live(seed, state_dir=tmp_path)


@pytest.mark.parametrize("sabotage", long_but_the_first(SABOTAGES), ids=attrgetter("__name__"))
def test_the_judge_sees_what_is_broken_in_a_task(
    sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert is_seen(TaskOwner), f"nobody has seen: {sabotage.__doc__}"


@pytest.mark.parametrize(("sabotage", "pipeline"), long_but_the_first(SABOTAGES_OF_THREADS))
def test_the_judge_sees_what_is_broken_in_a_thread(
    sabotage: Sabotage, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert is_seen(ThreadOwner, [pipeline]), f"nobody has seen: {sabotage.__doc__}"


def is_seen(owner: type[Owner], pipelines: Sequence[Pipeline] = PIPELINES) -> bool:
    """Return whether the judge objects to any of several worlds."""
    for seed in range(SEEDS_FOR_SABOTAGE):
        try:
            World(seed, owner, pipelines).live()
        except AssertionError:
            return True
        except NonRetriableError:
            continue  # its committed offset is too high, and those records are deleted
    return False


@pytest.mark.parametrize("owner", [TaskOwner, ThreadOwner])
def test_the_same_seed_gives_the_same_story(owner: type[Owner]) -> None:
    stories = []
    for _ in range(2):
        world = World(4711, owner)
        world.live()
        stories.append(world.broker.story)
    assert len(stories[0]) > 10
    assert stories[0] == stories[1]
