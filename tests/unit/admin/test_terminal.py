"""What commands print on a narrow terminal."""

from __future__ import annotations

import sys

import pytest
from rich.console import Group
from rich.table import Table

from kafka_pipeline.admin.terminal import show


def test_a_narrow_terminal_breaks_words_and_cuts_nothing_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{letter * 9}-orders" for letter in "abcd"]
    table = Table(*"ABCD")
    table.add_row(*names)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    show(Group("one", Group(table)))
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert max(map(len, rows)) <= 40
    cells = [row.split("│")[1:-1] for row in rows]
    assert [
        "".join(part.strip() for part in column) for column in zip(*cells, strict=True)
    ] == names
