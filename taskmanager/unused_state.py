"""Deletes the state of tasks that have been elsewhere for a week."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TOMBSTONES_KEPT_MS

LOOK_INTERVAL_S = 3600.0

logger = structlog.get_logger()


class UnusedState:
    """Deletes folders of stores that no task of a TaskManager has had open for a week.

    By then, Kafka may have forgotten which keys were deleted, so a store that lacks any record
    would be wiped. Kafka Streams has `state.cleanup.delay.ms` for that.

    Each worker looks once an hour, on a thread of its own. It touches the folders that are open in
    its process, so the others see that they are used. A folder that is old is deleted if it still
    is at the next look: the clock may have jumped, or the host may have slept.
    """

    def __init__(
        self,
        directory: Path,
        open_folders: Callable[[], Collection[Path]],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Look in the `directory` of a TaskManager's tasks, which need not exist yet."""
        self._directory = directory
        self._open_folders = open_folders
        self._now_s = now_s
        self._old: set[Path] = set()
        """The folders that were old at the last look."""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Look once an hour from now on, on another thread."""
        threading.Thread(target=self._run, name="unused-state", daemon=True).start()

    def close(self) -> None:
        """End after the look that is in progress; does not wait."""
        self._stopped.set()

    def look(self) -> None:
        """Touch the open folders, and delete those that are old for the second time."""
        for folder in self._open_folders():
            with suppress(OSError):
                os.utime(folder, (self._now_s(), self._now_s()))
        before, self._old = self._old, set(self._old_folders())
        for folder in before & self._old:
            try:
                shutil.rmtree(folder)
            except OSError as error:  # another worker may delete it at the same time
                logger.info("unused state cannot be deleted", reason=str(error))
                continue
            logger.info("deleted state that no task has used for a week", directory=str(folder))
            with suppress(OSError):  # the task has others
                folder.parent.rmdir()

    def _old_folders(self) -> Iterator[Path]:
        latest_s = self._now_s() - TOMBSTONES_KEPT_MS / 1000
        for task in filter(_is_of_a_task, _folders_in(self._directory)):
            for store in _folders_in(task):
                with suppress(OSError):
                    if store.stat().st_mtime < latest_s:
                        yield store

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            try:
                self.look()
            except Exception:
                logger.exception("unused state is not looked for")


def _folders_in(directory: Path) -> list[Path]:
    """Return the folders in a directory, without links."""
    try:
        return [each for each in directory.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []


def _is_of_a_task(folder: Path) -> bool:
    try:
        TaskId.parse(folder.name)
    except ValueError:
        return False
    return True
