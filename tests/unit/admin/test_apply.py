"""How `pipeline apply` makes a change for which the job rests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kafka_pipeline.admin.commands import apply
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.plan import plan
from kafka_pipeline.operations.savepoints import change_at_rest
from tests.unit.streams.pipeline.loading import CONFIG, load

BEFORE = """
- {id: A, type: forward, to: [Count, B]}
- {id: Count, type: count, to: [sink]}
- {id: B, type: sum, to: [sink]}
"""
RENAMED = BEFORE.replace("id: Count", "id: Total, was: Count").replace("[Count", "[Total")
WITHOUT_B = RENAMED.replace(", B]", "]").replace("- {id: B, type: sum, to: [sink]}\n", "")


@pytest.mark.parametrize(("text", "drains"), [(RENAMED, False), (WITHOUT_B, True)])
def test_what_waits_for_a_processor_that_is_removed_along_with_a_rename_is_processed(
    text: str, drains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Change:
        """Notes whether the job is drained."""

        def __init__(self, *_: object) -> None: ...

        def carry_out(self, *_: object, drains: bool, **_more: Any) -> int:
            asked.append(drains)
            return 2

    monkeypatch.setattr(change_at_rest, "ChangeAtRest", Change)
    before, after = load(BEFORE), load(text)
    found = plan(before, after, [spec.name for spec in before.data_topics(1)])
    assert [arc.topic for arc in found.arcs] == (["A_B"] if drains else [])
    apply._change_at_rest(CONFIG, cast(Admin, None), Proposal(after, text), found, Path("kept"))
    assert asked == [drains]
