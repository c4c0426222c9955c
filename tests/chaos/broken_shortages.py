"""A host that is short of files, CPU time or memory, or whose disk fails."""

from __future__ import annotations

import errno
import os
import resource
import time

from kafka_pipeline.admin.daemons import session_members
from tests.chaos.catalog import SkippedError, Where, fault
from tests.chaos.control_group import NoControlGroupError, cpu, limited, memory
from tests.chaos.failing_disk import FailingDisk, NoFailingDiskError
from tests.chaos.rig import FIRST, Rig, eventually

NOTICE_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
MOST_FILES = 16
"""A worker has more, so it can open no further ones, and wait for those that it has."""
REMEDY = "ulimit -n"
LITTLE_CPU = 0.05
LITTLE_CPU_S = 20.0
HARDLY_ANY_BYTES = 256 * 1024
"""More than what the workers have already, so the kernel ends one as soon as it asks for more."""


def _wait_for_words(rig: Rig, tm_id: int, words: str, found_before: int) -> None:
    eventually(
        lambda: _count(rig, tm_id, words) > found_before,
        NOTICE_TIMEOUT_S,
        f'TaskManager {tm_id} does not log "{words}"',
    )


def _count(rig: Rig, tm_id: int, words: str) -> int:
    return rig.task_managers[tm_id].log_file.read_text(errors="replace").count(words)


def _reasons(rig: Rig, tm_id: int) -> set[str]:
    """Return why tasks of a TaskManager do not run, as `pipeline status` says."""
    tasks = [task for task in rig.now().tasks if task.owner == tm_id and task.status]
    return {task.status.reason for task in tasks if task.status and task.status.reason}


@fault("no-files", where=Where.ONE_HOST)
def no_files(rig: Rig) -> None:
    """A worker may open no more files and sockets, and its connections break: it waits for them."""
    assert rig.link is not None
    pid, words = rig.worker_pid(FIRST), os.strerror(errno.EMFILE)
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    found_before = _count(rig, FIRST, words)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (MOST_FILES, limits[1]))
    try:
        rig.link.cut()
        rig.link.mend()
        _wait_for_words(rig, FIRST, words, found_before)
        eventually(
            lambda: any(REMEDY in reason for reason in _reasons(rig, FIRST)),
            NOTICE_TIMEOUT_S,
            "the status does not say what to do",
        )
        time.sleep(rig.random.uniform(0, 20))
    finally:
        rig.mark()
        if os.path.exists(f"/proc/{pid}"):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    seconds = rig.wait_for_flow(90)
    rig.say(f"worker {pid} had no files; all keys flow {seconds:.1f} s after it has")


@fault("failing-disk")
def failing_disk(rig: Rig) -> None:
    """All uses of a TaskManager's state fail (EIO), or all changes (EROFS): it goes on later."""
    victim = rig.some_task_manager()
    daemon = rig.task_managers[victim]
    daemon.terminate()
    assert daemon.wait(END_TIMEOUT_S), "the TaskManager does not end"
    try:
        disk = FailingDisk(rig.state_folder(victim), rig.folder / f"failing_disk_{victim}")
    except NoFailingDiskError as error:
        rig.start_task_manager(victim)
        raise SkippedError(str(error)) from error
    rig.preloads[victim] = disk.environment
    rig.start_task_manager(victim)
    rig.wait_until_whole()
    number = rig.random.choice((errno.EIO, errno.EROFS))
    words = os.strerror(number)
    found_before = _count(rig, victim, words)
    disk.fail(number)
    try:
        _wait_for_words(rig, victim, words, found_before)
        time.sleep(rig.random.uniform(1, 10))
        reasons = _reasons(rig, victim)
    finally:
        rig.mark()
        disk.mend()
    seconds = rig.wait_for_flow(90)
    assert any(words in reason for reason in reasons), f"the status does not say why: {reasons}"
    rig.say(
        f"disk of TaskManager {victim} failed with {errno.errorcode[number]}; all keys flow "
        f"{seconds:.1f} s after it does not"
    )


@fault("little-cpu")
def little_cpu(rig: Rig) -> None:
    """All processes of a TaskManager get 5 % of a core for 20 s: others take over, or it crawls."""
    victim = rig.some_task_manager()
    session = rig.task_managers[victim].pid
    assert session is not None
    try:
        with limited(lambda: set(session_members(session)), cpu(LITTLE_CPU)):
            time.sleep(LITTLE_CPU_S)
            is_out = all(task.owner != victim for task in rig.now().tasks)
            rig.mark()
    except NoControlGroupError as error:
        raise SkippedError(str(error)) from error
    seconds = rig.wait_for_flow(90)
    rig.say(
        f"TaskManager {victim} had {LITTLE_CPU:.0%} of a core and "
        f"{'lost its' if is_out else 'kept'} tasks; all keys flow {seconds:.1f} s after that"
    )


@fault("worker-oom")
def worker_oom(rig: Rig) -> None:
    """The kernel ends a worker since the host has no memory left: its TaskManager starts another.

    Unlike a `kill -9` of the harness, this strikes where a worker asks for memory.
    """
    victim = rig.some_task_manager()
    workers = rig.python_of_spark(victim)
    try:
        with limited(lambda: rig.python_of_spark(victim), memory(HARDLY_ANY_BYTES)) as ended:
            eventually(lambda: ended() > 0, NOTICE_TIMEOUT_S, "the kernel ends no worker")
            rig.mark()
            count = ended()
    except NoControlGroupError as error:
        raise SkippedError(str(error)) from error
    seconds = rig.wait_for_flow(90)
    assert workers - rig.python_of_spark(victim), "all workers are those of before"
    rig.say(
        f"the kernel ended {count} of {len(workers)} processes that Spark runs Python in on "
        f"TaskManager {victim}; all keys flow after {seconds:.1f} s"
    )
