"""Runs a backfill: reads, processes stage by stage, writes; each step resumes where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
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

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.backfill import tasks as bounded
from kafka_pipeline.streams.backfill.files import ReadFile, WriteFile, chunks_of
from kafka_pipeline.streams.backfill.kafka import ReadPartition, WritePartition
from kafka_pipeline.streams.backfill.outputs import runs_of, topics_of
from kafka_pipeline.streams.backfill.places import Files, TopicRange, are_nested, offsets_of
from kafka_pipeline.streams.backfill.plan import BackfillPlan, target_specs
from kafka_pipeline.streams.backfill.stage import Input, StageTask, Topics
from kafka_pipeline.streams.backfill.tasks import BackfillTask, Done, Failed, Workspace
from kafka_pipeline.streams.backfill.work import Work, opened
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.units import valued
from kafka_pipeline.streams.sql.spec import Queries

_LOOK_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a backfill over all of its runs; `written` is by topic."""

    read: int
    written: Mapping[str, int]
    skipped: int
    dead_letters: int
    dropped: int


def default_work(plan: BackfillPlan) -> Path:
    """Return the default work folder: next to the target folder, or in `state_dir`."""
    if isinstance(plan.target, Path):
        return plan.target.with_name(f"{plan.target.name}.backfill")
    job = plan.config.job_name or "job"
    return plan.config.state_dir / f"backfill_{job}_{plan.target}"


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


def run_backfill(
    plan: BackfillPlan, work: Path, console: Console, start_jobs: Callable[[Config], Jobs]
) -> Result:
    """Do all that is not done yet and show the progress; Spark starts if anything is left.

    Raises `ConfigError` if the work folder belongs to another backfill or the input is wrong,
    `PipelineError` if a processor rejects a record under `on_error: fail`, and `UnavailableError`
    if Spark, Kafka or a folder cannot be used. Finished work is kept then.
    """
    # Executors have their own current folder.
    work = work.absolute()
    _require_apart(work, plan)
    target = plan.target if isinstance(plan.target, Path) else None
    with _translated(), opened(work, plan.identity, partial(_ranges, plan), target) as place:
        if place.result is not None:
            text = f"done before; remove {work} to do it again"
            console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
            return Result(**place.result)
        jobs = start_jobs(plan.config)
        try:
            with _progress(console) as progress:
                result = _Backfill(plan, place, jobs, progress).run()
        finally:
            jobs.stop()
        place.finish({name: getattr(result, name) for name in Result.__slots__})
        return result


def _require_apart(work: Path, plan: BackfillPlan) -> None:
    """Refuse a work folder that overlaps input or target: its folders are deleted at the end."""
    read = [where.path for where in plan.sources.values() if isinstance(where, Files)]
    for place in (plan.target, *read):
        if isinstance(place, Path) and are_nested(work, place):
            raise ConfigError(
                f"the work folder {work} and {place} must not lie within each other: give another "
                "one as --work"
            )


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of Kafka and of disks into errors for users."""
    try:
        yield
    except EngineError as error:
        raise UnavailableError(f"Kafka refuses: {error}") from error
    except OSError as error:
        raise UnavailableError(f"the folders of the backfill cannot be used: {error}") from error


def _ranges(plan: BackfillPlan) -> dict[str, list[list[int]]]:
    """Return the offsets to read of each topic, up to its current end offsets."""
    return {
        topic: [list(each) for each in offsets_of(where, plan.num_partitions(topic), admin)]
        for topic, where in plan.sources.items()
        if isinstance(where, TopicRange)
        for admin in [Admin(plan.config)]
    }


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
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


class _Backfill:
    """One run of a backfill; `_folders` has the folders of all finished tasks."""

    def __init__(self, plan: BackfillPlan, work: Work, jobs: Jobs, progress: Progress) -> None:
        self._plan = plan
        # On a cluster, the content of python_path is shipped; its folders exist on this host only.
        config = plan.config
        self._config = config if config.spark.is_local else replace(config, python_path=())
        self._work = work
        self._jobs = jobs
        self._progress = progress
        self._stopping = Event()
        self._folders: list[Path] = []
        self._written: dict[str, int] = {}
        """How many records each topic has, including those that were read."""

    def run(self) -> Result:
        read = self._read()
        limits = self._prepare_target()
        topics = Topics(self._plan.config.parallelism, self._plan.pipeline.partitions, limits)
        totals = Done()
        for stage in self._plan.stages:
            for done in self._process(stage, topics):
                totals.skipped += done.skipped
                totals.dead_letters += done.dead_letters
                totals.dropped += done.dropped
        written = self._write(topics, limits)
        return Result(read, written, totals.skipped, totals.dead_letters, totals.dropped)

    def _read(self) -> int:
        records = 0
        for topic, where in self._plan.sources.items():
            folder = self._work.stage(f"read-{topic}")
            tasks: list[BackfillTask]
            total: int | None
            if isinstance(where, Files):
                chunks = chunks_of(self._plan.files[topic])
                count = self._plan.num_partitions(topic)
                tasks = [
                    ReadFile(folder / f"{number:06}", chunk, topic, count)
                    for number, chunk in enumerate(chunks)
                ]
                sizes = [chunk.records for chunk in chunks]
                total = None if None in sizes else sum(size or 0 for size in sizes)
            else:
                ranges = self._work.ranges[topic]
                tasks = [
                    ReadPartition(
                        folder / f"{n:06}", self._config, where.name, topic, n, start, end
                    )
                    for n, (start, end) in enumerate(ranges)
                ]
                total = sum(end - start for start, end in ranges)
            records += sum(done.records_in for done in self._do(f"read {topic}", tasks, total))
        return records

    def _prepare_target(self) -> dict[str, TopicLimits]:
        """Create missing topics; return what each topic of the results accepts."""
        names = self._plan.target_topics
        if not names:
            return {}
        admin = Admin(self._plan.config)
        admin.ensure_topics(target_specs(self._plan))
        limits = admin.topic_limits([*names.values()])
        return {topic: limits[name] for topic, name in names.items()}

    def _process(self, stage: Sequence[ProcessorReplica], topics: Topics) -> list[Done]:
        # Here, since executors on other hosts have neither these variables nor these files.
        stage = [valued(replica, HostReferences(self._config.secrets)) for replica in stage]
        name = stage[0].name
        followed = {
            topic: tuple(self._input(topic, n) for n in range(topics.num_partitions(topic)))
            for topic in stage[0].spec.global_stores.values()
        }
        tasks = [
            StageTask(
                folder=self._work.stage(f"stage-{name}") / str(replica.task),
                config=self._config,
                replica=replica,
                inputs={
                    topic: self._input(topic, replica.task.partition) for topic in replica.in_topics
                },
                followed=followed,
                topics=topics,
                now_ms=self._work.started_ms,
            )
            for replica in stage
        ]
        inputs = {topic for replica in stage for topic in replica.in_topics}
        total = sum(self._written.get(topic, 0) for topic in inputs)
        if kind_of(stage[0].spec).needs_spark:
            queries = self._jobs.queries()
            here = [_Here(task, queries, self._stopping) for task in tasks]
            return self._do(name, here, total)
        return self._do(name, tasks, total)

    def _write(self, topics: Topics, limits: Mapping[str, TopicLimits]) -> dict[str, int]:
        """Write all results; return how many records each topic got."""
        plan, folder = self._plan, self._work.stage("write")
        stages = [path for path in self._folders if path.parent.name.startswith("stage-")]
        # A user's function may choose topics that the pipeline does not name.
        others = sorted(topics_of(stages) - {*plan.results, *plan.arcs})
        if others and plan.target_topics:
            raise PipelineError(
                f"the pipeline has also written {', '.join(others)}, which it does not name: use "
                "--to with a folder"
            )
        tasks: list[BackfillTask] = []
        for topic in (*plan.results, *others):
            for number in range(topics.num_partitions(topic)):
                runs = tuple(runs_of(stages, topic, number))
                path = folder / f"{topic}-{number}"
                if isinstance(plan.target, Path):
                    file = plan.target / topic / f"{number}.parquet"
                    tasks.append(WriteFile(path, runs, topic, number, file))
                else:
                    name = plan.target_topics[topic]
                    group = plan.config.topic_names.backfill_group(self._work.id)
                    limit = limits[topic].size_bytes
                    tasks.append(
                        WritePartition(path, self._config, runs, name, number, group, limit)
                    )
        total = sum(self._written.get(topic, 0) for topic in (*plan.results, *others))
        counts: dict[str, int] = {}
        for done in self._do("write", tasks, total):
            for topic, count in done.written.items():
                counts[topic] = counts.get(topic, 0) + count
        for task in tasks:
            if isinstance(task, WriteFile) and not task.target.is_file():
                raise ConfigError(
                    f"{task.target} is not there, though its task is done: --to must be on a "
                    "storage that all executors of Spark see under the same path"
                )
        return counts

    def _input(self, topic: str, partition: int) -> Input:
        is_topic = isinstance(self._plan.sources.get(topic), TopicRange)
        return Input(tuple(runs_of(self._folders, topic, partition)), keeps_offsets=is_topic)

    def _do(self, name: str, tasks: Sequence[BackfillTask], total: int | None) -> list[Done]:
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
                self._written[topic] = self._written.get(topic, 0) + count
        self._folders += [task.folder for task in tasks]
        return done

    def _watched(
        self, bar: TaskID, name: str, tasks: Sequence[BackfillTask], before: int
    ) -> list[Done | Failed]:
        run: Callable[[], list[Done | Failed]]
        body = partial(bounded.run, with_values=self._plan.config.log_record_values)
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
