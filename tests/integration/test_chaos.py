"""A short set of faults against the whole engine; `python -m tests.chaos` has them all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.catalog import faults
from tests.chaos.report import Timeline, table

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


@pytest.mark.timeout(900)
def test_the_engine_survives_a_short_set_of_faults(tmp_path: Path) -> None:
    """Nothing is lost, repeated or reordered, whatever the seed draws."""
    seed = random.randrange(10**6)
    timeline = Timeline()
    campaign = Campaign(tmp_path, seed, timeline)
    campaign.rounds([fault for name, fault in faults().items() if name in SHORT_SET], 1)
    story = "\n".join(timeline.lines)
    replay = f"python -m tests.chaos --seed {seed} " + " ".join(f"--fault {n}" for n in SHORT_SET)
    assert campaign.is_clean, f"{story}\n{table(campaign.rows.values())}\n{replay}"
    assert {row.rounds for row in campaign.rows.values()} == {1}
