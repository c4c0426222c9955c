"""The way of a record through the code is the one that docs/architecture.md lists."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import kafka_pipeline
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.status import TaskState
from tests.tasks import Job, Record, Thread, step_until

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `([\w.]+)` \| `([\w/.]+)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)
_PACKAGE = f"{Path(kafka_pipeline.__file__).parent}/"
_RECORDS = 50
_ASIDE = (
    "PipelineThread._report",
    "PipelineThread._check",
    "TaskOperations.update_global_stores",
)
"""What the loop does now and then, whether or not there are records."""


class Trace:
    """Which functions of the engine are called, on all threads that begin after this."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """The name and the file of each."""
        self.is_on = False
        self._aside: FrameType | None = None
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self._aside is not None and threading.current_thread() is threading.main_thread():
            if frame is self._aside and event == "return":
                self._aside = None
            return
        if event == "call" and code.co_qualname in _ASIDE:
            self._aside = frame
        elif self.is_on and event == "call" and code.co_filename.startswith(_PACKAGE):
            self.calls.append((code.co_qualname, code.co_filename.removeprefix(_PACKAGE)))

    def end(self) -> None:
        """Stop."""
        sys.setprofile(None)
        threading.setprofile(None)


def way_of_records(folder: Path, bootstrap_servers: str) -> list[tuple[str, str]]:
    """Return the calls that are made while records go through a task that runs already."""
    trace, job = Trace(), Job(folder, bootstrap_servers)
    thread = Thread(job, 0)
    records = [Record(b"key", b"value", n) for n in range(_RECORDS)]
    try:
        thread.assign(job.replica(ForwardSpec()))
        step_until(lambda: thread.state() is TaskState.RUNNING, thread)
        for done in range(_RECORDS, 3 * _RECORDS, _RECORDS):
            trace.is_on = done > _RECORDS
            job.write(*records)
            step_until(lambda done=done: (job.committed() or 0) >= done, thread)  # type: ignore[misc]
    finally:
        trace.end()
        thread.close()
        job.close()
    return trace.calls


def test_the_map_shows_the_way_of_a_record(tmp_path: Path, bootstrap_servers: str) -> None:
    rows = _ROW.findall((_ROOT / "docs/architecture.md").read_text())
    assert len(rows) > 10
    calls = way_of_records(tmp_path, bootstrap_servers)
    # From the round of the loop in which the records come.
    steps = [at for at, (name, _) in enumerate(calls) if name == "PipelineThread.step"]
    add = [name for name, _ in calls].index("Task.add")
    calls = calls[max(at for at in steps if at < add) :]
    at = 0
    for name, file, _ in rows:
        assert (name, file) in calls[at:], f"{name} does not come next"
        at = calls.index((name, file), at)
    calls = calls[: at + 1]
    listed = {file for _, file, _ in rows}
    helpers = {file for _, _, cell in rows for file in re.findall(r"`([^`]+)`", cell)}
    assert not listed & helpers
    entered = {file for _, file in calls}
    assert sorted(entered - listed - helpers) == []
