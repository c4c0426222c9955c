"""`pipeline rehearse` from the first process to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_pipeline.admin.daemons import Daemon, command_path, python_command
from kafka_pipeline.admin.dev.guard import Guard
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.rehearsal.place import ShadowPlace
from kafka_pipeline.admin.rehearsal.progress import Progress, published
from kafka_pipeline.admin.rehearsal.saving import read_ends
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.deploy import look_at, require_usable_state
from kafka_pipeline.deployment.desired_state import require_no_stop
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher, read_status
from kafka_pipeline.operations.rehearsal.comparer import Output, Side
from kafka_pipeline.operations.rehearsal.comparison import Comparison, Version
from kafka_pipeline.operations.rehearsal.publication import remove_publication
from kafka_pipeline.operations.rehearsal.report import Report
from kafka_pipeline.operations.rehearsal.shadow import (
    discard,
    make_sinks,
    outputs_of,
    shadow_pipeline,
)
from kafka_pipeline.operations.savepoints.job_stop import Say
from kafka_pipeline.operations.savepoints.manifest import Manifest, read_manifest
from kafka_pipeline.operations.savepoints.restore import fork

_RESTORE_TIMEOUT_S = 300.0
_START_TIMEOUT_S = 600.0
_LAST_TIMEOUT_S = 120.0
_LEAVE_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.1
_ERRORS = {each.exit_code: each for each in (PipelineError, ConfigError, UnavailableError)}


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """The user's options: for how long, and with which daemons."""

    seconds: float
    task_managers: int = 1
    threads: int = 2
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class _Shadow:
    """A shadow that was made, and what it was made of."""

    config: Config
    manifest: Manifest
    ends: dict[Partition, int]
    outputs: Sequence[Output]
    losses: Sequence[str]


class Rehearsal:
    """A rehearsal of a pipeline by a shadow of the job that runs."""

    def __init__(self, own_config: Path, live: Config, signals: Signals, say: Say) -> None:
        """Raises `UnavailableError` if Kafka does not answer, or if files cannot be written."""
        self._live = live
        self._signals = signals
        self._say = say
        self._place = ShadowPlace.of(own_config, live)
        self._is_begun = False
        self._admin: Admin = connected(live)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock of the rehearsals of this job in this folder.

        Raises `UnavailableError` if one still runs, or if it cannot be held.
        """
        self._place.make()
        try:
            with exclusive(self._place.lock_file, wait=False) as lock:
                yield lock
        except BlockingIOError as error:
            raise UnavailableError(
                f"a rehearsal of this job runs already from {self._place.own_config.parent}, or "
                "its processes are still ending"
            ) from error

    def discard(self) -> list[str]:
        """Delete what rehearsals have left and published; return the topics.

        Raises `UnavailableError` if daemons of one still run, or if Kafka does not delete it.
        """
        return [*self._discard_shadow(), *remove_publication(self._live, self._admin)]

    def _discard_shadow(self) -> list[str]:
        """Delete what rehearsals have left, but for their last publication. Raises as `discard`."""
        shadow = self._place.write_config(self._live, 1)
        self._wait_until_nobody_runs(shadow)
        found = discard(self._admin, self._live, shadow)
        self._place.remove()
        return found

    def run(self, pipeline_file: Path, options: RehearsalOptions, lock: int) -> Report:
        """Rehearse; return what was found, also if a signal ends it.

        No process of the rehearsal is left, whatever is raised. `clean_up` is to follow. Raises
        `Interrupted` if a signal comes before anything is compared.
        """
        current, new = self._refuse_early(pipeline_file)
        if left := self._discard_shadow():
            self._say(f"deleted what a former rehearsal had left: {counted(len(left), 'topic')}")
        with published(self._live, self._admin, current, new) as progress:
            shadow = self._make(pipeline_file, options, lock)
            progress.starts(shadow.manifest)
            with self._daemons(options, lock) as daemons:
                return self._compare(shadow, options, daemons, progress)

    def clean_up(self, *, keep: bool) -> None:
        """Delete all of the rehearsal, or say how to do that later. Raises as `discard`."""
        self._signals.ignore()
        if not self._is_begun:
            return
        if keep:
            self._say(
                f"the shadow's topics and {self._place.config_file} stay: `pipeline rehearse "
                f"{self._place.own_config} --discard` deletes them"
            )
            return
        self._say("deleting the shadow's topics, offsets and state")
        self._discard_shadow()

    def _refuse_early(self, pipeline_file: Path) -> tuple[Pipeline, Pipeline]:
        """Return the pipeline that the job runs, and the new one as the job would run it.

        Raises `ConfigError` for what `pipeline apply` would refuse, while the job still runs.
        """
        _, loaded = load_files(self._place.own_config, pipeline_file, with_classes=True)
        kept = KeptState(self._live, self._admin)
        new, found, deployment = look_at(self._live, self._admin, loaded, kept)
        if deployment.current is None:
            raise ConfigError("this job has no pipeline yet: there is nothing to compare with")
        require_usable_state(found)
        require_no_stop(deployment.wish)
        if not read_status(self._live).job_manager.is_up:
            raise UnavailableError("the job does not run: no JobManager of it is up")
        return deployment.current.pipeline, new

    def _wait_until_nobody_runs(self, shadow: Config) -> None:
        deadline_s = time.monotonic() + _LEAVE_TIMEOUT_S
        while self._admin.finds(shadow.topic_names.heartbeat):
            status = read_status(shadow)
            up = [
                *(["its JobManager"] if status.job_manager.is_up else []),
                *(f"TaskManager {each.id} at {each.host}" for each in status.managers_up),
            ]
            if not up:
                return
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f'the job "{shadow.job_name}" still runs: {", ".join(up)}. Stop its daemons, '
                    f"then give `pipeline rehearse {self._place.own_config} --discard`"
                )

    def _make(self, pipeline_file: Path, options: RehearsalOptions, lock: int) -> _Shadow:
        """Make a savepoint of the job, and its shadow of that."""
        place = self._place
        self._is_begun = True
        config = place.write_config(self._live, options.task_managers)
        _, loaded = load_files(place.config_file, pipeline_file)
        pipeline = shadow_pipeline(loaded, self._live)
        self._save(lock)
        manifest = read_manifest(place.savepoint)
        self._say(
            f"the job was paused for {manifest.stopped_ms / 1000:.1f} s for a savepoint; "
            f"making the shadow of it"
        )
        live = manifest.pipeline_version().pipeline
        outputs = outputs_of(live, pipeline, self._live.job_name)
        make_sinks(self._admin, config, outputs)
        text = pipeline_file.read_text("utf-8")
        restore = fork(config, self._admin, place.savepoint, pipeline, text, None, same_sinks=False)
        restore.check_files()
        restore.carry_out(_RESTORE_TIMEOUT_S, self._say)
        ends = read_ends(place.ends)
        place.remove_savepoint()
        return _Shadow(config, manifest, ends, outputs, restore.plan.losses)

    def _save(self, lock: int) -> None:
        """Make the savepoint in a process that goes on if this one is killed.

        It holds the lock meanwhile, so that no other rehearsal touches the files that it writes.
        """
        self._say("making a savepoint, which pauses the job for a moment")
        place = self._place
        words = [str(each) for each in (place.own_config, place.savepoint, place.ends)]
        command = python_command("kafka_pipeline.admin.rehearsal.saving", *words)
        saving = Daemon("the savepoint", command, place.log_file("savepoint"))
        try:
            saving.start(self._signals, [lock])
            while saving.exit_code is None:
                time.sleep(_POLL_S)
        except Interrupted:
            saving.terminate()
            saving.wait(_STOP_TIMEOUT_S)
            raise
        if saving.exit_code:
            error = _ERRORS.get(saving.exit_code, PipelineError)
            raise error(f"no savepoint could be made:\n{saving.last_lines()}")

    @contextmanager
    def _daemons(self, options: RehearsalOptions, lock: int) -> Iterator[Sequence[Daemon]]:
        """Start the shadow's daemons, unless others do that; none is left afterwards."""
        file, threads = str(self._place.config_file), str(options.threads)
        commands = {
            f"taskmanager {number}": ["taskmanager", str(number), threads, file]
            for number in range(options.task_managers)
        }
        commands["jobmanager"] = ["jobmanager", file]
        if not options.is_local:
            self._say(f"start the shadow where it is to run, with a copy of {file}:")
            for words in commands.values():
                self._say(f"  {' '.join(words)}")
            yield ()
            self._say("stop the shadow's daemons now")
            return
        with self._signals.held():
            guard = Guard(lock)
        daemons: list[Daemon] = []
        try:
            for name, (command, *arguments) in commands.items():
                line = [str(command_path(command)), *arguments]
                daemons.append(Daemon(name, line, self._place.log_file(name)))
                daemons[-1].start(self._signals)
                _guard(daemons[-1:], guard)
            yield daemons
        finally:
            self._signals.ignore()
            # One may have been started a moment ago.
            _guard(daemons, guard)
            guard.end()

    def _compare(
        self,
        shadow: _Shadow,
        options: RehearsalOptions,
        daemons: Sequence[Daemon],
        progress: Progress,
    ) -> Report:
        self._wait_until_it_runs(shadow.config, daemons, options)
        with closing(self._comparison(shadow)) as comparison:
            look = partial(progress.look, comparison, shadow.manifest)
            comparison.notes.extend(shadow.losses)
            self._say(f"comparing for {spoken(round(options.seconds * 1000))}; Ctrl-C ends it")
            progress.compares(wall_clock_ms() + round(options.seconds * 1000))
            try:
                with self._signals.held():
                    comparison.go_on(self._over_in(options.seconds, daemons, look))
                    comparison.finish(self._over_in(_LAST_TIMEOUT_S, daemons, look))
            except Interrupted:
                comparison.notes.append("it was interrupted before its time was over")
            return progress.end(comparison, shadow.manifest)

    def _comparison(self, shadow: _Shadow) -> Comparison:
        """Begin the comparison of the job with its shadow."""
        current = read_deployment(shadow.config, self._admin).current
        assert current is not None
        new = {each.new for each in shadow.outputs} - {None}
        counts = self._admin.partition_counts(topic for topic in new if topic is not None)
        places = [(topic, number) for topic, count in counts.items() for number in range(count)]
        begins = self._admin.oldest_offsets(places) if places else {}
        live = shadow.manifest.pipeline_version().pipeline
        versions = {
            Side.OLD: Version(self._live, live, shadow.ends),
            Side.NEW: Version(shadow.config, current.pipeline, begins),
        }
        return Comparison(self._admin, versions, shadow.outputs)

    def _over_in(
        self, seconds: float, daemons: Sequence[Daemon], look: Callable[[], None]
    ) -> Callable[[], bool]:
        """Return whether time is up, or a signal has come; it raises if a daemon has ended.

        It also calls `look`.
        """
        deadline_s = time.monotonic() + seconds

        def is_over() -> bool:
            for daemon in daemons:
                daemon.require_alive()
            look()
            return self._signals.is_pending or time.monotonic() > deadline_s

        return is_over

    def _wait_until_it_runs(
        self, config: Config, daemons: Sequence[Daemon], options: RehearsalOptions
    ) -> None:
        """Wait until all tasks of the shadow run, or one has FAILED."""
        self._say("waiting until all tasks of the shadow run")
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        with closing(ClusterWatcher(config)) as watcher:
            while not (watcher.status().all_run or watcher.status().failed):
                for daemon in daemons:
                    daemon.require_alive()
                if options.is_local and time.monotonic() > deadline_s:
                    raise UnavailableError(
                        f"not all tasks of the shadow run after {_START_TIMEOUT_S:.0f} s: see the "
                        f"logs in {self._place.folder}"
                    )
                watcher.read(_POLL_S)


def _guard(daemons: Sequence[Daemon], guard: Guard) -> None:
    for daemon in daemons:
        if daemon.pid is not None:
            guard.add(daemon.pid)
