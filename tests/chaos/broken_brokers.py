"""Brokers that restart, crash and freeze."""

from __future__ import annotations

import signal
import time

from tests.chaos.catalog import fault
from tests.chaos.rig import Rig

BROKER_PAUSE_S = 45.0
RECOVERY_TIMEOUT_S = 120.0


@fault("restart-broker")
def restart_broker(rig: Rig) -> None:
    """The broker is stopped and started again; counted from when it serves."""
    rig.cluster.stop()
    time.sleep(rig.random.uniform(0, 3))
    rig.cluster.start()
    _recover(rig, "broker restarted")


@fault("kill-broker")
def kill_broker(rig: Rig) -> None:
    """kill -9 of the broker; counted from when it serves again."""
    rig.cluster.kill(1)
    rig.cluster.start()
    _recover(rig, "broker killed and started")


@fault("pause-broker")
def pause_broker(rig: Rig) -> None:
    """SIGSTOP of the broker for 45 s: requests are answered late, commits among them."""
    process = rig.cluster.process(1)
    assert process is not None
    process.send(signal.SIGSTOP)
    time.sleep(BROKER_PAUSE_S)
    process.send(signal.SIGCONT)
    _recover(rig, f"broker paused for {BROKER_PAUSE_S:.0f} s")


@fault("kill-one-of-three", brokers=3)
def kill_one_of_three(rig: Rig) -> None:
    """kill -9 of one of three brokers, with writes going to two of three replicas."""
    broker = rig.random.choice((1, 2, 3))
    rig.mark()
    rig.cluster.kill(broker)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 killed; all keys flow after {seconds:.1f} s")
    rig.cluster.start(broker)


def _recover(rig: Rig, what: str) -> None:
    rig.mark()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"{what}; all keys flow {seconds:.1f} s later")
