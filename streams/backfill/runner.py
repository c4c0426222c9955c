"""Runs the tasks of a backfill that are not done yet, in parallel, and shows their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.streams.backfill import tasks as bounded
from kafka_pipeline.streams.backfill.outputs import runs_of
from kafka_pipeline.streams.backfill.stage import Input, StageTask
from kafka_pipeline.streams.backfill.tasks import BackfillTask, Done, Failed, Workspace
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.sql.spec import Queries

_LOOK_INTERVAL_S = 0.25


class Jobs(Protocol):
    """Runs tasks; see `BoundedJobs`."""

    @property
    def slots(self) -> int: ...
    def queries(self) -> Queries: ...
    def run(
        self,
        tasks: Sequence[BackfillTask],
        body: Callable[[BackfillTask], Done | Failed],
        description: str,
    ) -> list[Done | Failed]: ...
    def cancel(self) -> None: ...
    def stop(self) -> None: ...


@contextmanager
def shown_progress(console: Console) -> Iterator[Progress]:
    """Show a bar for each step of a backfill."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield progress


class Runner:
    """Runs tasks step by step; each step may read what the former ones wrote."""

    def __init__(self, jobs: Jobs, progress: Progress, *, with_values: bool) -> None:
        """Reasons of failures may quote records only `with_values`."""
        self._jobs = jobs
        self._progress = progress
        self._with_values = with_values
        self._stopping = Event()
        self.folders: list[Path] = []
        """The folders of all finished tasks."""
        self.written: dict[str, int] = {}
        """How many records each topic has, including those that were read."""

    def input(self, topic: str, partition: int, *, keeps_offsets: bool) -> Input:
        """Return what the finished tasks wrote for a partition."""
        return Input(tuple(runs_of(self.folders, topic, partition)), keeps_offsets)

    def do(self, name: str, tasks: Sequence[BackfillTask], total: int | None) -> list[Done]:
        """Run the tasks that are not done yet in parallel, and show their progress.

        Raises `ConfigError` if the work folder lacks something that tasks wrote.
        """
        bar = self._progress.add_task(name, total=total)
        before = [bounded.result_of(task.folder) for task in tasks]
        todo = [task for task, done in zip(tasks, before, strict=True) if done is None]
        outcomes = self._watched(bar, name, todo, sum(_size(d) for d in before if d is not None))
        done = bounded.require_done([*(d for d in before if d is not None), *outcomes])
        for task in tasks:
            bounded.require_runs(task.folder)
        size = sum(map(_size, done))
        self._progress.update(bar, total=size, completed=size)
        for each in done:
            for topic, count in each.written.items():
                self.written[topic] = self.written.get(topic, 0) + count
        self.folders += [task.folder for task in tasks]
        return done

    def do_stage(self, tasks: Sequence[StageTask], total: int | None) -> list[Done]:
        """Do the same with the tasks of a processor; queries run on Spark in this process."""
        replica = tasks[0].replica
        if not kind_of(replica.spec).needs_spark:
            return self.do(replica.name, tasks, total)
        queries = self._jobs.queries()
        here = [_Here(task, queries, self._stopping) for task in tasks]
        return self.do(replica.name, here, total)

    def _watched(
        self, bar: TaskID, name: str, tasks: Sequence[BackfillTask], before: int
    ) -> list[Done | Failed]:
        run: Callable[[], list[Done | Failed]]
        body = partial(bounded.run, with_values=self._with_values)
        if any(isinstance(task, _Here) for task in tasks):
            run = partial(_run_here, tasks, body, self._jobs.slots)
        else:
            run = partial(self._jobs.run, tasks, body, f"backfill · {name}")
        waiting = {task.folder for task in tasks}
        finished = before
        with ThreadPoolExecutor(1) as pool:
            job: Future[list[Done | Failed]] = pool.submit(run)
            try:
                while not wait([job], timeout=_LOOK_INTERVAL_S).done:
                    records = sum(map(bounded.progress_of, {path.parent for path in waiting}))
                    for path in list(waiting):
                        done = bounded.result_of(path)
                        if done is not None:
                            waiting.remove(path)
                            finished += _size(done)
                    self._progress.update(bar, completed=finished + records)
            except BaseException:
                self._stopping.set()
                self._jobs.cancel()
                raise
            return job.result()


def _size(done: Done) -> int:
    """Return the records that count as progress: those read, or for a writer those written."""
    return done.records_in or sum(done.written.values())


@dataclass(frozen=True, slots=True)
class _Here:
    """A stage's task whose queries run on the Spark session of this process."""

    task: StageTask
    queries: Queries
    stopping: Event

    @property
    def folder(self) -> Path:
        return self.task.folder

    def work(self, workspace: Workspace) -> Done:
        return self.task.work_with(_StoppableWorkspace(workspace.path, self.stopping), self.queries)


class _StoppableWorkspace(Workspace):
    """A workspace whose task ends when it next reports progress, once it is asked to stop."""

    def __init__(self, path: Path, stopping: Event) -> None:
        super().__init__(path)
        self._stopping = stopping

    def progress(self, records: int) -> None:
        if self._stopping.is_set():
            raise PipelineError("interrupted")
        super().progress(records)


def _run_here(
    tasks: Sequence[BackfillTask], body: Callable[[BackfillTask], Done | Failed], threads: int
) -> list[Done | Failed]:
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(pool.map(body, tasks))
