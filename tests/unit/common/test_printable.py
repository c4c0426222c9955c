"""What others have written does not command the terminal that shows it."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from rich.console import Console, Group
from rich.text import Text

from kafka_pipeline.admin.commands import pause, versions
from kafka_pipeline.admin.status import overview
from kafka_pipeline.admin.tables import make_table
from kafka_pipeline.admin.terminal import show
from kafka_pipeline.common.cluster.cluster_status import Beat, snapshot
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.monitoring import logs
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import CountSpec
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.protocol.messages import JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment import wishes
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish

CLEAR, TITLE, BELL, TURNED = "\x1b[2J", "\x1b]0;owned\x07", "\x07", "\u202e"
HOSTILE = f"no {CLEAR}{TITLE}{BELL}\x9b31m{TURNED}\r\x08"


def is_harmless(shown: str) -> bool:
    return not any(each in shown for each in ("\x1b", "\x07", "\x9b", TURNED, "\r", "\x08"))


def test_control_characters_are_escapes() -> None:
    assert printable("a\x1b[2J\u202eb\x9b") == "a\\x1b[2J\\u202eb\\x9b"
    assert is_harmless(printable(HOSTILE))


@pytest.mark.parametrize(
    "character",
    [
        *("\u202a", "\u202e", "\u2066", "\u2069", "\u061c"),  # direction
        *("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\U000e0041"),  # without width
        *("\u2028", "\u2029", "\x85"),  # other ends of lines
        *("\ue000", "\U0010ffff", "\ud800"),  # private, unassigned, half of a pair
    ],
)
def test_characters_that_hide_or_turn_others_are_escapes(character: str) -> None:
    shown = printable(f"a{character}b", LAYOUT)
    assert shown == f"a{character.encode('unicode_escape').decode()}b"
    assert shown.isascii()


def test_whatever_a_command_shows_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    table = make_table("Title", ["name"], [(Text(HOSTILE, style="red"),)], folded=())
    show(Group(Text(f"made by {HOSTILE}"), table))
    shown = capsys.readouterr().out
    assert "made by no \\x1b[2J" in shown
    assert is_harmless(shown)


def test_what_a_command_says_while_it_follows_a_job_is_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("load_config", "connected", "read_deployment"):
        monkeypatch.setattr(pause, name, lambda *_: None)
    monkeypatch.setattr(pause, "choose", lambda *_: SimpleNamespace(ids=["P"]))
    monkeypatch.setattr(wishes, "ask", lambda *_: 2)
    monkeypatch.setattr(pause, "follow", lambda *given: given[-1](f"P_0 has failed: {HOSTILE}"))
    pause._ask_for(Path(), None, "restart", wishes.restarted, dry_run=False)
    shown = capsys.readouterr().out
    assert "P_0 has failed: no \\x1b[2J" in shown
    assert is_harmless(shown)


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


@pytest.mark.parametrize("by", ["[link=https://evil.example]ada[/link]", "[/]", ":smile:"])
def test_who_made_a_version_is_not_taken_for_layout(
    by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = TopicNames("shop", "orders", "totals")
    counter = PipelineProcessor("Counter", CountSpec(), (SINK,), (SOURCE,))
    version = PipelineVersion(1, Pipeline((counter,), names, 1, {"orders": 1}), "", 2**62, by)
    deployment = Deployment(names)
    for record in deployment.records(Wish(version=1), version):
        deployment.take(record)
    show(versions._table(deployment))
    shown = capsys.readouterr().out
    assert by in shown
    assert f"{2**62} ms" in shown
