"""Which tasks of a PipelineThread commit at the same time, and which wait for them."""

from __future__ import annotations

from kafka_pipeline.common.tasks import TaskId

TASKS_PER_COMMIT = 4
"""Of this many tasks of a thread, one commits at a time. Where the brokers or the cores are busy,
commits at the same time only delay each other, and readers wait for the slowest transaction."""
LEAST_COMMIT_DURATIONS = 3
"""The shortest time between commits of a task at the end of its input, as a multiple of how long
the shorter of its last two took. A single long one changes nothing."""
LONG_COMMIT_MS = 1000
"""A commit that takes longer no longer counts: it may need a broker that others do not need. A task
with user code that has waited for longer takes no more records before its own commit."""


def longest_commit_ms(transaction_timeout_ms: int) -> int:
    """Return how long a commit or the turn before it may take; librdkafka hangs if it takes longer.

    A transaction is lost when it is open for longer than its timeout, and a commit that began just
    before may block for as long again. The margin covers closing stores and clients.
    """
    return 2 * transaction_timeout_ms + 10_000


class CommitQueue:
    """The commits of a thread that take place, and the tasks that wait for them, in order."""

    def __init__(self) -> None:
        self._running: dict[TaskId, int] = {}
        """When the commits began that others wait for, the turns included that belong to them."""
        self._waiting: dict[TaskId, int] = {}
        """Since when the tasks have waited whose commits are due."""

    def has_room(self, tasks: int, now_ms: int) -> bool:
        """Return whether another commit may begin on a thread with so many tasks."""
        for task, began_ms in list(self._running.items()):
            if now_ms - began_ms < LONG_COMMIT_MS:
                break
            del self._running[task]
        return len(self._running) < max(1, -(-tasks // TASKS_PER_COMMIT))

    def wait(self, task: TaskId, now_ms: int) -> None:
        """Add a task whose commit is due; one that waits already keeps its place."""
        self._waiting.setdefault(task, now_ms)

    def begin(self, task: TaskId, now_ms: int) -> None:
        """A commit begins, or the turn before it."""
        self.end(task)
        self._running[task] = now_ms

    def end(self, task: TaskId) -> None:
        """A task has committed, or has nothing to commit any more."""
        self._waiting.pop(task, None)
        self._running.pop(task, None)

    @property
    def waiting(self) -> list[TaskId]:
        """The tasks that wait, the first one first."""
        return list(self._waiting)

    def is_waiting(self, task: TaskId) -> bool:
        """Whether a task waits for others."""
        return task in self._waiting

    def has_begun(self, task: TaskId) -> bool:
        """Whether a task commits, or takes its turn before that."""
        return task in self._running

    def holds_up(self, task: TaskId, now_ms: int, *, at_once: bool) -> bool:
        """Whether a task takes no records before its commit.

        Without `at_once`, it does so until it has waited for long: turns that went on for longer
        could coincide with all chances of the commit.
        """
        since_ms = self._waiting.get(task)
        return since_ms is not None and (at_once or now_ms - since_ms >= LONG_COMMIT_MS)

    @property
    def next_due_ms(self) -> int | None:
        """When a commit becomes a long one that others wait for; `None` if none waits."""
        if not self._waiting or not self._running:
            return None
        return next(iter(self._running.values())) + LONG_COMMIT_MS
