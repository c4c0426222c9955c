"""Runs a backfill: reads, processes stage by stage, writes; each step resumes where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.control.topics import control_topic
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.backfill.files import ReadFile, WriteFile, chunks_of
from kafka_pipeline.streams.backfill.kafka import ReadPartition, WritePartition
from kafka_pipeline.streams.backfill.outputs import runs_of, topics_of
from kafka_pipeline.streams.backfill.places import Files, TopicRange, are_nested, offsets_of
from kafka_pipeline.streams.backfill.plan import BackfillPlan, target_specs
from kafka_pipeline.streams.backfill.runner import Jobs, Runner, shown_progress
from kafka_pipeline.streams.backfill.stage import Input, StageTask, Topics
from kafka_pipeline.streams.backfill.tasks import BackfillTask, Done
from kafka_pipeline.streams.backfill.work import Work, opened, translated
from kafka_pipeline.streams.pipeline.units import valued


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
    with translated(), opened(work, plan.identity, partial(_ranges, plan), target) as place:
        if place.result is not None:
            text = f"done before; remove {work} to do it again"
            console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
            return Result(**place.result)
        jobs = start_jobs(plan.config)
        try:
            with shown_progress(console) as progress:
                values = plan.config.log_record_values
                runner = Runner(jobs, progress, with_values=values)
                result = _Backfill(plan, place, runner).run()
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


def _ranges(plan: BackfillPlan) -> dict[str, list[list[int]]]:
    """Return the offsets to read of each topic, up to its current end offsets."""
    return {
        topic: [list(each) for each in offsets_of(where, plan.num_partitions(topic), admin)]
        for topic, where in plan.sources.items()
        if isinstance(where, TopicRange)
        for admin in [Admin(plan.config)]
    }


class _Backfill:
    """One run of a backfill."""

    def __init__(self, plan: BackfillPlan, work: Work, runner: Runner) -> None:
        self._plan = plan
        self._config = plan.config.for_executors
        self._work = work
        self._runner = runner

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
            records += sum(
                done.records_in for done in self._runner.do(f"read {topic}", tasks, total)
            )
        return records

    def _prepare_target(self) -> dict[str, TopicLimits]:
        """Create missing topics; return what each topic of the results accepts."""
        names = self._plan.target_topics
        if not names:
            return {}
        admin = Admin(self._plan.config)
        # The writers of a job that has never run need the partition that proves their progress.
        proof, _ = self._plan.config.topic_names.coordinator_proof
        specs = [*target_specs(self._plan), control_topic(self._plan.config, proof)]
        admin.ensure_topics(specs)
        limits = admin.topic_limits([*names.values()])
        return {topic: limits[name] for topic, name in names.items()}

    def _process(self, stage: Sequence[ProcessorReplica], topics: Topics) -> list[Done]:
        # Here, since executors on other hosts have neither these variables nor these files.
        here, tables = HostReferences(self._config.secrets), self._config.tables
        stage = [valued(replica, here, tables) for replica in stage]
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
        total = sum(self._runner.written.get(topic, 0) for topic in inputs)
        return self._runner.do_stage(tasks, total)

    def _write(self, topics: Topics, limits: Mapping[str, TopicLimits]) -> dict[str, int]:
        """Write all results; return how many records each topic got."""
        plan, folder = self._plan, self._work.stage("write")
        stages = [path for path in self._runner.folders if path.parent.name.startswith("stage-")]
        # A user's function may choose topics that the pipeline does not name.
        others = sorted(topics_of(stages) - {*plan.results, *plan.arcs})
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
        total = sum(self._runner.written.get(topic, 0) for topic in (*plan.results, *others))
        counts: dict[str, int] = {}
        for done in self._runner.do("write", tasks, total):
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
        return self._runner.input(topic, partition, keeps_offsets=is_topic)
