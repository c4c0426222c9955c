"""Tasks in a world that is made from a seed: owners come, go and fight over the tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from kafka_pipeline.common.topics import TopicSpec
from tests.memory.broker import Broker
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.driving import Owner, Surroundings, TaskOwner, ThreadOwner, simulated
from tests.memory.faults import CALM, Faults, Weather
from tests.memory.judge import Judge
from tests.memory.pipelines import MODULES, PIPELINES, SIBLINGS, Pipeline
from tests.memory.upstream import Upstream
from tests.small_config import small_config

ACTS = 60
STEPS_TO_THE_END = 10_000
"""More steps than a task waits before it starts again, even after many failures."""
STEPS_TO_LEAVE = 200
_TASK_MANAGERS = 3
_LONGEST_PAUSE_S = 30.0
_IDLE_S = 13 * 3600.0


def draw_weather(random: Random, with_stuck_calls: bool) -> Weather:
    """Return how unreliable this world is."""
    choose = random.choice
    return Weather(
        delay_ms=choose((0, 5, 100, 2000)),
        marker_delay_ms=choose((0, 20, 1000)),
        bad_commit=choose((0, 0.05, 0.3)),
        broken_connection=choose((0, 0.005, 0.05)),
        crash=choose((0, 0.002, 0.01)),
        preempted=choose((0, 0.02, 0.1)),
        quiet_fetch=choose((0, 0.03)),
        replaced_reader=choose((0, 0.02)),
        partial_fetch=choose((0, 0.5)),
        late_end=choose((0, 0.5)),
        early_send=choose((0, 0.3, 1)),
        unknown_offset=choose((0, 0.05)),
        call_ms=choose((0, 0, 5, 60)),
        answer_ms=choose((0, 10, 300, 1500)),
        interrupted_call=choose((0, 0.1, 0.5)),
        stuck_call=choose((0, 0, 0.02)) if with_stuck_calls else 0.0,
        cut_off=choose((0, 0, 0.3)),
    )


class World:
    """Brokers, writers of the input, and the TaskManagers that run the tasks."""

    def __init__(
        self,
        seed: int,
        owner: type[Owner] = TaskOwner,
        pipelines: Sequence[Pipeline] = PIPELINES,
        state_dir: Path | None = None,
    ) -> None:
        """Create the world; its stores are RocksDB's if `state_dir` is set, else in memory."""
        self._random = random = Random(seed)
        self._faults = Faults(random, draw_weather(random, owner is ThreadOwner))
        self.broker = Broker(Clock(), self._faults)
        self._disk = None if state_dir else Disk()
        config = small_config(
            server_port=1,
            tm_number=_TASK_MANAGERS,
            parallelism=2,
            commit_interval_ms=random.choice((10, 100, 1000)),
            transaction_timeout_ms=random.choice((5_000, 15_000)),
            max_batch_records=random.choice((3, 20, 10_000)),
            state_dir=state_dir or Path("/state"),
            modules=MODULES,
        )
        pipeline = random.choice(pipelines)
        chosen = [pipeline]
        if owner is ThreadOwner and random.random() < 0.5:
            chosen.append(random.choice(SIBLINGS))
        read = [TopicSpec(topic, 2, 1) for topic in pipeline.in_topics(config)]
        written = [spec for each in chosen for spec in each.topics(config)]
        self.broker.create_topics(read + written)
        numbers = range(2) if owner is ThreadOwner else range(1)
        inputs = [(topic, number) for topic in pipeline.in_topics(config) for number in numbers]
        self._upstreams = [
            Upstream(self.broker, partition, random, pipeline.poison) for partition in inputs
        ]
        self._judges = [Judge(self.broker, each, config, inputs) for each in chosen]
        replicas = [each.replica(config, number) for each in chosen for number in numbers]
        self._surroundings = Surroundings(config, replicas, self.broker, self._faults)
        self._make_owner = owner
        self._owners: list[Owner] = []
        self._all_owners: list[Owner] = []
        self._started = 0
        self._judged = 0
        names = " next to ".join(each.name for each in chosen)
        self.broker.tell(f"{names}, {self._faults.weather}")

    def live(self) -> None:
        """Let things happen, then end all faults and check the result."""
        with simulated(self._surroundings, self._disk):
            try:
                for _ in range(ACTS):
                    self._act()
                    self._check()
                self._faults.weather = CALM
                self._finish()
                for judge in self._judges:
                    judge.check_end(self._disk)
            finally:
                for owner in self._all_owners:
                    owner.end()

    def _check(self) -> None:
        """Run the judge if something was decided since its last run and all markers are written."""
        if self.broker.is_settled and self.broker.decisions > self._judged:
            self._judged = self.broker.decisions
            for judge in self._judges:
                judge.check()
        if self.broker.is_settled:
            self._check_queries()

    def _check_queries(self) -> None:
        for owner in self._owners:
            for task_id, task in owner.running.items():
                for judge in self._judges:
                    judge.check_queries(task_id, task.stores)

    def _act(self) -> None:
        random = self._random
        deeds: list[tuple[float, Callable[[], None]]] = [
            (10.0, self._step),
            (3.0, random.choice(self._upstreams).act),
            (0.5, self._add_owner),
            (0.2, self._crash),
            (0.2, self._leave),
            (0.2, self._assign),
            (0.2, self._revoke),
            (0.1, self._silence_a_driver),
            (0.2, self._pause),
            (0.2, self._delete_what_is_processed),
            (0.02, lambda: self.broker.clock.advance(_IDLE_S)),
        ]
        weights, actions = zip(*deeds, strict=True)
        random.choices(actions, weights)[0]()
        self._owners = [owner for owner in self._owners if not owner.is_gone]

    def _step(self) -> None:
        """Let an owner do something, mostly the latest one."""
        if not self._owners:
            self._add_owner()
        is_latest = self._random.random() < 0.7
        owner = self._owners[-1] if is_latest else self._random.choice(self._owners)
        owner.step()

    def _add_owner(self) -> None:
        taken = {owner.tm_id for owner in self._owners}
        free = [tm_id for tm_id in range(_TASK_MANAGERS) if tm_id not in taken]
        if not free:
            return
        self._started += 1
        tm_id = self._random.choice(free)
        name = f"owner {self._started} (TaskManager {tm_id})"
        owner = self._make_owner(name, tm_id, self._surroundings)
        owner.clients.link.let_others_act = self._preempt
        self._owners.append(owner)
        self._all_owners.append(owner)

    def _preempt(self) -> None:
        """Let another owner act while one waits for an answer."""
        others = [owner for owner in self._owners if owner.can_act]
        if others and self._random.random() < 0.7:
            self._random.choice(others).step()
        else:
            self._random.choice(self._upstreams).act()

    def _crash(self) -> None:
        if self._owners:
            self._random.choice(self._owners).crash()

    def _leave(self) -> None:
        if self._owners:
            self._random.choice(self._owners).leave()

    def _assign(self) -> None:
        """Assign an owner all tasks that it has lost."""
        if self._owners:
            self._random.choice(self._owners).claim()

    def _revoke(self) -> None:
        owner = self._random.choice(self._owners) if self._owners else None
        if isinstance(owner, ThreadOwner):
            tasks = owner.failed or [replica.task for replica in self._surroundings.replicas]
            owner.revoke(self._random.choice(tasks))

    def _silence_a_driver(self) -> None:
        owner = self._random.choice(self._owners) if self._owners else None
        if isinstance(owner, ThreadOwner):
            owner.silence_driver()

    def _pause(self) -> None:
        seconds = self._random.random() * _LONGEST_PAUSE_S
        self.broker.tell(f"nothing happens for {seconds:.1f} s")
        self.broker.clock.advance(seconds)

    def _delete_what_is_processed(self) -> None:
        for partition in self._judges[0].inputs:
            committed = [
                judge.committed.get(partition, 0)
                for judge in self._judges
                if partition in judge.inputs
            ]
            self.broker.log(partition).delete_before(min(committed))

    def _finish(self) -> None:
        """Let one owner, the latest or a new one, process all remaining input."""
        self.broker.tell("peace")
        for upstream in self._upstreams:
            upstream.finish()
        if self._random.random() < 0.5:
            for owner in self._owners:
                owner.crash()
            self._owners = []
        for owner in self._owners[:-1]:
            self._see_off(owner)
        if not self._owners or self._owners[-1].is_gone:
            self._add_owner()
        owner = self._owners[-1]
        for _ in range(STEPS_TO_THE_END):
            owner.claim()
            owner.step()
            judges = self._judges
            if owner.failed and all(judge.is_done_but_for(owner.failed) for judge in judges):
                self._mend(owner)
            if owner.is_gone:
                self._owners = []
                self._add_owner()
                owner = self._owners[-1]
            elif self._is_done and not owner.is_busy:
                self._see_off(owner)
                return
        raise AssertionError("the task does not come to rest")

    @property
    def _is_done(self) -> bool:
        return self.broker.is_settled and all(judge.is_done for judge in self._judges)

    def _mend(self, owner: Owner) -> None:
        """Act as an operator does on failed tasks, or on their worker."""
        if isinstance(owner, ThreadOwner) and self._random.random() < 0.7:
            for task_id in owner.failed:
                owner.revoke(task_id)
        else:
            owner.crash()

    def _see_off(self, owner: Owner) -> None:
        """Let an owner commit and close everything."""
        owner.leave()
        for _ in range(STEPS_TO_LEAVE):
            if owner.is_gone:
                return
            owner.step()
        raise AssertionError("a worker does not come to its end")
