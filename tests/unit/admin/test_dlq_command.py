"""`pipeline dlq list` of letters that were read before, without a Kafka."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_pipeline.admin.commands import dlq
from kafka_pipeline.operations.dead_letters import letters
from tests.in_process import run_pipeline
from tests.small_config import SMALL_CONFIG
from tests.unit.operations.test_dead_letters import batch, errors


def test_letters_are_counted_by_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons that differ only in numbers count as one."""
    found = batch([errors(0, "call 1"), errors(1, "odd"), errors(2, "call 2")])

    def find(*_: object, **__: object) -> list[object]:
        return [*letters("Adder", [found])]

    monkeypatch.setattr(dlq, "DeadLetterTopics", lambda _: SimpleNamespace(find=find))
    config = tmp_path / "config.yaml"
    config.write_text(SMALL_CONFIG)
    said = run_pipeline("dlq", "list", str(config), "--by-reason")
    rows = [line.split("│")[1:4] for line in said.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [["2", "Adder", "call 2"], ["1", "Adder", "odd"]]
