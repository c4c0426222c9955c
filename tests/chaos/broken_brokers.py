"""Brokers that restart, crash and freeze.

With a single broker, Kafka 4.3.0 and 4.3.1 do not survive these. While the broker stops or starts,
they may treat the only replica of a partition as deleted, and leave out the markers of transactions
that they have promised to commit (KAFKA-20734). No client can compensate for that.
"""

from __future__ import annotations

import signal
import time

from confluent_kafka.admin import AdminClient

from tests.chaos.catalog import fault
from tests.chaos.rig import START_TIMEOUT_S, Rig
from tests.engine import signal_session

BROKER_PAUSE_S = 45.0
RECOVERY_TIMEOUT_S = 120.0
SYNC_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 10
_POLL_S = 0.2


def wait_until_in_sync(rig: Rig) -> None:
    """Wait until all replicas have all records.

    Two of three replicas must have each write. The broker that was broken last may still lack
    some; then nothing can be written until the broker that is broken now comes back.
    """
    client = AdminClient({"bootstrap.servers": rig.cluster.bootstrap_servers})
    deadline_s = time.monotonic() + SYNC_TIMEOUT_S
    while True:
        topics = client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
        behind = [
            f"{name}[{number}]"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas)
        ]
        if not behind:
            return
        assert time.monotonic() < deadline_s, f"replicas are not in sync: {behind}"
        time.sleep(_POLL_S)


@fault("restart-broker")
def restart_broker(rig: Rig) -> None:
    """The broker is stopped and started again; counted from when it serves."""
    before_s = time.monotonic()
    rig.cluster.stop(timeout_s=STOP_TIMEOUT_S)
    assert time.monotonic() - before_s < STOP_TIMEOUT_S, "the broker had to be killed"
    time.sleep(rig.random.uniform(0, 3))
    rig.cluster.start(timeout_s=START_TIMEOUT_S)
    rig.mark()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker restarted; all keys flow {seconds:.1f} s later")


@fault("crash-broker")
def crash_broker(rig: Rig) -> None:
    """kill -9 of the only broker, which is started again; counted from when it serves."""
    rig.cluster.kill(1)
    time.sleep(rig.random.uniform(0, 3))
    rig.cluster.start(timeout_s=START_TIMEOUT_S)
    rig.mark()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker killed and started; all keys flow {seconds:.1f} s later")


@fault("kill-broker", brokers=3)
def kill_broker(rig: Rig) -> None:
    """kill -9 of one of three brokers, with writes going to two of three replicas."""
    wait_until_in_sync(rig)
    broker = rig.random.choice((1, 2, 3))
    rig.mark()
    rig.cluster.kill(broker)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 killed; all keys flow after {seconds:.1f} s")
    rig.cluster.start(broker, timeout_s=START_TIMEOUT_S)


@fault("kill-and-start-broker", brokers=3)
def kill_and_start_broker(rig: Rig) -> None:
    """kill -9 of one of three brokers, which is started again at once."""
    wait_until_in_sync(rig)
    broker = rig.random.choice((1, 2, 3))
    rig.mark()
    rig.cluster.kill(broker)
    rig.cluster.start(broker, timeout_s=START_TIMEOUT_S)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 killed and started; all keys flow after {seconds:.1f} s")


@fault("pause-broker", brokers=3)
def pause_broker(rig: Rig) -> None:
    """SIGSTOP of one of three brokers for 45 s: requests are answered late, commits among them."""
    wait_until_in_sync(rig)
    broker = rig.random.choice((1, 2, 3))
    process = rig.cluster.process(broker)
    assert process is not None
    rig.mark()
    process.send(signal.SIGSTOP)
    time.sleep(BROKER_PAUSE_S)
    process.send(signal.SIGCONT)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 paused; all keys flow after {seconds:.1f} s")


@fault("freeze-all")
def freeze_all(rig: Rig) -> None:
    """SIGSTOP of everything at once, brokers too, as if the host stopped its virtual machine."""
    numbers = range(1, rig.brokers + 1)
    brokers = [process for n in numbers if (process := rig.cluster.process(n)) is not None]
    assert len(brokers) == rig.brokers, "not all brokers run"
    daemons = [rig.job_manager, *rig.task_managers.values()]
    pause_s = rig.random.uniform(5, 12)
    rig.mark()
    for daemon in daemons:
        signal_session(daemon, signal.SIGSTOP)
    for broker in brokers:
        broker.send(signal.SIGSTOP)
    time.sleep(pause_s)
    for broker in brokers:
        broker.send(signal.SIGCONT)
    for daemon in daemons:
        signal_session(daemon, signal.SIGCONT)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"all frozen for {pause_s:.1f} s; all keys flow {seconds - pause_s:.1f} s later")
