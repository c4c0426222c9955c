"""Stops all of a job while a tool works on its topics."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import FencedError
from kafka_pipeline.common.kafka.control import CommandWriter
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import MISSED_BEATS
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.deploy import who
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    is_restoring,
    require_no_next,
    require_no_stop,
)
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.pipeline_topic import (
    ChangedMeanwhileError,
    DeploymentEditor,
    DeploymentReader,
)
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

Say = Callable[[str], None]

_LOOK_S = 0.3
_FENCES_AT_A_TIME = 16


class JobStop:
    """A stop of a job: asked for, waited for, and ended.

    It is in the pipeline topic. So it outlasts this process, and every JobManager keeps to it.
    """

    def __init__(self, config: Config, admin: Admin, stop: StopOrder) -> None:
        self._config = config
        self._admin = admin
        self.stop = stop

    @classmethod
    def begin(cls, config: Config, admin: Admin, *, drains: bool) -> JobStop:
        """Ask for a stop for a savepoint; it takes the place of one that another command made.

        Raises `ConfigError` if the job has no pipeline, or if its topics are being made anew, or if
        another version is to come.
        """
        stop = StopOrder(purpose="savepoint", token=secrets.token_hex(8), by=who(), drains=drains)
        with closing(DeploymentEditor(config, admin)) as editor:
            wish = editor.deployment.wish
            if wish is None:
                raise ConfigError("this job has no pipeline yet: there is nothing to save")
            require_may_stop(wish)
            editor.write(wish.with_stop(stop))
        return cls(config, admin, stop)

    @classmethod
    def of_restore(
        cls,
        config: Config,
        admin: Admin,
        token: str,
        version: PipelineVersion,
        former: StopOrder | None,
    ) -> JobStop:
        """Make a version the one of the job, and let nothing run before all of its topics are made.

        `former` is the stop that was found when the restore was planned. What is paused stays
        paused under another id. Raises `ChangedMeanwhileError` if there is another stop now.
        """
        stop = StopOrder(purpose="restore", token=token, by=who())
        with closing(DeploymentEditor(config, admin)) as editor:
            deployment = editor.deployment
            wish = deployment.wish or Wish(version=version.number)
            if wish.stop != former or wish.next is not None:
                raise _changed()
            new = [] if version.number in deployment.numbers else [version]
            before = deployment.current
            renamed = renames(before.pipeline if before else None, version.pipeline)
            wish = wish.renamed({old: new_id for new_id, old in renamed.items()})
            editor.write(wish.of(version.number).running(version).with_stop(stop), *new)
        return cls(config, admin, stop)

    @classmethod
    def found(cls, config: Config, admin: Admin) -> JobStop:
        """Return the stop that the job has now.

        Raises `ChangedMeanwhileError` if it has none.
        """
        wish = read_deployment(config, admin).wish
        if wish is None or wish.stop is None:
            raise _changed()
        return cls(config, admin, wish.stop)

    def wait(self, timeout_s: float, say: Say) -> None:
        """Wait until nothing of the job runs.

        Raises `UnavailableError` if that takes longer, and `ChangedMeanwhileError` if somebody has
        ended the stop.
        """
        deadline_s, said = time.monotonic() + timeout_s, ""
        with (
            closing(DeploymentReader(self._config, self._admin)) as reader,
            closing(ClusterWatcher(self._config)) as watcher,
        ):
            watcher.read_until_fresh()
            while (running := self._running(watcher)) is not None:
                if running != said:
                    say(running)
                    said = running
                if time.monotonic() > deadline_s:
                    raise UnavailableError(f"the job does not come to rest: {running}")
                watcher.read(_LOOK_S)
                reader.read(0)
                self._require(reader.deployment)

    def fence(self, *pipelines: Pipeline) -> None:
        """Make sure that no task that was started before can commit, and abort what one left open.

        A TaskManager that was taken for dead may still run tasks. The brokers may write the ends
        of transactions a moment after this has returned.
        """

        def fence(transactional_id: str) -> None:
            try:
                CommandWriter(self._config, transactional_id)
            except FencedError as error:
                raise UnavailableError(
                    f"{transactional_id} is used by somebody else at the same time"
                ) from error
            except EngineError as error:
                raise UnavailableError(f"{transactional_id} cannot be fenced: {error}") from error

        names = self._config.topic_names
        ids = {names.transactional_id(task) for each in pipelines for task in each.tasks}
        with ThreadPoolExecutor(_FENCES_AT_A_TIME, "fence") as threads:
            list(threads.map(fence, ids))

    def require(self) -> None:
        """Raise `ChangedMeanwhileError` if somebody has ended the stop."""
        with closing(DeploymentReader(self._config, self._admin)) as reader:
            self._require(reader.deployment)

    def end(self) -> None:
        """Let the job go on. Raises as `require` if somebody has ended the stop before."""
        with closing(DeploymentEditor(self._config, self._admin)) as editor:
            self._require(editor.deployment)
            wish = editor.deployment.wish
            assert wish is not None
            editor.write(wish.with_stop(None))

    def _running(self, watcher: ClusterWatcher) -> str | None:
        """Return what still runs, as a line for the user; None if nothing does, or will.

        Without a JobManager, TaskManagers go on with their tasks, and get no others: one that has
        none, as in a job that is new, is not waited for. A JobManager that has left just now may
        have given it tasks that it has not reported yet.
        """
        status = watcher.status()
        all_, leader = (*status.tasks, *status.standbys), status.job_manager
        if leader.is_up:
            left = sum(info.status is not None or not info.is_held for info in all_)
            return f"{counted(left, 'task')} to stop" if left or not all_ else None
        overdue_ms = MISSED_BEATS * self._config.heartbeat_interval_ms
        is_long_gone = leader.age_ms is None or leader.age_ms > overdue_ms
        have_tasks = any(info.status is not None for info in all_)
        if status.managers_up and (have_tasks or not is_long_gone or watcher.misses_tasks):
            return "TaskManagers are up, and no JobManager: start it, or stop all daemons"
        return None

    def _require(self, deployment: Deployment) -> None:
        if deployment.wish is None or deployment.wish.stop != self.stop:
            raise _changed()


def require_may_stop(wish: Wish) -> None:
    """Raise `ConfigError` if no savepoint can be made now; one that another command makes may be
    given up.
    """
    require_no_next(wish)
    if is_restoring(wish):
        require_no_stop(wish)


def _changed() -> ChangedMeanwhileError:
    return ChangedMeanwhileError(
        "somebody else has changed the pipeline or its state meanwhile: see `pipeline versions`, "
        "and repeat the command"
    )
