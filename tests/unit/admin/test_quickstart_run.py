"""When the quickstart can be interrupted; no process is started here."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table

from kafka_pipeline.admin.broker.properties import BrokerNode
from kafka_pipeline.admin.quickstart import local_run
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.quickstart.local_job import LocalJob
from kafka_pipeline.admin.quickstart.local_run import CheckedRun, RunOptions, run_checked
from kafka_pipeline.admin.quickstart.verdict import Checked
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.common.errors import PipelineError


class Steps:
    """Replaces everything that a run does; records the steps, and can act at one of them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.interrupted: set[str] = set()
        self.problems: list[str] = []

    def at(self, step: str) -> None:
        self.done.append(step)
        if step in self.interrupted:
            signal.raise_signal(signal.SIGINT)
        if step in self.errors:
            raise self.errors[step]


class FakeBroker:
    steps: Steps
    bootstrap_servers = directory = "here"
    nodes = (BrokerNode(1, 9092, 9093),)

    def __init__(self, _folder: Path, *, is_short_lived: bool) -> None:
        pass

    def start(self) -> None:
        self.steps.at("broker starts")

    def stop(self) -> None:
        self.steps.at("broker stops")
        self.steps.done.append("broker stopped")


class FakeGuard:
    steps: Steps

    def __init__(self, lock: int, broker_dir: object) -> None:
        self.steps.done.append(f"guard knows {broker_dir}")

    def add(self, session: int) -> None:
        self.steps.done.append(f"guard knows {session}")

    def end(self) -> None:
        self.steps.done.append("guard ends")


class FakeDaemon:
    name = "daemon"
    pid = 7
    exit_code: int | None = 0

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def start(self, _signals: Signals) -> None:
        self._steps.at("daemon starts")

    def terminate(self) -> None:
        pass

    def wait(self, _timeout_s: float) -> bool:
        self._steps.at("daemon stops")
        return True

    def end(self) -> None:
        self._steps.done.append("daemon stopped")


class FakeDisplay:
    def event(self, _text: str, _style: str = "") -> None:
        pass

    def text(self, _content: object) -> None:
        pass

    def finish(self) -> None:
        pass


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Steps]:
    steps = Steps()

    def follow(*_: object) -> None:
        steps.at("records flow")

    for each in (FakeBroker, FakeGuard):
        monkeypatch.setattr(each, "steps", steps, raising=False)
    monkeypatch.setattr(local_run, "Guard", FakeGuard)
    monkeypatch.setattr(local_run, "LocalCluster", FakeBroker)
    monkeypatch.setattr(local_run, "follow", follow)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield steps
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(steps: Steps, *, keep: bool = False) -> bool:
    signals = Signals()
    signals.install()

    def check() -> Checked:
        steps.at("results are read")
        return Checked([], Table(), steps.problems, "RIGHT")

    job = LocalJob(None, None, FakeDaemon(steps), [])  # type: ignore[arg-type]
    work = CheckedRun(job, {}, 0, 0, lambda _: 0, check)
    display: Display = FakeDisplay()  # type: ignore[assignment]
    return run_checked("test", lambda *_: work, RunOptions(keep=keep), display, signals)


CLEANED_UP = ["broker stops", "broker stopped", "guard ends"]


def test_a_run_stops_what_it_started(steps: Steps) -> None:
    assert run(steps)
    assert steps.done == [
        "guard knows here",
        "broker starts",
        "daemon starts",
        "guard knows 7",
        "records flow",
        "daemon stops",
        "daemon stopped",
        "results are read",
        *CLEANED_UP,
    ]


def test_wrong_results_are_not_right_and_their_folder_stays(steps: Steps, tmp_path: Path) -> None:
    steps.problems = ["outputs missing: 1"]

    assert not run(steps)
    assert len(list(tmp_path.glob("kafka-pipeline-test-*"))) == 1


@pytest.mark.parametrize(
    "step", ["daemon starts", "records flow", "daemon stops", "results are read"]
)
def test_it_can_be_interrupted_until_the_verdict(steps: Steps, step: str) -> None:
    steps.interrupted = {step}

    with pytest.raises(Interrupted):
        run(steps)

    assert "daemon stopped" in steps.done
    assert steps.done[-3:] == CLEANED_UP


def test_a_kafka_to_keep_is_not_stopped_by_the_guard_either(steps: Steps) -> None:
    assert run(steps, keep=True)
    assert steps.done[0] == "guard knows None"
    assert steps.done[-2:] == ["results are read", "guard ends"]


def test_nothing_interrupts_the_stop_of_the_broker(steps: Steps) -> None:
    steps.interrupted = {"broker stops"}

    assert run(steps)
    assert steps.done[-3:] == CLEANED_UP


def test_nothing_interrupts_the_cleaning_up_after_an_error(steps: Steps) -> None:
    steps.errors = {"records flow": PipelineError("a daemon died")}
    steps.interrupted = {"daemon stops", "broker stops"}

    with pytest.raises(PipelineError, match="a daemon died"):
        run(steps)

    assert steps.done[-5:] == ["daemon stops", "daemon stopped", *CLEANED_UP]
