"""JobManagers that die, compete and get another pipeline; forged messages; wrong clocks."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from tests.chaos.catalog import Where, fault
from tests.chaos.garbage import messages
from tests.chaos.pipelines import REWIRED, START, WITHOUT_ADDER
from tests.chaos.rig import HEARTBEAT_S, Rig, eventually, require_unaffected
from tests.engine import signal_session

END_TIMEOUT_S = 30.0
REFUSAL_TIMEOUT_S = 120.0
DETECTION_TIMEOUT_S = 60.0
GARBAGE = 300
_IS_DOWN = "TaskManager is down"
_METRICS = re.compile(r"metrics are shown .*port=([0-9]+)")


def kill_leader(rig: Rig) -> None:
    """`kill -9` of the JobManager."""
    signal_session(rig.job_manager, signal.SIGKILL)
    rig.job_manager.end()


def wait_for_new_epoch(rig: Rig, before: ClusterStatus) -> ClusterStatus:
    """Wait until a JobManager that started after `before` leads and all tasks run."""
    epoch = before.job_manager.epoch
    assert epoch is not None

    def leads(status: ClusterStatus) -> bool:
        info = status.job_manager
        return (
            info.presence is Presence.UP
            and info.epoch is not None
            and info.epoch > epoch
            and status.all_run
        )

    return rig.engine.wait_until(leads, 60)


@fault("kill-jobmanager")
def kill_jobmanager(rig: Rig) -> None:
    """kill -9 of the JobManager: tasks go on, the next one adopts them."""
    before = rig.wait_until_whole()
    rig.mark()
    kill_leader(rig)
    seconds = rig.wait_for_flow()
    time.sleep(rig.random.uniform(0, 5) * HEARTBEAT_S)
    rig.job_manager = rig.start_job_manager()
    after = wait_for_new_epoch(rig, before)
    rig.mark()
    seconds_later = rig.wait_for_flow()
    require_unaffected(before, after)
    rig.say(
        f"JobManager killed; all keys flow after {seconds:.1f} s, and with the next one after "
        f"{seconds_later:.1f} s; no task moved"
    )


@fault("kill-jobmanager-in-move")
def kill_jobmanager_in_move(rig: Rig) -> None:
    """kill -9 of the JobManager just when it reassigns the tasks of a dead TaskManager.

    Its commands reach Kafka some 0.1 s after it logs that the TaskManager is down. The last
    standby has moved some heartbeats later.
    """
    before = rig.wait_until_whole()
    victim = rig.some_task_manager()
    log = rig.job_manager.log_file
    found_before = _count(log, _IS_DOWN)
    rig.mark()
    rig.kill(victim)
    eventually(
        lambda: _count(log, _IS_DOWN) > found_before,
        DETECTION_TIMEOUT_S,
        "the JobManager does not notice",
    )
    time.sleep(rig.random.choice((0, rig.random.uniform(0, 0.1), rig.random.uniform(0, 1))))
    kill_leader(rig)
    rig.job_manager = rig.start_job_manager()
    seconds = rig.wait_for_flow()
    wait_for_new_epoch(rig, before)
    rig.say(
        f"TaskManager {victim} killed, and the JobManager while it gave its tasks to others; "
        f"all keys flow after {seconds:.1f} s"
    )
    rig.start_task_manager(victim)


@fault("two-jobmanagers")
def two_jobmanagers(rig: Rig) -> None:
    """A second JobManager is started next to the first: the first one ends, no task moves."""
    before = rig.wait_until_whole()
    former = rig.job_manager
    rig.job_manager = rig.start_job_manager()
    assert former.wait(END_TIMEOUT_S), "the first JobManager goes on"
    assert former.exit_code == 4, f"exit code {former.exit_code}"
    rig.mark()
    seconds = rig.wait_for_flow()
    after = wait_for_new_epoch(rig, before)
    require_unaffected(before, after)
    rig.say(f"a second JobManager took over; all keys flow after {seconds:.1f} s, no task moved")


@fault("edit-pipeline", edits=True)
def edit_pipeline(rig: Rig) -> None:
    """Processors are removed, added and rewired, the others go on and keep their state.

    The pipeline is empty at that moment, so that the ledger knows which records get no sum.
    """
    for name, start in (
        ("without Adder", WITHOUT_ADDER),
        ("Adder back, behind a Relay", REWIRED),
        ("as it was", START),
    ):
        rig.drain()
        if start == WITHOUT_ADDER:
            rig.ledger.suspend_sums(rig.load.numbers)
        elif start == REWIRED:
            rig.ledger.resume_sums(rig.load.numbers)
        before = rig.now()
        rig.engine.write_pipeline(rig.pipeline(start))
        rig.engine.run_command("apply", "--yes", with_pipeline=True)
        after = rig.now()
        rig.load.resume()
        rig.mark()
        seconds = rig.wait_for_flow()
        ids = {node.id for node in rig.engine.pipeline.processors}
        assert {task.task.processor for task in after.tasks} == ids
        require_unaffected(before, after, "Counter")
        rig.say(f"pipeline edited ({name}); all keys flow after {seconds:.1f} s, Counter goes on")
        time.sleep(rig.random.uniform(0, 2))


@fault("change-pipeline")
def change_pipeline(rig: Rig) -> None:
    """A processor is put between two others and taken away again, and the JobManager is killed.

    Both happen under load, and the JobManager dies somewhere in the change: nothing that is in the
    arcs which are taken away may be lost.
    """
    for name, start in (("with a Relay", REWIRED), ("without it", START)):
        rig.engine.write_pipeline(rig.pipeline(start))
        ids = {node.id for node in rig.engine.pipeline.processors}
        rig.mark()
        rig.engine.run_command("apply", "--yes", "--no-wait", with_pipeline=True)
        time.sleep(rig.random.uniform(0, 4))
        before = rig.now()
        kill_leader(rig)
        rig.job_manager = rig.start_job_manager()
        # It reads the file, which must not be the next one yet.
        wait_for_new_epoch(rig, before)
        rig.engine.wait_until(partial(is_all_of, ids))
        seconds = rig.wait_for_flow()
        rig.say(
            f"pipeline changed ({name}), JobManager killed meanwhile; all keys flow after "
            f"{seconds:.1f} s"
        )


def is_all_of(ids: Collection[str], status: ClusterStatus) -> bool:
    """Whether the tasks of these processors run, and no others."""
    return status.all_run and {info.task.processor for info in status.tasks} == ids


@fault("same-id")
def same_id(rig: Rig) -> None:
    """A second TaskManager with the id of a living one is refused with the reason."""
    tm_id = rig.some_task_manager()
    before = rig.wait_until_whole()
    elsewhere = rig.engine.write_config("elsewhere", state_dir=rig.folder / "elsewhere")
    second = rig.make_task_manager(tm_id, elsewhere)
    _expect_refusal(second, tm_id)
    rig.mark()
    seconds = rig.wait_for_flow()
    require_unaffected(before, rig.wait_until_whole())
    rig.say(f"a second TaskManager {tm_id} was refused; all keys flow after {seconds:.1f} s")


def _expect_refusal(second: Daemon, tm_id: int) -> None:
    assert second.wait(REFUSAL_TIMEOUT_S), "the second TaskManager goes on"
    assert second.exit_code == 4, f"exit code {second.exit_code}"
    assert f"id {tm_id} is taken" in second.log_file.read_text(errors="replace")


@fault("control-garbage", where=Where.ONE_HOST)
def control_garbage(rig: Rig) -> None:
    """Garbage on every control topic: rejected and counted; no process ends, no task moves."""
    before = rig.wait_until_whole()
    daemons = [rig.job_manager, *rig.task_managers.values()]
    # The round before may have started the JobManager, whose predecessor's heartbeat still counts.
    rig.engine.wait_until(lambda _: all(_METRICS.search(_log(daemon)) for daemon in daemons), 60)
    counts_before = _rejections(daemons)
    taken = _write_garbage(rig, GARBAGE)
    assert taken == GARBAGE, f"Kafka took {taken} of {GARBAGE} messages"
    rig.mark()
    seconds = rig.wait_for_flow()
    time.sleep(4 * HEARTBEAT_S)
    after = rig.wait_until_whole()
    assert all(daemon.exit_code is None for daemon in daemons), "a daemon ended"
    require_unaffected(before, after)
    counts = [a - b for a, b in zip(_rejections(daemons), counts_before, strict=True)]
    assert all(counts), f"not everybody rejected something: {counts}"
    rig.say(f"{taken} garbage messages; all keys flow after {seconds:.1f} s, no task moved")


def _rejections(daemons: Sequence[Daemon]) -> list[int]:
    return [_rejected(daemon) for daemon in daemons]


def _count(log: Path, text: str) -> int:
    return log.read_text(errors="replace").count(text)


def _log(daemon: Daemon) -> str:
    return daemon.log_file.read_text(errors="replace")


def _rejected(daemon: Daemon) -> int:
    """Return how many control messages a daemon says to have rejected, in its metrics."""
    shown = _METRICS.search(_log(daemon))
    assert shown, f"{daemon} shows no metrics"
    with urlopen(f"http://127.0.0.1:{shown[1]}/metrics", timeout=10) as page:
        text = page.read().decode()
    counts = re.findall(r"^\S+_rejected_messages_total(?:\{\S*\})? (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, counts)))


def _write_garbage(rig: Rig, count: int) -> int:
    """Write to all control topics; return how many records Kafka accepted."""
    tasks = [task.task for task in rig.now().tasks]
    garbage = messages(rig.random, rig.engine.names, len(rig.task_managers), tasks)
    producer = Producer({"bootstrap.servers": rig.engine.config.bootstrap_servers})
    taken = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal taken
        taken += error is None

    for record in islice(garbage, count):
        producer.produce(
            record.topic,
            record.value,
            record.key,
            headers=list(record.headers),
            on_delivery=on_delivery,
        )
    producer.flush(30)
    return taken


@fault("clock-jump")
def clock_jump(rig: Rig) -> None:
    """The wall clock of a daemon jumps by an hour, forth or back: nothing happens."""
    before = rig.wait_until_whole()
    name = rig.random.choice(["jm", *(f"tm{tm_id}" for tm_id in rig.task_managers)])
    shift_s = rig.random.choice((3600, -3600))
    rig.clock_file(name).write_text(str(shift_s))
    time.sleep(4 * HEARTBEAT_S)
    rig.mark()
    seconds = rig.wait_for_flow()
    rig.clock_file(name).write_text("0")
    after = rig.wait_until_whole()
    require_unaffected(before, after)
    rig.say(f"clock of {name} {shift_s:+d} s; all keys flow after {seconds:.1f} s, no task moved")
