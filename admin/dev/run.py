"""`pipeline dev` from the first process to the last: starts, follows and reloads a job."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.admin.dev.guard import Guard
from kafka_pipeline.admin.dev.hints import hints
from kafka_pipeline.admin.dev.log import OWN, DevLog
from kafka_pipeline.admin.dev.progress import Progress, Wanted
from kafka_pipeline.admin.dev.project import Code, Places, Project, Saved
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import DataFrameSpec, ProcessorSpec, TopologySpec
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.streams.engine.user_files import code_fingerprints
from kafka_pipeline.streams.pipeline.load import load_pipeline

_TURN_S = 0.05
_LOOK_S = 0.2
_STOP_TIMEOUT_S = 20.0
_APPLY_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The user's options: how many TaskManagers and threads in each, whether to forget the data."""

    task_managers: int = 1
    threads: int = 2
    fresh: bool = False


def run(project: Project, options: DevOptions, console: Console, signals: Signals) -> None:
    """Run the job until a signal raises `Interrupted`; no process of it is left afterwards.

    Must be called in the main thread. Raises `ConfigError` if the pipeline is wrong at the start,
    `UnavailableError` if something needed is missing or the folder is in use, and `PipelineError`
    if a daemon ends on its own.
    """
    try:
        with exclusive(project.work_dir / ".lock", wait=False) as lock:
            DevRun(project, options, DevLog(console), signals).run(lock)
    except BlockingIOError as error:
        raise UnavailableError(
            f"`pipeline dev` already runs in {project.folder}, or is still stopping"
        ) from error


class DevRun:
    """One run: the broker, the daemons, and what is saved."""

    def __init__(
        self, project: Project, options: DevOptions, log: DevLog, signals: Signals
    ) -> None:
        self._project = project
        self._options = options
        self._log = log
        self._signals = signals
        self._daemons: dict[str, Daemon] = {}
        self._guard: Guard | None = None
        self._runs = Saved(None, None, {})
        self._had_functions = False
        self._progress: Progress | None = None
        self._wanted: Wanted | None = None
        """What the TaskManagers do not run yet."""

    def run(self, lock: int) -> None:
        """See `run` above; `lock` is the descriptor of the folder's lock."""
        broker_dir = self._project.work_dir / "broker"
        self._forget_former(broker_dir)
        with self._signals.held():
            self._guard = Guard(lock, broker_dir)
        try:
            self._work(broker_dir)
        finally:
            self._signals.ignore()
            # The terminal may be gone.
            with suppress(OSError):
                self._log.say("stopping the daemons and Kafka")
            if self._progress is not None:
                self._progress.close()
            for daemon in self._daemons.values():
                if daemon.pid is not None:
                    # It may have been started a moment ago.
                    self._guard.add(daemon.pid)
            self._guard.end()
            with suppress(OSError):
                self._log.pump()

    def _forget_former(self, broker_dir: Path) -> None:
        """Stop a broker that a former run has left, if its guard was killed, too."""
        left = LocalCluster.find(broker_dir)
        if left is not None:
            left.stop()
        if self._options.fresh:
            self._project.forget()

    def _work(self, broker_dir: Path) -> None:
        broker = LocalCluster(broker_dir)
        project = self._project
        places = Places.choose(broker.nodes[0].port, self._options.task_managers)
        code = project.code()
        # So that nothing saved from now on is missed.
        saved = project.look(code)
        config = project.write_config(places, code)
        pipeline = load_pipeline(project.pipeline_file, config)
        self._log.say("starting Kafka, and checking the pipeline meanwhile")
        check = self._start(OWN, "pipeline", "validate", *self._files)
        broker.start()
        if self._wait_for(check):
            raise ConfigError(f"{project.pipeline_file} cannot run: see above")
        self._log.say(f"Kafka runs at {broker.bootstrap_servers}, its data in {broker_dir}")
        self._had_functions = self._has(DataFrameSpec)
        since_s = time.monotonic()
        self._start_task_managers()
        self._start("jobmanager", "jobmanager", *self._files, "--allow-removal")
        self._progress = Progress(config)
        self._expect(since_s)
        self._greet(config, self._hints(pipeline, config))
        self._follow(code, saved)

    def _hints(self, pipeline: Pipeline, config: Config) -> list[str]:
        config_file = self._shown(self._project.config_file)
        return hints(pipeline, config_file, UserCode.of(config))

    @property
    def _files(self) -> tuple[Path, Path]:
        return self._project.config_file, self._project.pipeline_file

    def _greet(self, config: Config, commands: Sequence[str]) -> None:
        if config.console_port:
            self._log.say(f"the console: http://{config.console_host}:{config.console_port}/")
        self._log.say("in another terminal:")
        for command in commands:
            self._log.say(f"  {command}", "")
        self._log.say("what you save is applied; Ctrl-C ends everything")

    def _follow(self, code: Code, saved: Saved) -> None:
        """Apply what is saved, until something is raised."""
        self._runs = saved
        next_look_s = 0.0
        while True:
            self._turn()
            self._say_progress()
            if time.monotonic() < next_look_s:
                continue
            now = self._project.look(code)
            if now != saved:
                # Editors write several files, or one in several steps: wait until they are done.
                time.sleep(_TURN_S)
                if now == self._project.look(code):
                    if now.own_config != saved.own_config:
                        self._say_config_changed()
                    saved = now
                    self._reload(code, now)
            next_look_s = time.monotonic() + _LOOK_S

    def _say_config_changed(self) -> None:
        self._log.say(
            f"{self._project.own_config} has changed: that takes effect when you start "
            "`pipeline dev` again",
            "yellow",
        )

    def _reload(self, code: Code, now: Saved) -> None:
        """Have the job run what is saved, if it is right. What was refused before counts again."""
        runs = self._runs
        changed = sorted(
            name for name in {*runs.code, *now.code} if runs.code.get(name) != now.code.get(name)
        )
        files = [self._project.pipeline_file.name] if now.pipeline != runs.pipeline else []
        if not files and not changed:
            return
        since_s = time.monotonic()
        self._log.say(f"saved: {', '.join([*files, *changed])}")
        try:
            prepared = self._project.prepare(code)
        except UnavailableError as error:
            # Such as a file that was replaced at this moment, which is one more change.
            self._log.say(f"not applied: {error}", "bold red")
            return
        checked = (prepared, self._project.pipeline_file)
        # Code may make another pipeline only where it builds topologies.
        may_change = bool(files) or self._has(TopologySpec)
        exit_code = self._run("validate", *checked)
        if not exit_code and may_change:
            # Before the code is adopted, as that may be what cannot use the state.
            exit_code = self._run("apply", *checked, "--dry-run", "--no-compare-code")
        prepared.unlink()
        if exit_code:
            self._log.say("not applied: what ran before goes on", "bold red")
            return
        self._project.adopt(code)
        if changed:
            self._change_code(is_same_list=now.code.keys() == runs.code.keys())
        self._runs = now
        if may_change:
            # A version that fails stays, to be looked at until the next one is saved.
            waits = ("--yes", "--timeout", _APPLY_TIMEOUT_S)
            options = (*waits, "--confirm-within", 0, "--no-savepoint", "--no-compare-code")
            exit_code = self._run("apply", *self._files, *options)
            if exit_code == ConfigError.exit_code:
                self._runs = replace(now, pipeline=runs.pipeline)
                self._log.say("not applied: the version that ran before goes on", "bold red")
                return
            if exit_code:
                self._log.say("applied, but it does not run: see above", "bold red")
                return
        if changed:
            self._expect(since_s)
        else:
            self._log.say(f"applied: runs after {time.monotonic() - since_s:.1f} s", "bold green")

    def _expect(self, since_s: float) -> None:
        """Have `_say_progress` say when the TaskManagers run the code that was adopted."""
        config = load_config(self._project.config_file)
        names = range(self._options.task_managers)
        processes = {n: self._daemons[_task_manager(n)].pid for n in names}
        found = code_fingerprints(config.modules, config.python_path)
        self._wanted = Wanted(found, processes, since_s)

    def _say_progress(self) -> None:
        """Say that what was saved runs, once that is so."""
        if self._wanted is None or self._progress is None:
            return
        settled = self._progress.look(self._wanted)
        if settled is not None:
            is_right, line = settled
            self._log.say(f"applied: {line}", "bold green" if is_right else "bold red")
            self._wanted = None

    def _change_code(self, *, is_same_list: bool) -> None:
        """Have the TaskManagers run the code that was adopted.

        They read it again, unless they are still starting, or other modules are on the list, or
        Spark keeps a function of it for DataFrames: then they start again.
        """
        names = [_task_manager(number) for number in range(self._options.task_managers)]
        assert self._progress is not None
        are_up = all(
            self._progress.runs(number, self._daemons[name].pid)
            for number, name in enumerate(names)
        )
        self._had_functions |= self._has(DataFrameSpec)
        if are_up and is_same_list and not self._had_functions:
            for name in names:
                self._daemons[name].send(signal.SIGUSR2)
        else:
            self._stop_task_managers()
            self._start_task_managers()

    def _has(self, kind: type[ProcessorSpec]) -> bool:
        """Whether the pipeline has processors of a kind; if in doubt, it has."""
        try:
            config = load_config(self._project.config_file)
            pipeline = load_pipeline(self._project.pipeline_file, config)
        except ConfigError:
            return True
        return any(isinstance(processor.spec, kind) for processor in pipeline.processors)

    def _start_task_managers(self) -> None:
        for number in range(self._options.task_managers):
            name, threads = _task_manager(number), self._options.threads
            self._start(name, "taskmanager", number, threads, self._project.config_file)

    def _stop_task_managers(self) -> None:
        """Stop them; the JobManager goes on."""
        stopping = [name for name in self._daemons if name.startswith("taskmanager")]
        for name in stopping:
            self._daemons[name].terminate()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for name in stopping:
            while not self._daemons[name].wait(_TURN_S) and time.monotonic() < deadline_s:
                self._log.pump()
            self._end(name)

    def _start(self, name: str, command: str, *arguments: object) -> Daemon:
        file = self._project.log_file(name)
        self._log.follow(name, file)
        daemon = Daemon(name, [str(command_path(command)), *map(str, arguments)], file)
        self._daemons[name] = daemon
        daemon.start(self._signals)
        assert self._guard is not None
        assert daemon.pid is not None
        self._guard.add(daemon.pid)
        return daemon

    def _end(self, name: str) -> None:
        """Forget a daemon, and end what is left of it."""
        daemon = self._daemons.pop(name)
        daemon.end()
        assert self._guard is not None
        assert daemon.pid is not None
        self._guard.remove(daemon.pid)

    def _run(self, *arguments: object) -> int:
        """Run a `pipeline` command, with its output in the log; return its exit code."""
        return self._wait_for(self._start(OWN, "pipeline", *arguments))

    def _wait_for(self, command: Daemon) -> int:
        while (exit_code := command.exit_code) is None:
            self._turn()
        self._end(OWN)
        self._log.pump()
        return exit_code

    def _turn(self) -> None:
        """Print what was logged, and wait a little.

        Raises `PipelineError` if a daemon has ended.
        """
        self._log.pump()
        for name, daemon in self._daemons.items():
            if name != OWN:
                daemon.require_alive()
        time.sleep(_TURN_S)

    def _shown(self, file: Path) -> Path:
        """Return a path as a user in the current folder would write it."""
        folder = Path.cwd()
        return file.relative_to(folder) if file.is_relative_to(folder) else file


def _task_manager(number: int) -> str:
    return f"taskmanager {number}"
