"""Tasks whose offsets or state are gone, or seem to be to some brokers, on brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.pipelines.specs import COUNT_STORE, CountSpec, ForwardSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.taskmanager.offset_doubt import SURE_AFTER_S
from tests.memory.broker import Broker
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.driving import Surroundings, TaskOwner, simulated
from tests.memory.faults import Faults, Weather
from tests.memory.pipelines import STATE_TOPIC
from tests.small_config import small_config

RECORDS = 8
INPUT = ("in", 0)
CONFIG = small_config(server_port=1, state_dir=Path("/state"))
GROUP = CONFIG.topic_names.consumer_group("P")
COUNT = ProcessorReplica(
    TaskId("P", 0),
    CountSpec(),
    ("source",),
    ("sink",),
    ("in",),
    ("out",),
    state_topics={COUNT_STORE: "state"},
)


class Job:
    """The processor P, of which one owner after the other runs the only task."""

    def __init__(self) -> None:
        self.broker = Broker(Clock())
        self.broker.create_topics(
            TopicSpec(name, 1, 1, STATE_TOPIC if name == "state" else {})
            for name in ("in", "in_2", "out", "state")
        )
        self.world = Surroundings(CONFIG, [COUNT], self.broker, Faults())
        self._owners = 0

    def write(self, topic: str = "in") -> None:
        for n in range(RECORDS):
            self.broker.write((topic, 0), b"k", b"v", n)

    def owner(self, replica: ProcessorReplica = COUNT) -> TaskOwner:
        self._owners += 1
        world = replace(self.world, replicas=[replica])
        return TaskOwner(f"owner {self._owners}", 0, world)

    def run(self, replica: ProcessorReplica = COUNT) -> None:
        """Let a new owner process all that is there, and leave."""
        owner, wanted = self.owner(replica), self.broker.log((replica.in_topics[0], 0)).end
        while self.committed(replica.in_topics[0]) != wanted:
            owner.step()
        owner.leave()
        while not owner.is_gone:
            owner.step()

    def committed(self, topic: str = "in") -> int | None:
        return self.broker.offsets_of(GROUP).get((topic, 0))

    def refusal(self, replica: ProcessorReplica = COUNT) -> str:
        """Return why the task fails at its start."""
        owner = self.owner(replica)
        with pytest.raises(AssertionError, match="a task fails") as caught:
            owner.step()
        owner.end()
        return str(caught.value)

    @property
    def counts(self) -> list[int]:
        log = self.broker.log(("out", 0))
        found, _ = log.visible(0)
        return [int(log.entries[at].value or b"") for at in found]


def step_often(owner: TaskOwner) -> None:
    for _ in range(50):
        owner.step()


@pytest.fixture
def job() -> Iterator[Job]:
    found = Job()
    with simulated(found.world, Disk()):
        yield found


def test_task_with_state_does_not_count_records_again_if_its_offsets_are_gone(job: Job) -> None:
    job.write()
    job.run()
    job.broker.forget(GROUP)
    reason = job.refusal()
    assert "group processors_P has no offset of in partition 0, but the task has state" in reason
    assert "`pipeline reset`" in reason
    assert job.committed() is None
    # As a reset with the state kept does it.
    job.broker.set_committed(GROUP, {INPUT: Committed(RECORDS)})
    job.write()
    job.run()
    assert job.counts == [*range(1, 2 * RECORDS + 1)]


def test_task_whose_state_was_perhaps_deleted_by_a_reset_waits_for_its_end(job: Job) -> None:
    job.write()
    job.run()
    job.broker.set_committed(GROUP, {INPUT: Committed(RECORDS, is_being_reset=True)})
    assert "a `pipeline reset` of the processor was interrupted" in job.refusal()
    assert job.committed() == RECORDS


def test_task_whose_state_is_gone_too_begins_anew(job: Job) -> None:
    job.write()
    job.run()
    job.broker.forget(GROUP)
    job.broker.create_topics([TopicSpec("state", 1, 1, STATE_TOPIC)])
    job.broker.topics["state"].id = "another"
    job.run()
    assert job.counts == [*range(1, RECORDS + 1)] * 2


def test_task_without_state_begins_anew(job: Job) -> None:
    replica = replace(COUNT, spec=ForwardSpec(), state_topics={})
    job.write()
    job.run(replica)
    job.broker.forget(GROUP)
    job.run(replica)
    assert job.broker.log(("out", 0)).end > 2 * RECORDS


def test_leader_that_does_not_have_an_offset_for_a_while_fails_no_task(job: Job) -> None:
    """As one that is cut off from the others, whose log ends too early."""
    job.write()
    job.broker.set_committed(GROUP, {INPUT: Committed(RECORDS + 4)})
    owner = job.owner()
    step_often(owner)
    assert job.committed() == RECORDS + 4
    job.write()
    while job.committed() != 2 * RECORDS:
        owner.step()
    assert job.counts == [1, 2, 3, 4]
    owner.end()


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_brokers_that_are_cut_off_lead_no_task_astray(job: Job, seed: int) -> None:
    """They give old offsets, and too early an end of the state, to every other request."""
    job.world = replace(job.world, faults=Faults(Random(seed), Weather(cut_off=0.5)))
    for _ in range(4):
        job.write()
        job.run()
    assert job.counts == [*range(1, 4 * RECORDS + 1)]
    assert any("was restored up to offset 0" in what for _, what in job.broker.story)


def test_offset_that_stays_behind_the_end_fails_the_task(job: Job) -> None:
    job.write()
    job.broker.set_committed(GROUP, {INPUT: Committed(RECORDS + 4)})
    owner = job.owner()
    step_often(owner)
    job.broker.clock.advance(SURE_AFTER_S)
    with pytest.raises(AssertionError, match=r"a task fails .*in\[0\]: .*has lost its end"):
        step_often(owner)
    assert (job.committed(), job.counts) == (RECORDS + 4, [])
    owner.end()


def test_state_of_a_transaction_that_was_aborted_is_no_state(job: Job) -> None:
    session = job.broker.init_producer("/task/P_0", 10)
    job.broker.append(session, ("state", 0), b"k", b"5", 1, None)
    job.write()
    job.run()
    assert job.counts == [*range(1, RECORDS + 1)]


def test_task_that_an_edit_gives_another_input_keeps_its_state(job: Job) -> None:
    job.write()
    job.run()
    other = replace(COUNT, in_topics=("in_2",))
    edited = replace(other, former_inputs=("in",))
    assert edited.fingerprint == other.fingerprint
    job.write("in_2")
    assert "no offset of in_2" in job.refusal(other)
    job.run(edited)
    assert job.counts == [*range(1, 2 * RECORDS + 1)]
    job.broker.forget(GROUP)
    assert "no offset of in_2" in job.refusal(edited)
