"""The parts of `pipeline dev`: its files, its log, its lines to copy, and its guard."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from kafka_pipeline.admin.daemons import session_members
from kafka_pipeline.admin.dev.guard import Guard, end_sessions
from kafka_pipeline.admin.dev.hints import hints
from kafka_pipeline.admin.dev.log import DevLog, style_of
from kafka_pipeline.admin.dev.progress import Progress, Wanted
from kafka_pipeline.admin.dev.project import Code, Places, Project, find_project
from kafka_pipeline.admin.dev.run import DevOptions, DevRun
from kafka_pipeline.admin.samples import Template, job_of, write_samples
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster.cluster_status import Beat
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.common.protocol.messages import Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.unit.admin.beats import COUNT, leader, look, report, running
from tests.waiting import wait_until

PLACES = Places(port=9, console_port=None, task_managers=1)
FORWARD = "- {id: A, type: forward, to: [sink]}\n"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def alone(tmp_path: Path) -> Project:
    """A pipeline.yaml without a config.yaml."""
    (tmp_path / "pipeline.yaml").write_text(FORWARD)
    return find_project(tmp_path / "pipeline.yaml", None)


@pytest.fixture
def bank(tmp_path: Path) -> Project:
    """What `pipeline init --template class` writes."""
    write_samples(tmp_path, Template.CLASS)
    return find_project(tmp_path / "pipeline.yaml", None)


def write_config(project: Project, places: Places) -> Config:
    return project.write_config(places, project.code())


def test_without_a_config_the_modules_next_to_the_pipeline_may_be_used(alone: Project) -> None:
    for name in ("shop.py", "pack/__init__.py", "test_shop.py", "conftest.py", "no-module.py"):
        file = alone.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    (alone.folder / "data").mkdir()
    config = write_config(alone, PLACES)
    assert config.modules == ("pack", "shop")
    assert config.python_path == (alone.work_dir / "code" / "0",)
    assert alone.code() == Code((alone.folder,), None)
    assert config.state_dir == alone.work_dir / "state"
    assert config.bootstrap_servers == "127.0.0.1:9"
    assert (config.state_port, config.state_host) == (0, "127.0.0.1")


def test_the_config_next_to_the_pipeline_is_used_but_for_the_places(bank: Project) -> None:
    own = bank.own_config
    assert own is not None
    text = own.read_text().replace('log_format: "console"', 'log_format: "json"')
    text += (
        'kafka: {bootstrap.servers: "${FAR_AWAY:-far:1}"}\nmetrics_port: 9400\n'
        'num_standby_replicas: 1\nspark: {master: "spark://far:7077", conf: {spark.a: 1}}\n'
    )
    own.write_text(text)
    config = write_config(bank, PLACES)
    assert config.bootstrap_servers == "127.0.0.1:9"
    assert (config.job_name, config.modules) == (job_of(bank.folder), ("balances",))
    assert (config.tm_number, config.num_standby_replicas) == (1, 0)
    assert (config.metrics_port, config.console_port, config.log_format) == (0, None, "console")
    assert config.spark.master == "local[*]"
    assert config.spark.conf == {"spark.a": "1"}
    assert write_config(bank, Places(9, 8, 2)).num_standby_replicas == 1
    # The user's own is as it was. The other may have its passwords.
    assert own.read_text() == text
    assert bank.config_file.stat().st_mode & 0o777 == 0o600


def test_a_config_as_a_list_of_maps_is_read_too(alone: Project) -> None:
    own = alone.folder / "config.yaml"
    text = (
        "- server_ip: far\n- server_port: 1\n- tm_number: 5\n- parallelism: 3\n"
        "- replication_factor: 3\n- source_topic: a\n- sink_topic: b\n"
    )
    own.write_text(text)
    config = write_config(find_project(alone.pipeline_file, None), PLACES)
    assert (config.parallelism, config.tm_number, config.source_topic) == (3, 1, "a")


def test_a_wrong_config_is_reported_with_its_own_name(bank: Project) -> None:
    assert bank.own_config is not None
    bank.own_config.write_text("parallelism: 0\n")
    with pytest.raises(ConfigError, match=r"/config\.yaml:1:14: parallelism"):
        write_config(bank, PLACES)


def test_a_missing_pipeline_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pipeline init --template class"):
        find_project(tmp_path / "pipeline.yaml", None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_saved_is_noticed(bank: Project) -> None:
    seen = bank.look(bank.code())
    assert bank.look(bank.code()) == seen
    (bank.folder / "balances.py").write_text("x = 1\n")
    (bank.folder / "other.py").write_text("")  # not on the list
    code = bank.look(bank.code())
    assert {*code.code} == {"balances.py"}
    assert (code.code != seen.code, code.pipeline == seen.pipeline) == (True, True)
    bank.pipeline_file.unlink()
    assert bank.look(bank.code()).pipeline is None


def test_without_a_config_a_new_module_is_noticed(alone: Project) -> None:
    assert alone.look(alone.code()).code == {}
    (alone.folder / "new.py").write_text("")
    assert {*alone.look(alone.code()).code} == {"new.py"}


def test_what_is_saved_while_it_is_checked_does_not_run(alone: Project) -> None:
    shop, code = alone.folder / "shop.py", alone.code()
    shop.write_text("first")
    write_config(alone, PLACES)
    runs = alone.work_dir / "code/0/shop.py"
    shop.write_text("second")
    (alone.folder / "new.py").write_text("")
    checked = load_config(alone.prepare(code))
    shop.write_text("third")
    assert checked.modules == ("new", "shop")
    assert [folder.joinpath("shop.py").read_text() for folder in checked.python_path] == ["second"]
    assert runs.read_text() == "first"
    alone.adopt(code)
    assert runs.read_text() == "second"
    config = load_config(alone.config_file)
    assert config.modules == ("new", "shop")
    assert [folder.joinpath("shop.py").read_text() for folder in config.python_path] == ["second"]


def test_code_that_cannot_be_copied_is_not_applied(
    bank: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that an editor, or git, replaced at this moment ended the command."""

    def is_gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    write_config(bank, PLACES)
    output = io.StringIO()
    run = DevRun(bank, DevOptions(), DevLog(Console(file=output)), Signals())
    monkeypatch.setattr("shutil.copy2", is_gone)
    run._reload(bank.code(), bank.look(bank.code()))
    assert "not applied: the code cannot be copied" in output.getvalue()


def test_forgetting_deletes_records_and_state_only(bank: Project) -> None:
    for name in ("broker", "state"):
        (bank.work_dir / name).mkdir()
    before = {*bank.folder.iterdir()}
    bank.forget()
    assert {*bank.folder.iterdir()} == before
    assert {file.name for file in bank.work_dir.iterdir()} == {".gitignore"}


def of(project: Project) -> list[str]:
    config = write_config(project, PLACES)
    pipeline = load_pipeline(project.pipeline_file, config)
    return hints(pipeline, Path("c.yaml"), UserCode.of(config))


def test_lines_to_copy_have_the_serdes_of_the_class(bank: Project) -> None:
    assert of(bank) == [
        """echo '{"key": "ann", "value": 12}' | """
        "pipeline topic write c.yaml source_topic --value integer",
        "pipeline topic read c.yaml sink_topic --value integer --follow",
        "pipeline state list c.yaml",
    ]


def test_lines_to_copy_have_the_serdes_of_a_topology(tmp_path: Path) -> None:
    """They are in the code alone: a builder has its own."""
    write_samples(tmp_path, Template.DSL)
    assert of(find_project(tmp_path / "pipeline.yaml", None)) == [
        """echo '{"key": "ann", "value": {"amount": 12}}' | """
        "pipeline topic write c.yaml source_topic --value json",
        "pipeline topic read c.yaml sink_topic --value json --follow",
        "pipeline state list c.yaml",
    ]


@pytest.mark.parametrize("template", [Template.BASIC, Template.SQL, Template.DSL, Template.JOIN])
def test_lines_to_copy_are_what_the_commands_take(tmp_path: Path, template: Template) -> None:
    write_samples(tmp_path, template)
    lines = of(find_project(tmp_path / "pipeline.yaml", None))
    written = [shlex.split(line) for line in lines if line.startswith("echo ")]
    assert all(json.loads(words[1])["value"] for words in written)
    topics = [words[words.index("c.yaml") + 1] for words in written]
    assert topics == (["customers"] if template is Template.JOIN else []) + ["source_topic"]
    assert sum(line.startswith("pipeline topic read c.yaml sink_topic") for line in lines) == 1


NEW = {"shop": "new"}


def progress(monkeypatch: pytest.MonkeyPatch, *beats: Beat) -> tuple[bool, str] | None:
    """Return what is said of a TaskManager with the pid 100 that is to run new code."""
    watcher = SimpleNamespace(read=lambda _s: None, status=lambda: look(*beats, tm_number=1))
    monkeypatch.setattr("kafka_pipeline.admin.dev.progress.ClusterWatcher", lambda _c: watcher)
    config: Any = None
    found = Progress(config).look(Wanted(NEW, {0: 100}, time.monotonic()))
    return found and (found[0], found[1].rpartition(" after")[0] or found[1])


def with_code(beat: Beat, code: dict[str, str]) -> Beat:
    assert isinstance(beat.content, Report)
    return replace(beat, content=replace(beat.content, code=code))


def test_new_code_runs_when_all_tasks_do_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    leads, runs = leader({COUNT: 0}), report(0, running(COUNT))
    assert progress(monkeypatch, leads, with_code(runs, NEW)) == (True, "runs")
    assert progress(monkeypatch, leads, with_code(runs, {"shop": "old"})) is None
    assert progress(monkeypatch, leads) is None
    starts = report(0, TaskStatus(COUNT, TaskState.RESTARTING))
    assert progress(monkeypatch, leads, with_code(starts, NEW)) is None


def test_a_task_that_fails_with_new_code_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = report(0, TaskStatus(COUNT, TaskState.FAILED, "KeyError"))
    found = progress(monkeypatch, leader({COUNT: 0}), with_code(fails, NEW))
    assert found == (False, "Count_0 is FAILED: KeyError")


def printed(console: Console, file: Path, *texts: str) -> str:
    log = DevLog(console)
    log.follow("taskmanager 0", file)
    for text in texts:
        with file.open("a") as stream:
            stream.write(text)
        log.pump()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_have_the_name_of_their_daemon_and_come_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("of the former run\n")
    shown = printed(Console(file=io.StringIO()), file, "one\ntw", "o\n", "[red]three[/red]\n")
    prefix = "taskmanager 0 | "
    assert shown == f"{prefix}one\n{prefix}two\n{prefix}[red]three[/red]\n"


def test_failures_stand_out_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = "2026-11-23T00:00:00Z [error    ] task failed  task=A_0\n"
    colored = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    assert "\x1b[1;31m" in printed(colored, tmp_path / "log", line)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    assert "\x1b[1;31m" not in printed(plain, tmp_path / "log", line)
    assert style_of("[warning  ] TaskManager is down") == "yellow"
    assert style_of('/a/pipeline.yaml:8:3: unknown key "serdez"') == "bold red"
    assert style_of("no level") == ""


SLEEPER = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"


@pytest.fixture
def sessions() -> Iterator[Callable[[str], int]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_sessions_are_asked_to_stop_and_killed_after_a_time(
    sessions: Callable[[str], int],
) -> None:
    polite, stubborn = sessions(SLEEPER.replace("SIG_IGN", "SIG_DFL")), sessions(SLEEPER)
    end_sessions([polite, stubborn], timeout_s=0.3)
    wait_until(lambda: not any((*session_members(polite), *session_members(stubborn))))


def test_the_guard_ends_what_it_was_given_and_forgets_what_was_taken_back(
    tmp_path: Path, sessions: Callable[[str], int]
) -> None:
    given, taken = (sessions(SLEEPER.replace("SIG_IGN", "SIG_DFL")) for _ in range(2))
    with exclusive(tmp_path / ".lock") as lock:
        guard = Guard(lock, tmp_path / "broker")
        guard.add(given)
        guard.add(taken)
        guard.remove(taken)
        guard.end()
    assert not any(session_members(given))
    assert any(session_members(taken))


COMMAND = """
import signal, subprocess, sys
from pathlib import Path
from kafka_pipeline.admin.dev.guard import Guard
from kafka_pipeline.common.process.locks import exclusive
folder = Path(sys.argv[1])
with exclusive(folder / ".lock") as lock:
    guard = Guard(lock, folder / "broker")
    guard.add(int(sys.argv[2]))
    print("ready", flush=True)
    signal.pause()
"""


def test_kill_9_of_the_command_ends_its_daemons_and_frees_the_folder_then(
    tmp_path: Path, sessions: Callable[[str], int]
) -> None:
    daemon = sessions(SLEEPER.replace("SIG_IGN", "SIG_DFL"))
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path), str(daemon)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ready\n"
        with pytest.raises(BlockingIOError), exclusive(tmp_path / ".lock", wait=False):
            pass
        command.send_signal(signal.SIGKILL)
    # Free as soon as the guard has ended, and that is when all is gone.
    with exclusive(tmp_path / ".lock"):
        assert not any(session_members(daemon))


def test_the_config_that_is_written_says_who_writes_it(alone: Project) -> None:
    write_config(alone, PLACES)
    assert alone.config_file.read_text().startswith("# Made by `pipeline dev`")
    assert load_config(alone.config_file).job_name == "dev"
