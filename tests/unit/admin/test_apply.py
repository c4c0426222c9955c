"""How `pipeline apply` makes a change for which the job rests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_pipeline.admin.commands import apply
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.plan import plan
from kafka_pipeline.operations.savepoints import change_at_rest
from tests.unit.streams.pipeline.loading import CONFIG, load

WRITES = replace(CONFIG, tables=TableSettings(write_paths=("lake",)))
BEFORE = """
- {id: A, type: forward, to: [Count, B]}
- {id: Count, type: count, to: [sink]}
- {id: B, type: sum, to: [sink]}
"""
RENAMED = BEFORE.replace("id: Count", "id: Total, was: Count").replace("[Count", "[Total")
TABLE = "- {id: T, type: table, format: delta, path: lake/t, schema: n INT}\n"
WITH_TABLE = BEFORE.replace("[Count", "[T, Count") + TABLE
OF_OTHER = WITH_TABLE.replace("id: A,", "id: Z, was: A,")
WITHOUT_B = RENAMED.replace(", B]", "]").replace("- {id: B, type: sum, to: [sink]}\n", "")


@pytest.mark.parametrize(
    ("before", "after", "drains"),
    [
        (BEFORE, RENAMED, False),
        (BEFORE, WITHOUT_B, True),
        (WITH_TABLE, OF_OTHER, True),
        (WITH_TABLE, RENAMED.replace("[Total", "[T, Total") + TABLE, False),
    ],
    ids=["rename", "removed", "of a table", "next to a table"],
)
def test_what_waits_for_a_processor_that_goes_or_for_a_table_is_processed_before_a_rename(
    before: str, after: str, drains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Change:
        """Notes whether the job is drained."""

        def __init__(self, *_: object) -> None:
            self.before = ran

        def carry_out(self, *_: object, drains: bool, **_more: Any) -> int:
            asked.append(drains)
            return 2

    monkeypatch.setattr(change_at_rest, "ChangeAtRest", Change)
    ran, wanted = load(before, WRITES), load(after, WRITES)
    found = plan(ran, wanted, [spec.name for spec in ran.data_topics(1)])
    assert [arc.topic for arc in found.arcs] == (["A_B"] if after == WITHOUT_B else [])
    apply._change_at_rest(CONFIG, cast(Admin, None), Proposal(wanted, after), found, Path("kept"))
    assert asked == [drains]
