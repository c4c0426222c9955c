"""Hosts that fall silent, links that are cut in one direction or narrow; on several hosts only.

Nothing is reset: those on the other side learn of it by what does not come.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from tests.chaos.broken_brokers import wait_until_in_sync
from tests.chaos.broken_managers import wait_for_new_epoch
from tests.chaos.catalog import Where, fault
from tests.chaos.host_rig import HostRig, on_hosts
from tests.chaos.rig import HEARTBEAT_S, START_TIMEOUT_S, Rig, require_unaffected
from tests.hosts.relay import Harm

RECOVERY_TIMEOUT_S = 120.0
SILENT_BROKER_S = 30.0
NARROW_KBIT_PER_S = 2000
NARROW_S = 15.0
LOSSY_S = 30.0
END_TIMEOUT_S = 60.0


def sleep_until(monotonic_s: float) -> None:
    """Sleep until a time of the monotonic clock, if it has not come yet."""
    time.sleep(max(monotonic_s - time.monotonic(), 0))


def _silence_worker(rig: HostRig, silent_s: float) -> None:
    victim = rig.some_task_manager()
    rig.mark()
    began_s = time.monotonic()
    with rig.network.silent(rig.workers[victim]):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + silent_s)
    rig.say(
        f"the host of TaskManager {victim} was silent for {silent_s:.0f} s; all keys flow after "
        f"{seconds:.1f} s"
    )


@fault("worker-host-silent-10", where=Where.HOSTS)
def worker_host_silent_10(rig: Rig) -> None:
    """The host of a TaskManager is silent for 10 s: others take over, and it comes back."""
    _silence_worker(on_hosts(rig), 10)


@fault("worker-host-silent-60", where=Where.HOSTS)
def worker_host_silent_60(rig: Rig) -> None:
    """The host of a TaskManager is silent for a minute: others take over, and it comes back."""
    _silence_worker(on_hosts(rig), 60)


@fault("worker-host-gone", where=Where.HOSTS)
def worker_host_gone(rig: Rig) -> None:
    """The host of a TaskManager loses power: nobody closes its connections. A new one comes."""
    hosts = on_hosts(rig)
    victim = rig.some_task_manager()
    rig.mark()
    with hosts.network.silent(hosts.workers[victim]):
        rig.kill(victim)
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"the host of TaskManager {victim} is gone; all keys flow after {seconds:.1f} s")
    rig.start_task_manager(victim)


@fault("jobmanager-host-silent", where=Where.HOSTS)
def jobmanager_host_silent(rig: Rig) -> None:
    """The JobManager's host is silent, and one starts on another host: the first one ends then."""
    hosts = on_hosts(rig)
    before = rig.wait_until_whole()
    former, host = rig.job_manager, hosts.job_manager_host
    rig.mark()
    with hosts.network.silent(host):
        seconds = rig.wait_for_flow()
        time.sleep(rig.random.uniform(0, 5) * HEARTBEAT_S)
        rig.job_manager = rig.start_job_manager()
        after = wait_for_new_epoch(rig, before)
    assert former.wait(END_TIMEOUT_S), "the JobManager that was silent goes on"
    assert former.exit_code == 4, f"exit code {former.exit_code}"
    rig.mark()
    seconds_later = rig.wait_for_flow()
    require_unaffected(before, after)
    rig.say(
        f"the JobManager's host was silent; all keys flow after {seconds:.1f} s, and when it is "
        f"back, after {seconds_later:.1f} s; no task moved"
    )


@fault("half-open-from-worker", where=Where.HOSTS)
def half_open_from_worker(rig: Rig) -> None:
    """What a TaskManager sends to the brokers is lost, past detection; it could hear them."""
    hosts = on_hosts(rig)
    victim = rig.some_task_manager()
    worker = hosts.workers[victim]
    rig.mark()
    with hosts.network.blocked(*((worker, broker) for broker in hosts.cluster.hosts.values())):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        time.sleep(rig.random.uniform(0, 6) * HEARTBEAT_S)
    rig.say(f"TaskManager {victim} could not send; all keys flow after {seconds:.1f} s")


@fault("half-open-to-worker", where=Where.HOSTS)
def half_open_to_worker(rig: Rig) -> None:
    """What the brokers send to a TaskManager is lost, past detection; they could hear it."""
    hosts = on_hosts(rig)
    victim = rig.some_task_manager()
    worker = hosts.workers[victim]
    rig.mark()
    with hosts.network.blocked(*((broker, worker) for broker in hosts.cluster.hosts.values())):
        time.sleep(rig.random.uniform(2, 15))
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"TaskManager {victim} got no answers; all keys flow after {seconds:.1f} s")


@fault("narrow-link", where=Where.HOSTS)
def narrow_link(rig: Rig) -> None:
    """A TaskManager's host has 2 Mbit/s for 15 s."""
    hosts = on_hosts(rig)
    victim = rig.some_task_manager()
    with hosts.network.narrow(hosts.workers[victim], NARROW_KBIT_PER_S):
        time.sleep(NARROW_S)
        rig.mark()
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(
        f"TaskManager {victim} had {NARROW_KBIT_PER_S / 1000:.0f} Mbit/s; all keys flow after "
        f"{seconds:.1f} s"
    )


@fault("lossy-link", where=Where.HOSTS)
def lossy_link(rig: Rig) -> None:
    """A TaskManager's host loses 5 % of its packets for 30 s; others are late by 30 ms ± 20."""
    hosts = on_hosts(rig)
    victim = rig.some_task_manager()
    harm = Harm(loss=0.05, delay_ms=30, jitter_ms=20, duplicates=0.01)
    with hosts.network.harmed(hosts.workers[victim], harm, rig.random.random()):
        time.sleep(LOSSY_S)
        rig.mark()
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"TaskManager {victim} lost packets; all keys flow after {seconds:.1f} s")


@fault("broker-host-silent", where=Where.HOSTS)
def broker_host_silent(rig: Rig) -> None:
    """The host of one of three brokers is silent for at least 30 s."""
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    broker = rig.random.choice(list(hosts.cluster.hosts))
    rig.mark()
    began_s = time.monotonic()
    with hosts.network.silent(hosts.cluster.hosts[broker]):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + SILENT_BROKER_S)
    rig.say(f"the host of broker {broker} was silent; all keys flow after {seconds:.1f} s")
    wait_until_in_sync(rig)


def cut_from_peers(rig: HostRig, broker: int) -> AbstractContextManager[None]:
    """Cut a broker off from the others, but not from clients."""
    own, others = rig.cluster.hosts[broker], rig.cluster.hosts.items()
    peers = [host for number, host in others if number != broker]
    return rig.network.blocked(*(way for peer in peers for way in ((own, peer), (peer, own))))


@fault("broker-cut-from-peers", where=Where.HOSTS)
def broker_cut_from_peers(rig: Rig) -> None:
    """Clients reach a broker that the other brokers do not reach, for at least 30 s."""
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    broker = rig.random.choice(list(hosts.cluster.hosts))
    rig.mark()
    began_s = time.monotonic()
    with cut_from_peers(hosts, broker):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + SILENT_BROKER_S)
    rig.say(f"broker {broker} was cut from the others; all keys flow after {seconds:.1f} s")
    wait_until_in_sync(rig)


@fault("too-few-brokers", where=Where.HOSTS)
def too_few_brokers(rig: Rig) -> None:
    """The hosts of two of three brokers are silent for 20 s: nothing can be written meanwhile.

    Fewer replicas than `min.insync.replicas` are left, and fewer controllers than a majority.
    Counted from when the hosts are back.
    """
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    lost = rig.random.sample(list(hosts.cluster.hosts), 2)
    with hosts.network.silent(*(hosts.cluster.hosts[broker] for broker in lost)):
        time.sleep(20)
    rig.mark()
    seconds = rig.wait_for_flow(START_TIMEOUT_S)
    rig.say(f"brokers {lost} were silent for 20 s; all keys flow {seconds:.1f} s later")
    wait_until_in_sync(rig)
