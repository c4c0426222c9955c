"""Coordinators that are lost, leaders and replicas that move, and a rolling restart of brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    PartitionMetadata,
)

from tests.chaos.broken_brokers import RECOVERY_TIMEOUT_S, STOP_TIMEOUT_S, wait_until_in_sync
from tests.chaos.broken_hosts import cut_from_peers, sleep_until
from tests.chaos.catalog import Where, fault
from tests.chaos.host_rig import on_hosts
from tests.chaos.rig import START_TIMEOUT_S, Rig, eventually
from tests.hosts.reassignment import Partition, reassign

TRANSACTIONS, GROUPS = "__transaction_state", "__consumer_offsets"
FREEZE_S = 30.0
MOVES = 10
MOVE_EVERY_S = 6.0
MOVE_TIMEOUT_S = 180.0
_REQUEST_TIMEOUT_S = 30


def _partitions(rig: Rig) -> dict[Partition, PartitionMetadata]:
    client = AdminClient({"bootstrap.servers": rig.cluster.bootstrap_servers})
    topics = client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
    return {
        (name, number): partition
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
    }


def _coordinator(rig: Rig) -> tuple[int, str]:
    """Return a broker that coordinates transactions or groups of the job, and which of them.

    Each partition of these topics, of which there are four, has some of them.
    """
    wait_until_in_sync(rig)
    topic = rig.random.choice((TRANSACTIONS, GROUPS))
    leaders = [info.leader for (name, _), info in _partitions(rig).items() if name == topic]
    return rig.random.choice(leaders), topic


@fault("kill-coordinator", brokers=3)
def kill_coordinator(rig: Rig) -> None:
    """kill -9 of the broker that coordinates transactions or groups; it is started again."""
    broker, topic = _coordinator(rig)
    rig.mark()
    rig.cluster.kill(broker)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"broker {broker}, coordinator by {topic}, killed; keys flow after {seconds:.1f} s")
    rig.cluster.start(broker, timeout_s=START_TIMEOUT_S)


@fault("freeze-coordinator", brokers=3)
def freeze_coordinator(rig: Rig) -> None:
    """SIGSTOP of the broker that coordinates transactions or groups, for at least 30 s."""
    broker, topic = _coordinator(rig)
    process = rig.cluster.process(broker)
    assert process is not None
    rig.mark()
    began_s = time.monotonic()
    process.send(signal.SIGSTOP)
    try:
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + FREEZE_S)
    finally:
        process.send(signal.SIGCONT)
    rig.say(f"broker {broker}, coordinator by {topic}, frozen; keys flow after {seconds:.1f} s")


@fault("isolate-coordinator", where=Where.HOSTS)
def isolate_coordinator(rig: Rig) -> None:
    """The host of the coordinator of transactions or groups is silent for at least 30 s."""
    hosts = on_hosts(rig)
    broker, topic = _coordinator(rig)
    rig.mark()
    began_s = time.monotonic()
    with hosts.network.silent(hosts.cluster.hosts[broker]):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + FREEZE_S)
    rig.say(f"broker {broker}, coordinator by {topic}, silent; keys flow after {seconds:.1f} s")
    wait_until_in_sync(rig)


@fault("cut-coordinator-and-kill", where=Where.HOSTS)
def cut_coordinator_and_kill(rig: Rig) -> None:
    """Clients reach a coordinator of groups that the other brokers do not reach; kill -9 of a
    TaskManager. So others start tasks while a broker still answers with offsets from before.
    """
    hosts = on_hosts(rig)
    wait_until_in_sync(rig)
    leaders = [info.leader for (name, _), info in _partitions(rig).items() if name == GROUPS]
    broker = rig.random.choice(leaders)
    rig.mark()
    began_s = time.monotonic()
    with cut_from_peers(hosts, broker):
        seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        victim = rig.some_task_manager()
        rig.mark()
        rig.kill(victim)
        seconds_later = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        sleep_until(began_s + FREEZE_S)
    rig.say(
        f"coordinator {broker} was cut from the others; all keys flow after {seconds:.1f} s, and "
        f"after a kill of TaskManager {victim} within that time, after {seconds_later:.1f} s"
    )
    rig.start_task_manager(victim)
    wait_until_in_sync(rig)


@fault("move-leaders", brokers=3)
def move_leaders(rig: Rig) -> None:
    """All partitions, also those of coordinators, get other leaders ten times in a minute.

    What is measured is the longest time for which some key had no results.
    """
    wait_until_in_sync(rig)

    def act() -> None:
        for _ in range(MOVES):
            before_s = time.monotonic()
            _move_leaders(rig)
            sleep_until(before_s + MOVE_EVERY_S)

    gap_s = _longest_gap(rig, act)
    rig.say(f"leaders moved {MOVES} times; the longest gap of a key was {gap_s:.1f} s")
    leaders = {info.leader for info in _partitions(rig).values()}
    assert len(leaders) == rig.brokers, f"only {leaders} lead"


def _move_leaders(rig: Rig) -> None:
    """Make the second replica of each partition its leader."""
    client = AdminClient({"bootstrap.servers": rig.cluster.bootstrap_servers})
    replicas = {
        place: [*info.replicas[1:], info.replicas[0]] for place, info in _partitions(rig).items()
    }
    reassign(rig.cluster.bootstrap_servers, replicas)
    places = [TopicPartition(*place) for place in replicas]
    # Without keyword arguments, of which confluent-kafka 2.16 takes none here.
    client.elect_leaders(ElectionType.PREFERRED, places).result()
    leaders = {place: info.leader for place, info in _partitions(rig).items()}
    moved = sum(leaders[place] == brokers[0] for place, brokers in replicas.items())
    rig.say(f"{moved} of {len(replicas)} partitions have the leader that they should have")


@fault("move-replicas", brokers=3)
def move_replicas(rig: Rig) -> None:
    """Each partition gives up its leader's replica, and gets it back: Kafka copies it under load.

    What is measured is the longest time for which some key had no results.
    """
    wait_until_in_sync(rig)
    before = {place: info.replicas for place, info in _partitions(rig).items()}
    three = {place: brokers for place, brokers in before.items() if len(brokers) > 2}

    def act() -> None:
        for replicas in ({place: brokers[1:] for place, brokers in three.items()}, three):
            reassign(rig.cluster.bootstrap_servers, replicas)
            _wait_until_moved(rig, replicas)

    gap_s = _longest_gap(rig, act)
    rig.say(f"{len(three)} partitions moved; the longest gap of a key was {gap_s:.1f} s")


def _wait_until_moved(rig: Rig, replicas: Mapping[Partition, Sequence[int]]) -> None:
    def has_moved() -> bool:
        found = _partitions(rig)
        return all(
            sorted(found[place].isrs) == sorted(wanted) for place, wanted in replicas.items()
        )

    eventually(has_moved, MOVE_TIMEOUT_S, "replicas have not moved", 0.5)


@fault("rolling-restart", brokers=3)
def rolling_restart(rig: Rig) -> None:
    """All brokers are stopped and started, one after the other, each once all is in sync.

    What is measured is the longest time for which some key had no results.
    """

    def act() -> None:
        for broker in range(1, rig.brokers + 1):
            wait_until_in_sync(rig)
            before_s = time.monotonic()
            rig.cluster.stop(broker, timeout_s=STOP_TIMEOUT_S)
            rig.say(f"broker {broker} stopped in {time.monotonic() - before_s:.1f} s")
            rig.cluster.start(broker, timeout_s=START_TIMEOUT_S)
        wait_until_in_sync(rig)

    gap_s = _longest_gap(rig, act)
    rig.say(f"all brokers restarted; the longest gap of a key was {gap_s:.1f} s")


def _longest_gap(rig: Rig, act: Callable[[], None]) -> float:
    """Return the longest time without results of some key while something happens."""
    before = len(rig.seconds)
    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(act)
        while not acting.done():
            rig.mark()
            rig.wait_for_flow(RECOVERY_TIMEOUT_S)
        acting.result()
    gap_s = max(rig.seconds[before:])
    rig.seconds[before:] = [gap_s]
    return gap_s
