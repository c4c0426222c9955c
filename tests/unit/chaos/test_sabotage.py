from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.catalog import faults
from tests.chaos.sabotage import SIGN, VARIABLE, sabotages
from tests.tiers import long_but_the_first

ROOT = Path(__file__).parents[3]
INSTALL_ALL = (
    "from tests.chaos.sabotage import sabotages; [s.install() for s in sabotages().values()]"
)
SHOW = """
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.taskmanager.task_stores import TaskStores

for function in (TaskProducer.__init__, GuardedProducer.send_offsets, TaskStores.restore):
    if hasattr(function, "__wrapped__"):
        print(function.__qualname__)
"""

START_AGAIN = """
import sys
from pathlib import Path

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.task_stores import TaskStores

text = serdes.string
builders = [
    stores.window("W", text, text, retention_ms=10, window_size_ms=5, logged=False),
    stores.key_value("K", text, text, logged=False),
]
opened = TaskStores(builders, {}, StoreResources())
opened.open(Path(sys.argv[1]), {}, {})
windows, keys = map(opened.build, builders)
windows.put("a", "in a window", 1)
keys.put("a", "in no window")
opened.commit({})
opened.restore(0, None, None, None)
print(windows.fetch_window("a", 1), keys.get("a"), sep=", ")
"""
"""Stores that nobody logs are not read from Kafka, so that this needs none."""


def run(code: str, broken: str = "", *args: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that starts as a TaskManager of the harness does."""
    path = os.pathsep.join((str(ROOT / "tests/chaos/clock"), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": path, VARIABLE: broken}
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("name", sabotages())
def test_each_sabotage_names_faults_that_exist(name: str) -> None:
    assert sabotages()[name].faults
    assert set(sabotages()[name].faults) <= faults().keys()


def test_everything_that_a_sabotage_replaces_is_there() -> None:
    done = run(INSTALL_ALL)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("broken", "replaced"),
    long_but_the_first(
        [
            ("random-ids", "TaskProducer.__init__"),
            ("", ""),
            ("no-transaction", "GuardedProducer.send_offsets"),
            ("lost-windows", "TaskStores.restore"),
            ("short-restore", ""),
        ]
    ),
)
def test_a_process_has_the_sabotage_that_its_environment_names(broken: str, replaced: str) -> None:
    done = run(SHOW, broken)
    assert (done.stdout.strip(), done.stderr) == (replaced, "")


@pytest.mark.parametrize(
    ("broken", "left", "signs"),
    [("", "in a window, in no window", 0), ("lost-windows", "None, in no window", 1)],
)
def test_lost_windows_empties_the_window_stores_and_no_others(
    broken: str, left: str, signs: int, tmp_path: Path
) -> None:
    done = run(START_AGAIN, broken, str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, left), done.stderr
    assert done.stderr.count(SIGN) == signs
