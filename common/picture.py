"""Puts together what a TaskManager process runs, from full reports and what adds to them."""

from __future__ import annotations

from common.messages import Report
from common.nodes import TaskId
from common.status import TaskStatus


class Picture:
    """The tasks of one TaskManager process as its reports describe them.

    Whoever has missed a full report cannot read those that add to it. The picture then stays as it
    was, and is that of `beat`, until the next full one.
    """

    def __init__(self) -> None:
        self.beat = -1
        """Of the report that it shows; -1 before the first."""
        self.tasks: dict[TaskId, TaskStatus] = {}
        self._base = -1

    def take(self, report: Report) -> bool:
        """Take a report of this process in.

        Returns False, and changes nothing, if it is not newer or adds to a report that is missing.
        """
        if report.beat <= self.beat or not self.can_read(report):
            return False
        if report.base is None:
            self._base = report.beat
            self.tasks = {status.task: status for status in report.tasks}
        else:
            self.tasks.update([(status.task, status) for status in report.tasks])
            for task in report.closed:
                self.tasks.pop(task, None)
        self.beat = report.beat
        return True

    def can_read(self, report: Report) -> bool:
        """Whether a report is full, or adds to the last full one that was taken in."""
        return report.base is None or report.base == self._base
