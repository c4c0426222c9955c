"""Names that do not resolve or do so late, and a broker that gets another address."""

from __future__ import annotations

import time

from tests.chaos.broken_brokers import RECOVERY_TIMEOUT_S, STOP_TIMEOUT_S, wait_until_in_sync
from tests.chaos.catalog import Where, fault
from tests.chaos.host_rig import on_hosts
from tests.chaos.rig import START_TIMEOUT_S, Rig, require_unaffected

SILENT_S = 60.0
LATE_S = 2.0


@fault("names-down", where=Where.HOSTS)
def names_down(rig: Rig) -> None:
    """The resolver is silent for a minute: what is connected goes on, and no task moves."""
    resolver = on_hosts(rig).network.resolver
    before = rig.wait_until_whole()
    rig.mark()
    resolver.is_silent = True
    try:
        time.sleep(SILENT_S)
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    finally:
        resolver.is_silent = False
    require_unaffected(before, rig.now())
    rig.say(f"no name resolved for {SILENT_S:.0f} s; all keys flow after {seconds:.1f} s")


@fault("names-down-and-kill", where=Where.HOSTS)
def names_down_and_kill(rig: Rig) -> None:
    """A TaskManager is killed and started while no name resolves for 20 to 40 s.

    Tasks that start need new connections, and so names. Counted from when names resolve again.
    """
    resolver = on_hosts(rig).network.resolver
    victim = rig.some_task_manager()
    asked = resolver.queries
    resolver.is_silent = True
    try:
        rig.kill(victim)
        rig.start_task_manager(victim)
        time.sleep(rig.random.uniform(20, 40))
    finally:
        resolver.is_silent = False
    rig.mark()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    assert resolver.queries > asked, "nobody asked for a name"
    if rig.task_managers[victim].exit_code is not None:
        # A supervisor would do that.
        rig.say(f"TaskManager {victim} had ended with {rig.task_managers[victim].exit_code}")
        rig.start_task_manager(victim)
    rig.say(f"TaskManager {victim} killed; all keys flow {seconds:.1f} s after names resolve")


@fault("names-late", where=Where.HOSTS)
def names_late(rig: Rig) -> None:
    """The resolver answers after 2 s, and a broker is killed and started."""
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    broker = rig.random.choice(list(hosts.cluster.hosts))
    hosts.network.resolver.delay_s = LATE_S
    try:
        rig.mark()
        hosts.cluster.kill(broker)
        hosts.cluster.start(broker, timeout_s=START_TIMEOUT_S)
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        wait_until_in_sync(rig)
    finally:
        hosts.network.resolver.delay_s = 0.0
    rig.say(f"broker {broker} killed, names late; all keys flow after {seconds:.1f} s")


@fault("broker-moved", where=Where.HOSTS)
def broker_moved(rig: Rig) -> None:
    """A broker is stopped, and comes back under its name with another address."""
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    broker = rig.random.choice(list(hosts.cluster.hosts))
    host = hosts.cluster.hosts[broker]
    former = host.address
    rig.mark()
    hosts.cluster.stop(broker, timeout_s=STOP_TIMEOUT_S)
    hosts.network.move(host)
    hosts.cluster.start(broker, timeout_s=START_TIMEOUT_S)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    wait_until_in_sync(rig)
    rig.mark()
    rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(
        f"broker {broker} moved from {former} to {host.address}; all keys flow after "
        f"{seconds:.1f} s"
    )
