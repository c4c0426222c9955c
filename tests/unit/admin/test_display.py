"""What the quickstart prints."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from kafka_pipeline.admin.quickstart.display import Display


def test_folders_are_told_as_they_are_called() -> None:
    console = Console(file=StringIO(), width=20)
    text = f"The files are in /tmp/[old]/:smile:/{'long' * 20}"
    with Display(console) as display:
        display.text(text)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == f"{text}\n"
