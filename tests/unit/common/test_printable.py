"""What others have written does not command the terminal that shows it."""

from __future__ import annotations

import io
from typing import Any

import pytest
import structlog
from rich.console import Console

from admin.status import overview
from common import logs
from common.cli import run_command
from common.cluster_status import Beat, snapshot
from common.errors import ConfigError
from common.messages import JobManagerBeat, Report
from common.printable import LAYOUT, printable
from common.status import TaskState, TaskStatus
from common.tasks import TaskId

CLEAR, TITLE, BELL, TURNED = "\x1b[2J", "\x1b]0;owned\x07", "\x07", "\u202e"
HOSTILE = f"no {CLEAR}{TITLE}{BELL}\x9b31m{TURNED}\r\x08"


def is_harmless(shown: str) -> bool:
    return not any(each in shown for each in ("\x1b", "\x07", "\x9b", TURNED, "\r", "\x08"))


def test_control_characters_are_escapes() -> None:
    assert printable("a\x1b[2J\u202eb\x9b") == "a\\x1b[2J\\u202eb\\x9b"
    assert is_harmless(printable(HOSTILE))


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "größer 漢字 🎉", "a\\x1b"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert printable(text, LAYOUT) == text


def test_a_line_stays_one_line() -> None:
    assert printable("a\n\tb") == "a\\n\\tb"


def test_status_shows_reasons_and_hosts_without_carrying_them_out() -> None:
    task = TaskId("P", 0)
    failed = TaskStatus(task, TaskState.FAILED, reason=HOSTILE, activity=HOSTILE)
    report = Report(0, "a", 1, 1, host=HOSTILE, code={"shop": HOSTILE}, tasks=(failed,))
    other = Report(1, "b", 1, 1, code={"shop": "else"})
    beats = [Beat(0, JobManagerBeat(1, 0, {task: 0})), Beat(0, report), Beat(0, other)]
    screen = Console(file=io.StringIO(), width=200)
    screen.print(overview(snapshot(beats, 0, 1000, 2)))
    shown: Any = screen.file
    assert "no \\x1b[2J" in shown.getvalue()
    assert is_harmless(shown.getvalue())


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_the_log_shows_them_escaped(log_format: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(log_format, "info")
    structlog.get_logger().warning(f"rejected {HOSTILE}", reason=HOSTILE, list=[HOSTILE])
    shown = capsys.readouterr().err
    assert "rejected" in shown
    assert is_harmless(shown)


def test_an_error_that_ends_a_command_shows_them_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @run_command
    def fails() -> None:
        raise ConfigError(f"the JobManager refuses this: {HOSTILE}")

    with pytest.raises(SystemExit):
        fails()
    shown = capsys.readouterr().err
    assert "the JobManager refuses this: no \\x1b[2J" in shown
    assert is_harmless(shown)
