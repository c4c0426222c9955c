"""Assembles the tasks that a TaskManager process runs, from its full and partial reports."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.protocol.messages import Report
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId


class ReportedTasks:
    """The tasks of one TaskManager process, as its reports describe them.

    A reader that has missed a full report cannot read the reports that add to it. The tasks then
    stay as they were at `beat`, until the next full report.
    """

    def __init__(self) -> None:
        self.beat = -1
        """The number of the newest report that was taken; -1 before the first one."""
        self.tasks: dict[TaskId, TaskStatus] = {}
        self.code: Mapping[str, str] = {}
        """The fingerprints of the user's modules, by module."""
        self._base = -1

    def take(self, report: Report) -> bool:
        """Add a report of this process.

        Returns False, and changes nothing, if it is not newer, or adds to a report that was missed.
        """
        if report.beat <= self.beat or not self.can_read(report):
            return False
        if report.base is None:
            self._base, self.code = report.beat, report.code
            self.tasks = {status.task: status for status in report.tasks}
        else:
            self.tasks.update([(status.task, status) for status in report.tasks])
            for task in report.closed:
                self.tasks.pop(task, None)
        self.beat = report.beat
        return True

    def can_read(self, report: Report) -> bool:
        """Whether a report is full, or adds to the last full one that was taken."""
        return report.base is None or report.base == self._base
