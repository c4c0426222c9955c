"""Worker processes that die or hang, a slow task, and TaskManagers that pause or leave."""

from __future__ import annotations

import os
import signal
import time

from kafka_pipeline.common.protocol.messages import MISSED_BEATS
from tests.chaos.broken_transactions import wait_for
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.rig import (
    HEARTBEAT_S,
    PARTITIONS,
    TRANSACTION_TIMEOUT_S,
    Rig,
    require_unaffected,
)
from tests.engine import signal_session

END_TIMEOUT_S = 30.0
SLOW_S = 20.0


@fault("kill-worker")
def kill_worker(rig: Rig) -> None:
    """kill -9 of a Spark worker process: its TaskManager starts another one.

    The new process has the same local stores. If they were ahead of Kafka, nothing would have
    repaired them yet.
    """
    victim = rig.some_task_manager()
    point = rig.random.choice(("", "before-offsets", "before-commit", "after-commit"))
    pid = rig.worker_pid(victim)
    if point:
        wait_for(rig.set_fault(victim, point, "stop"))
    rig.mark()
    os.kill(pid, signal.SIGKILL)
    seconds = rig.wait_for_flow()
    rig.say(
        f"worker {pid} of TaskManager {victim} killed {point or 'somewhere'}; "
        f"all keys flow after {seconds:.1f} s"
    )
    assert rig.worker_pid(victim) != pid


@fault("kill-jvm")
def kill_jvm(rig: Rig) -> None:
    """kill -9 of Spark's JVM: the TaskManager ends with exit code 1, others take over."""
    victim = rig.some_task_manager()
    rig.mark()
    os.kill(rig.jvm_pid(victim), signal.SIGKILL)
    seconds = rig.wait_for_flow()
    rig.say(f"JVM of TaskManager {victim} killed; all keys flow after {seconds:.1f} s")
    daemon = rig.task_managers[victim]
    assert daemon.wait(END_TIMEOUT_S), "the TaskManager does not end"
    assert daemon.exit_code == 1, f"exit code {daemon.exit_code}"
    rig.start_task_manager(victim)


@fault("hang-past-transaction-timeout")
def hang_past_transaction_timeout(rig: Rig) -> None:
    """A PipelineThread hangs past the transaction timeout, and goes on: replayed once."""
    victim = rig.some_task_manager()
    pid = rig.worker_pid(victim)
    hang_s = TRANSACTION_TIMEOUT_S + rig.random.uniform(2.5, 5)
    sign = rig.set_fault(victim, "before-offsets", f"sleep {hang_s:.2f}")
    wait_for(sign)
    rig.mark()
    seconds = rig.wait_for_flow()
    assert rig.worker_pid(victim) == pid, "the worker was ended though it hung for a while only"
    rig.say(f"TaskManager {victim} hung for {hang_s:.1f} s; all keys flow after {seconds:.1f} s")


@fault("hang-forever")
def hang_forever(rig: Rig) -> None:
    """A PipelineThread hangs forever: its TaskManager kills it and starts another one."""
    victim = rig.some_task_manager()
    pid = rig.worker_pid(victim)
    sign = rig.set_fault(victim, "before-produce", "stop")
    wait_for(sign)
    rig.mark()
    seconds = rig.wait_for_flow(timeout_s=120)
    rig.say(f"worker {pid} of TaskManager {victim} froze; all keys flow after {seconds:.1f} s")
    assert rig.worker_pid(victim) != pid


@fault("slow-task")
def slow_task(rig: Rig) -> None:
    """A task in front of a repartition gets a tenth of its records done for 20 s: windows wait.

    The other tasks of its processor go on as before. The task has its turns among others of its
    thread, so on a busy machine it gets even less done.
    """
    if rig.times is None:
        raise SkippedError("only --kind dsl and queries have windows behind a repartition")
    partition = rig.random.randrange(PARTITIONS)
    before = rig.now()
    written_before = rig.load.written_in(partition)
    rig.mark()
    passed = rig.set_brake(partition, rig.load.rate_in(partition) / 10)
    try:
        began_s = time.monotonic()
        seconds = rig.wait_for_flow(timeout_s=90)
        time.sleep(max(began_s + SLOW_S - time.monotonic(), 0))
        count, written = passed.stat().st_size, rig.load.written_in(partition) - written_before
    finally:
        rig.brake.unlink()
    assert 0 < count <= written / 5, f"{count} of {written} records passed: it was not slow"
    require_unaffected(before, rig.now())
    rig.say(
        f"in {SLOW_S:.0f} s, {count} of {written} records of partition {partition} passed; "
        f"all other results flow after {seconds:.1f} s"
    )


@fault("pause-past-detection")
def pause_past_detection(rig: Rig) -> None:
    """SIGSTOP of a TaskManager past detection, then SIGCONT: fenced, and back again.

    As a rule, this happens in the middle of a transaction. The TaskManager comes back before or
    after the brokers abort it. Before, only the fence keeps it from committing work that others
    have redone.
    """
    zombie = rig.some_task_manager()
    point = rig.random.choice(("", "before-produce", "before-offsets", "before-commit"))
    pause_s = rig.random.uniform((MISSED_BEATS + 1) * HEARTBEAT_S, TRANSACTION_TIMEOUT_S + 2)
    if point:
        wait_for(rig.set_fault(zombie, point, "stop"))
    rig.mark()
    signal_session(rig.task_managers[zombie], signal.SIGSTOP)
    time.sleep(pause_s)
    rig.engine.wait_until(lambda status: all(t.owner != zombie for t in status.tasks), 30)
    signal_session(rig.task_managers[zombie], signal.SIGCONT)
    seconds = rig.wait_for_flow()
    rig.say(
        f"TaskManager {zombie} paused {point or 'somewhere'} for {pause_s:.1f} s; "
        f"all keys flow after {seconds:.1f} s"
    )


@fault("wake-before-fence")
def wake_before_fence(rig: Rig) -> None:
    """A TaskManager freezes in a commit, and goes on just before the next owner fences it."""
    zombie = rig.some_task_manager()
    wait_for(rig.set_fault(zombie, "before-offsets", "stop"))
    rig.mark()
    signal_session(rig.task_managers[zombie], signal.SIGSTOP)
    others = [tm_id for tm_id in rig.task_managers if tm_id != zombie]
    signs = [rig.set_fault(tm_id, "before-fence", "stop") for tm_id in others]
    for sign in signs:
        wait_for(sign)
    has_committed = rig.set_fault(zombie, "after-commit", "sleep 0")
    signal_session(rig.task_managers[zombie], signal.SIGCONT)
    # Long enough for a commit, but too short for the other TaskManagers to be missed.
    time.sleep(HEARTBEAT_S)
    for tm_id in others:
        os.kill(rig.worker_pid(tm_id), signal.SIGCONT)
    seconds = rig.wait_for_flow()
    committed = "committed" if has_committed.exists() else "did not commit"
    rig.clear_faults(zombie)
    rig.say(
        f"TaskManager {zombie} froze, woke before its fence, and {committed}; "
        f"keys flow after {seconds:.1f} s"
    )


@fault("pause-short")
def pause_short(rig: Rig) -> None:
    """SIGSTOP of a TaskManager shorter than detection: nothing moves."""
    paused = rig.some_task_manager()
    before = rig.now()
    pause_s = rig.random.uniform(0.3, 1.7) * HEARTBEAT_S
    rig.mark()
    signal_session(rig.task_managers[paused], signal.SIGSTOP)
    time.sleep(pause_s)
    signal_session(rig.task_managers[paused], signal.SIGCONT)
    seconds = rig.wait_for_flow()
    rig.say(f"TaskManager {paused} paused for {pause_s:.1f} s; all keys flow after {seconds:.1f} s")
    time.sleep(1.5 * HEARTBEAT_S)
    require_unaffected(before, rig.now())


@fault("stop-gracefully")
def stop_gracefully(rig: Rig) -> None:
    """SIGTERM to a TaskManager: it commits, leaves, and others go on at once."""
    leaver = rig.some_task_manager()
    rig.mark()
    rig.task_managers[leaver].terminate()
    seconds = rig.wait_for_flow()
    rig.say(f"TaskManager {leaver} told to stop; all keys flow after {seconds:.1f} s")
    daemon = rig.task_managers[leaver]
    assert daemon.wait(END_TIMEOUT_S), "the TaskManager does not end"
    assert daemon.exit_code == 0, f"exit code {daemon.exit_code}"
    rig.start_task_manager(leaver)
