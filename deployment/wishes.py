"""What operators ask of processors and tasks: to stop, to go on, to start again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Wish, is_restoring, require_no_stop
from kafka_pipeline.deployment.job import Chosen
from kafka_pipeline.deployment.pipeline_topic import DeploymentEditor

WishChange = Callable[[Wish, Chosen], Wish]
"""Returns the wish for what is asked of some processors and tasks."""


def paused(wish: Wish, chosen: Chosen) -> Wish:
    """Return the wish that these processors and tasks stop."""
    return _with_paused(
        wish,
        {*wish.paused, *chosen.processors},
        {*map(TaskId.parse, wish.paused_tasks), *chosen.tasks},
    )


def resumed(wish: Wish, chosen: Chosen) -> Wish:
    """Return the wish that these go on; a pipeline that drains goes on draining.

    The other tasks of a processor that is paused as a whole stay paused.
    """
    whole = {task.processor for task in chosen.tasks}.intersection(wish.paused)
    pipeline = chosen.pipeline
    of_whole = {
        TaskId(id_, number)
        for id_ in whole
        for number in range(pipeline.task_count(pipeline.processor(id_)))
    }
    tasks = {*map(TaskId.parse, wish.paused_tasks), *of_whole}.difference(chosen.tasks)
    return _with_paused(
        wish,
        {*wish.paused} - whole - {*chosen.processors},
        {task for task in tasks if task.processor not in chosen.processors},
    )


def _with_paused(wish: Wish, processors: Collection[str], tasks: Iterable[TaskId]) -> Wish:
    others = (str(task) for task in tasks if task.processor not in processors)
    return wish.with_paused(processors, others)


def all_resumed(wish: Wish, chosen: Chosen) -> Wish:
    """Return the wish that all processors go on, also after a drain or a savepoint.

    Raises `ConfigError` if a restore is not complete.
    """
    if is_restoring(wish):
        require_no_stop(wish)
    return resumed(wish, chosen).with_drain(drains=False).with_stop(None)


def restarted(wish: Wish, chosen: Chosen) -> Wish:
    """Return the wish that these tasks start again, FAILED ones too."""
    return wish.with_restarts(chosen.ids)


def drained(wish: Wish, chosen: Chosen) -> Wish:
    """Return the wish that all processors stop, with nothing in flight between them."""
    del chosen
    return wish.with_drain(drains=True)


def ask(config: Config, admin: Admin, chosen: Chosen, changed: WishChange) -> int:
    """Write what is asked of processors and tasks; return the version that it is about.

    The JobManager does it soon after. Raises `ChangedMeanwhileError` if somebody else changes
    what the job is to run at the same time, and `UnavailableError` if Kafka does not answer.
    """
    with closing(DeploymentEditor(config, admin)) as editor:
        wish = editor.deployment.wish
        assert wish is not None
        editor.write(changed(wish, chosen))
    return wish.next or wish.version
