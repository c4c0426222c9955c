"""The measurements of workers, for the metrics of their TaskManager."""

from __future__ import annotations

from threading import Lock

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.channel_messages import Measured, TaskMeasures


class Measurements:
    """The last measurements of each PipelineThread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._resident_bytes: dict[int, int] = {}
        self._tasks: dict[tuple[int, TaskId], TaskMeasures] = {}

    def add(self, thread: int, measured: Measured) -> None:
        """Add the values that have changed since the worker's last message."""
        with self._lock:
            self._resident_bytes[thread] = measured.resident_bytes
            self._tasks |= {(thread, task): of for task, of in measured.tasks.items()}

    def forget_task(self, thread: int, task: TaskId) -> None:
        """Drop the measures of a task that a thread has closed."""
        with self._lock:
            self._tasks.pop((thread, task), None)

    def forget_thread(self, thread: int) -> None:
        """Drop all measurements of a worker that has ended."""
        with self._lock:
            self._resident_bytes.pop(thread, None)
            self._tasks = {key: of for key, of in self._tasks.items() if key[0] != thread}

    @property
    def resident_bytes(self) -> dict[int, int]:
        """The memory of the workers that have reported it, by thread."""
        with self._lock:
            return {thread: size for thread, size in self._resident_bytes.items() if size}

    def of(self, thread: int, task: TaskId) -> TaskMeasures | None:
        """Return the measures of a task, `None` until its thread has reported them."""
        with self._lock:
            return self._tasks.get((thread, task))
