"""What operators ask of processors: to stop, to go on, to start again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from common.config import Config
from common.deployment import Wish, is_restoring, require_no_stop
from common.kafka.admin import Admin
from common.kafka.deployments import DeploymentEditor

WishChange = Callable[[Wish, Sequence[str]], Wish]
"""Returns the wish for what is asked of some processors."""


def paused(wish: Wish, processors: Sequence[str]) -> Wish:
    """Return the wish that these processors stop."""
    return wish.with_paused({*wish.paused, *processors})


def resumed(wish: Wish, processors: Sequence[str]) -> Wish:
    """Return the wish that these processors go on; a pipeline that drains goes on draining."""
    return wish.with_paused({*wish.paused}.difference(processors))


def all_resumed(wish: Wish, processors: Sequence[str]) -> Wish:
    """Return the wish that all processors go on, also after a drain or a savepoint.

    Raises `ConfigError` if a restore is not complete.
    """
    if is_restoring(wish):
        require_no_stop(wish)
    return resumed(wish, processors).with_drain(drains=False).with_stop(None)


def restarted(wish: Wish, processors: Sequence[str]) -> Wish:
    """Return the wish that the tasks of these processors start again, FAILED ones too."""
    return wish.with_restarts(processors)


def drained(wish: Wish, processors: Sequence[str]) -> Wish:
    """Return the wish that all processors stop, with nothing in flight between them."""
    del processors
    return wish.with_drain(drains=True)


def ask(config: Config, admin: Admin, processors: Sequence[str], changed: WishChange) -> int:
    """Write what is asked of processors of the job; return the version that it is about.

    The JobManager does it soon after. Raises `ChangedMeanwhileError` if somebody else changes
    what the job is to run at the same time, and `UnavailableError` if Kafka does not answer.
    """
    with closing(DeploymentEditor(config, admin)) as editor:
        wish = editor.deployment.wish
        assert wish is not None
        editor.write(changed(wish, processors))
    return wish.next or wish.version
