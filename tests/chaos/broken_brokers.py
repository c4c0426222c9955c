"""Brokers that restart, crash and freeze.

Crash and freeze are for three brokers. A single one that is fenced by its own controller, as
after both, may take the only replicas for deleted and leave out the markers of transactions that
it has promised to commit (Kafka 4.3.1, `TransactionMarkerChannelManager`: "likely deleted already
and hence can be skipped"). No client can make up for that.
"""

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
    rig.mark()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker restarted; all keys flow {seconds:.1f} s later")


@fault("kill-broker", brokers=3)
def kill_broker(rig: Rig) -> None:
    """kill -9 of one of three brokers, with writes going to two of three replicas."""
    broker = rig.random.choice((1, 2, 3))
    rig.mark()
    rig.cluster.kill(broker)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 killed; all keys flow after {seconds:.1f} s")
    rig.cluster.start(broker)


@fault("kill-and-start-broker", brokers=3)
def kill_and_start_broker(rig: Rig) -> None:
    """kill -9 of one of three brokers, which is started again at once."""
    broker = rig.random.choice((1, 2, 3))
    rig.mark()
    rig.cluster.kill(broker)
    rig.cluster.start(broker)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 killed and started; all keys flow after {seconds:.1f} s")


@fault("pause-broker", brokers=3)
def pause_broker(rig: Rig) -> None:
    """SIGSTOP of one of three brokers for 45 s: requests are answered late, commits among them."""
    broker = rig.random.choice((1, 2, 3))
    process = rig.cluster.process(broker)
    assert process is not None
    rig.mark()
    process.send(signal.SIGSTOP)
    time.sleep(BROKER_PAUSE_S)
    process.send(signal.SIGCONT)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker} of 3 paused; all keys flow after {seconds:.1f} s")
