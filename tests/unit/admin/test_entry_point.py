"""The entry point of the `pipeline` command: what Ctrl-C does, and what is imported."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kafka_pipeline.admin.app import COMMANDS, app_for, app_with
from kafka_pipeline.admin.cli import main
from kafka_pipeline.common.process.cli import INTERRUPTED_EXIT_CODE


@pytest.fixture(autouse=True)
def _handler_of_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("is_pressed", [True, False])
def test_ctrl_c_that_confluent_kafka_loses_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, is_pressed: bool
) -> None:
    """It came while librdkafka logged that no broker answers: a traceback of a SystemError."""

    def poll() -> None:
        if is_pressed:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        raise SystemError("poll returned NULL without setting an exception")

    monkeypatch.setattr("kafka_pipeline.admin.app.app_for", lambda _: poll)
    with pytest.raises(SystemExit if is_pressed else SystemError) as ended:
        main()
    assert not is_pressed or ended.value.args == (INTERRUPTED_EXIT_CODE,)


def test_ctrl_c_while_the_command_is_imported_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "kafka_pipeline.admin.app.app_for", lambda _: lambda: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.args == (INTERRUPTED_EXIT_CODE,)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ended with a traceback in the middle of its output."""
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="latin-1", write_through=True) as output:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(
            "kafka_pipeline.admin.app.app_for", lambda _: lambda: print("\xfc\u6771")
        )
        main()
        assert written.getvalue() == b"\xfc\\u6771\n"


def test_help_says_of_each_command_what_the_command_says() -> None:
    """The help of all commands imports none of them, so their first sentences are in a table."""
    group: Any = typer.main.get_command(app_with())
    assert list(group.commands) == list(COMMANDS)
    first = {name: each.help.split("\n\n")[0] for name, each in group.commands.items()}
    assert {name: " ".join(text.split()) for name, text in first.items()} == {
        name: command.help for name, command in COMMANDS.items()
    }


@pytest.mark.parametrize("words", [["status", "--nope"], ["--", "status"], ["--nope", "status"]])
def test_a_command_line_has_the_command_that_it_names(words: list[str]) -> None:
    group: Any = typer.main.get_command(app_for(words))
    assert list(group.commands) == ["status"]


@pytest.mark.parametrize("words", [[], ["--help"], ["stats"]])
def test_what_names_no_command_gets_the_list_of_all(words: list[str]) -> None:
    found = CliRunner().invoke(app_for(words), words, env={"COLUMNS": "200"})
    assert "stats" in words or all(each.help in found.output for each in COMMANDS.values())
    assert "stats" not in words or "Did you mean 'status'" in found.output
