"""The real `Task` on brokers in memory, each world from a seed: every record counts once.

After every step the results in the topics must be those of the records before the committed
offsets. A failure prints its seed and the story; replay it with `pytest tests/memory --seed N`.
"""

from __future__ import annotations

import pytest

from common.kafka.clients import HopelessError
from tests.memory.sabotage import SABOTAGES, Sabotage
from tests.memory.world import World
from tests.seeds import parametrize

SEEDS = 1000
CHUNK = 100
SEEDS_FOR_SABOTAGE = 200


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, CHUNK)


def live(seed: int) -> None:
    """Let a world live; tell its story if that goes wrong."""
    world = World(seed)
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


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_the_judge_sees_what_is_broken(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    for seed in range(SEEDS_FOR_SABOTAGE):
        try:
            World(seed).live()
        except AssertionError:
            return
        except HopelessError:
            continue  # what is committed is deleted, and then is not there
    pytest.fail(f"nobody has seen in {SEEDS_FOR_SABOTAGE} worlds: {sabotage.__doc__}")


def test_the_same_seed_gives_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = World(4711)
        world.live()
        stories.append(world.broker.story)
    assert len(stories[0]) > 10
    assert stories[0] == stories[1]
