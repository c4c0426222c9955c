"""A short set of faults against the whole engine; `python -m tests.chaos` has them all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.catalog import faults
from tests.chaos.report import Timeline, table
from tests.hosts.network import NoHostsError, require_hosts

pytestmark = [pytest.mark.integration, pytest.mark.long]

SHORT_SET = (
    "kill-during-commit",
    "kill-worker",
    "pause-past-detection",
    "restart-broker",
    "kill-jobmanager-in-move",
    "control-garbage",
    "cut-link",
    "corrupt-state",
    "poison-record",
)


ON_HOSTS = ("worker-host-silent-10", "jobmanager-host-silent", "half-open-to-worker")


@pytest.mark.timeout(900)
def test_the_engine_survives_a_short_set_of_faults(tmp_path: Path) -> None:
    """Nothing is lost, repeated or reordered, whatever the seed draws."""
    _play(tmp_path, SHORT_SET)


@pytest.mark.timeout(900)
def test_the_engine_survives_silence_between_hosts(tmp_path: Path) -> None:
    """The same, when each broker and each manager has a host of its own."""
    try:
        require_hosts()
    except NoHostsError as error:
        pytest.skip(str(error))
    _play(tmp_path, ON_HOSTS, "--hosts")


def _play(folder: Path, names: Sequence[str], *options: str) -> None:
    seed = random.randrange(10**6)
    timeline = Timeline()
    campaign = Campaign(folder, seed, timeline, on_hosts="--hosts" in options)
    campaign.rounds([fault for name, fault in faults().items() if name in names], 1)
    story = "\n".join(timeline.lines)
    words = [f"--seed {seed}", *options, *(f"--fault {name}" for name in names)]
    replay = f"python -m tests.chaos {' '.join(words)}"
    assert campaign.is_clean, f"{story}\n{table(campaign.rows.values())}\n{replay}"
    assert {row.rounds for row in campaign.rows.values()} == {1}
