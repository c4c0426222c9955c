"""A test's faults: each happens once, where it is wanted, and never in production."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]

REACH = (
    "from kafka_pipeline.common.process.fault_points import reach; "
    "print('there', flush=True); reach('here');"
)


@contextmanager
def reaching(
    directory: Path | None, then: str = "print('through', flush=True)", before: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Run a process that reaches the point `here`, with more of its program around that."""
    environment = {k: v for k, v in os.environ.items() if k != "PIPELINE_FAULT_DIR"}
    if directory is not None:
        environment["PIPELINE_FAULT_DIR"] = str(directory)
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}{REACH}{then}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended instead: {status}"
    assert os.WSTOPSIG(status) == signal.SIGSTOP


def read(process: subprocess.Popen[str]) -> tuple[str, str]:
    return process.communicate()


def test_without_a_directory_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("stop")
    with reaching(None) as process:
        assert read(process) == ("there\nthrough\n", "")
    assert (tmp_path / "here").exists()


def test_a_fault_at_another_point_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("stop")
    with reaching(tmp_path) as process:
        assert read(process) == ("there\nthrough\n", "")
    assert (tmp_path / "elsewhere").exists()


def test_stop_freezes_the_process_at_the_point(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("stop\n")
    with reaching(tmp_path) as process:
        wait_until_stopped(process)
        process.send_signal(signal.SIGCONT)
        assert read(process) == ("there\nthrough\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["here.taken"]


def test_a_frozen_process_has_not_gone_past_the_point(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("stop")
    with reaching(tmp_path) as process:
        wait_until_stopped(process)
        process.kill()
        assert read(process) == ("there\n", "")


def test_stop_after_freezes_the_process_in_a_while(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("stop-after 1.5")
    with reaching(tmp_path, "import time; time.sleep(60)") as process:
        wait_until_stopped(process)


def test_stop_after_returns_at_once_and_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("stop-after 3600000")
    with reaching(tmp_path) as process:
        assert read(process) == ("there\nthrough\n", "")
        assert process.returncode == 0


def test_sleep_waits_at_the_point(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("sleep 0.05")
    sleep = "import time; started = time.monotonic();"
    with reaching(tmp_path, "print(time.monotonic() - started >= 0.05)", before=sleep) as process:
        assert read(process) == ("there\nTrue\n", "")


def test_of_many_processes_one_suffers_the_fault(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("no such fault")
    racers = "import os; children = [os.fork() for _ in range(4)];"
    script = f"{racers} from kafka_pipeline.common.process.fault_points import reach; reach('here')"
    environment = os.environ | {"PIPELINE_FAULT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stderr.count("Traceback") == 1


def test_an_unknown_fault_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("explode now")
    with reaching(tmp_path) as process:
        output, errors = read(process)
    assert output == "there\n"
    assert "ValueError: not a fault: 'explode now'" in errors
