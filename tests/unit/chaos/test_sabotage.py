from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.catalog import faults
from tests.chaos.sabotage import VARIABLE, sabotages

ROOT = Path(__file__).parents[3]
INSTALL_ALL = (
    "from tests.chaos.sabotage import sabotages; [s.install() for s in sabotages().values()]"
)
SHOW = (
    "from common.kafka.guarded_producer import GuardedProducer;"
    "from common.kafka.task_producer import TaskProducer;"
    "print(hasattr({}, '__wrapped__'))"
)


def run(code: str, broken: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a Python that starts as a TaskManager of the harness does."""
    path = os.pathsep.join((str(ROOT / "tests/chaos/clock"), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": path, VARIABLE: broken}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("name", sabotages())
def test_each_sabotage_names_faults_that_exist(name: str) -> None:
    assert sabotages()[name].faults
    assert set(sabotages()[name].faults) <= faults().keys()


def test_everything_that_a_sabotage_replaces_is_there() -> None:
    done = run(INSTALL_ALL)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("broken", "function", "is_replaced"),
    [
        ("random-ids", "TaskProducer.__init__", True),
        ("random-ids", "GuardedProducer.send_offsets", False),
        ("no-transaction", "GuardedProducer.send_offsets", True),
        ("", "TaskProducer.__init__", False),
    ],
)
def test_a_process_has_the_sabotage_that_its_environment_names(
    broken: str, function: str, is_replaced: bool
) -> None:
    done = run(SHOW.format(function), broken)
    assert (done.stdout.strip(), done.stderr) == (str(is_replaced), "")
