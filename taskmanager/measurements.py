"""The measurements of workers, for the metrics of their TaskManager."""

from __future__ import annotations

from threading import Lock

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.channel_messages import Measured, TaskTimes


class Measurements:
    """The last measurements of each PipelineThread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._resident_bytes: dict[int, int] = {}
        self._times: dict[tuple[int, TaskId], TaskTimes] = {}

    def add(self, thread: int, measured: Measured) -> None:
        """Add the values that have changed since the worker's last message."""
        with self._lock:
            self._resident_bytes[thread] = measured.resident_bytes
            self._times |= {(thread, task): times for task, times in measured.tasks.items()}

    def forget_task(self, thread: int, task: TaskId) -> None:
        """Drop the times of a task that a thread has closed."""
        with self._lock:
            self._times.pop((thread, task), None)

    def forget_thread(self, thread: int) -> None:
        """Drop all measurements of a worker that has ended."""
        with self._lock:
            self._resident_bytes.pop(thread, None)
            self._times = {key: times for key, times in self._times.items() if key[0] != thread}

    @property
    def resident_bytes(self) -> dict[int, int]:
        """The memory of the workers that have reported it, by thread."""
        with self._lock:
            return {thread: size for thread, size in self._resident_bytes.items() if size}

    def times(self, thread: int, task: TaskId) -> TaskTimes | None:
        """Return the times of a task, `None` until its thread has reported them."""
        with self._lock:
            return self._times.get((thread, task))
