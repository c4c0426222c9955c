"""When processed records are not deleted from arcs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.jobmanager import purge as module
from kafka_pipeline.jobmanager.purge import ArcPurger
from tests.unit.streams.pipeline.loading import CONFIG, load

CHAIN = "- {id: A, type: forward, to: [B]}\n- {id: B, type: count, to: [sink]}"


@pytest.mark.parametrize("stops_first", [True, False])
def test_nothing_is_deleted_once_a_tool_works_on_the_topics(
    stops_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator may be slow, and a restore makes the arcs again in the meantime."""
    deleted: list[object] = []

    def delete(offsets: object) -> None:
        deleted.append(offsets)
        purger.stop()

    def committed(*_: object) -> dict[Any, Committed]:
        if stops_first:
            purger.stop()
        return {("A_B", 0): Committed(5)}

    reader = SimpleNamespace(committed=committed, close=lambda: None)
    monkeypatch.setattr(module, "Admin", lambda _config: SimpleNamespace(delete_before=delete))
    monkeypatch.setattr(module, "PartitionReader", lambda *_: reader)
    monkeypatch.setattr(module, "PURGE_INTERVAL_S", 0)
    purger = ArcPurger(CONFIG, load(CHAIN))
    purger._run()
    assert deleted == ([] if stops_first else [{("A_B", 0): 5}])
