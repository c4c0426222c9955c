"""All tasks of a topology on brokers in memory: slow and fast ones, crashes, input that arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.step_time import EXPIRED, EXPIRED_AFTER_IDLE, SPLIT_SESSION
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.memory.broker import Broker
from tests.memory.clients import MemoryPositions
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.driving import Surroundings, TaskOwner, simulated
from tests.memory.event_time_model import Expected, Input, Result, expected
from tests.memory.event_time_plans import MODULE, Drawn, Records, draw, pipeline_of
from tests.memory.faults import CALM, Faults, Weather
from tests.memory.link import Link, WorkerCrashedError
from tests.memory.rescaling import Rescaling
from tests.small_config import small_config
from tests.user_code.timed_windows import OUT, ROWS

_SEEDS_PER_IDLE_RUN, _IDLE_RUN = 5, 4
"""In one of so many runs, partitions become idle."""
_TASK_MANAGERS = 3
_MOST_PARALLELISM = 4
_LONGEST_TRANSACTION_S = 60.0
"""By then, transactions have timed out that nobody ends any more."""
_SPEEDS = (1.0, 1.0, 1.0, 0.3, 0.1, 0.03, 0.01)
_RESTS_BEFORE_THE_END = 0.8
"""How often all other records are processed before the closing ones come."""
_TABLES_COME_FIRST = 0.5
_PACES_S = (0.0, 0.01, 0.1)
"""How long the step of a task takes, on average."""
_RECORDS_AT_ONCE = 2
"""So many records arrive at a time, on average."""
_INTERRUPTED_LOOKS = (0.0, 0.1, 0.3)
"""How often others act before an answer to a `TimeWatch`."""
_MOST_ACTS_BESIDE_LOOK = 20
_LEAST_HASTE = 0.001
_HASTES = (1.0, 1.0, 0.5, 0.1, 0.01)
_TROUBLES = (0.0, 0.0, 1.0, 1.0, 20.0)
"""How often tasks and workers end, relative to others."""
_LOST_DISKS = 0.3
"""How often a worker that ends loses its stores."""
_SILENT_S = (0.0, 0.0, 60.0, 20_000.0)
"""How long all sources are silent between two epochs."""
_LEAST_SPEED_AT_THE_END = 0.1
_SLOW_ROUNDS = 2
"""After so many rounds in which nothing has happened, all tasks are equally fast."""
_MOST_SLOW_ROUNDS = 300
_MOST_ROUNDS = 5_000
_AT_REST_S = 10.0
"""How long nothing happens at rest: longer than tasks wait to say how far they are, and readers are
quiet."""
_IDLE_AT_REST = 12
"""The same in idle periods, as tasks that say nothing are waited for that much longer."""


class Place:
    """One task: its owners, of which the last one is the present one, and its speed."""

    def __init__(self, replica: ProcessorReplica, speed: float) -> None:
        self.replica = replica
        self.speed = speed
        self.owners: list[TaskOwner] = []
        self.started = 0

    @property
    def latest(self) -> TaskOwner | None:
        """The owner that works, as far as anybody knows."""
        self.owners = [owner for owner in self.owners if not owner.is_gone]
        return self.owners[-1] if self.owners else None


class Worker:
    """A TaskManager: its tasks share what lets them know how far their inputs are."""

    def __init__(self, tm_id: int, config: Config, broker: Broker, random: Random) -> None:
        self.tm_id = tm_id
        weather = Weather(preempted=random.choice(_INTERRUPTED_LOOKS))
        self.link = Link(broker, Faults(random, weather))
        positions = MemoryPositions(self.link)
        self.time_watch = TimeWatch(config, positions, broker.clock.monotonic)
        self.is_looking = False


class EventTimeWorld:
    """A run of a topology, from a seed."""

    queries: Any = None
    """What runs queries, if there are any."""

    def __init__(
        self,
        seed: int,
        *,
        weather: Weather | None = None,
        state_dir: Path | None = None,
        looks_up: bool = False,
    ) -> None:
        """Create the world; its stores are RocksDB's if `state_dir` is set, else in memory.

        The seed decides about the weather, too, unless it is given. Of tasks that look up rows of
        each other (`looks_up`), the model knows no results.
        """
        self.random = random = Random(seed)
        becomes_idle = seed % _SEEDS_PER_IDLE_RUN == _IDLE_RUN
        self.drawn = self.draw(becomes_idle=becomes_idle, looks_up=looks_up)
        if weather is not None:
            self.drawn = replace(self.drawn, weather=weather)
        self._faults = Faults(random, self.drawn.weather)
        self.broker = Broker(Clock(), self._faults)
        self._disk = None if state_dir else Disk()
        self.config = small_config(
            server_port=1,
            tm_number=_TASK_MANAGERS,
            parallelism=random.randint(1, _MOST_PARALLELISM),
            source_topic="in0",
            sink_topic=OUT,
            commit_interval_ms=random.choice((1, 1, 20, 500)),
            idle_after_ms=self.drawn.idle_after_ms,
            transaction_timeout_ms=15_000,
            max_batch_records=random.choice((1, 2, 2, 5, 5, 20, 10_000)),
            state_dir=state_dir or Path("/state"),
            modules=(MODULE,),
        )
        plan, inputs = self.drawn.plan, self.drawn.inputs
        self._pipeline = self.load(inputs)
        self.broker.create_topics(self._pipeline.data_topics(1))
        self._inner = [t for t in self._pipeline.arcs if t not in plan.topics]
        self._places = self._places_of(self._pipeline)
        self._acting: list[TaskOwner] = []
        self._surroundings = Surroundings(
            self.config, (), self.broker, self._faults, queries=self.queries
        )
        self._all_owners: list[tuple[TaskId, TaskOwner]] = []
        self._workers = [self._new_worker(tm_id) for tm_id in range(_TASK_MANAGERS)]
        self._haste = {place: random.choice(_HASTES) for place in inputs}
        """How soon the records of a partition arrive."""
        self._arriving: dict[Partition, list[Input]] = {place: [] for place in inputs}
        self._closing = {
            place: Input(number, -1 - number, self.drawn.end_ms, self.closing_stays())
            for number, place in enumerate(inputs)
            # A table says nothing about time. What waits for another task's rows waits for them.
            if place[0] != ROWS or plan.table in ("repartitioned", "history")
        }
        self._troubles = random.choice(_TROUBLES)
        self._pace_s = random.choice(_PACES_S)
        self.broker.tell(str(self.drawn))

    def draw(self, *, becomes_idle: bool, looks_up: bool) -> Drawn[Any]:
        """Return all that is decided before the run."""
        return draw(self.random, becomes_idle=becomes_idle, looks_up=looks_up)

    def load(self, inputs: Records) -> Pipeline:
        """Return the pipeline that processes these inputs."""
        return pipeline_of(self.drawn.plan, inputs, self.config)

    def value_of(self, record: Input) -> bytes:
        """Return the value of a record as a topic has it."""
        return record.value

    def _places_of(self, pipeline: Pipeline) -> list[Place]:
        return [Place(each, self.random.choice(_SPEEDS)) for each in replicas(pipeline)]

    def closing_stays(self) -> bool:
        """Return whether a closing record reaches what comes after the filters."""
        # Directly behind a source, only what reaches the windows closes them.
        return self.drawn.plan.begins_with_windows or self.random.random() < 0.5

    def live(self) -> None:
        """Let things happen, then close all windows, and check the results."""
        with simulated(self._surroundings, self._disk):
            try:
                for epoch in self.drawn.epochs:
                    streams = self._begin_with_table(epoch)
                    self._faults.weather = self.drawn.weather
                    self._begin(streams)
                    self._run()
                    self._faults.weather = CALM
                    if self.random.random() < _RESTS_BEFORE_THE_END:
                        self._come_to_rest()
                        self.broker.clock.advance(self.random.choice(_SILENT_S))
                for place, record in self._closing.items():
                    self._write(place, record)
                self._come_to_rest()
            finally:
                for _, owner in self._all_owners:
                    owner.end()
        if not self.drawn.plan.looks_up:
            self.check()

    # What happens

    def _begin_with_table(self, epoch: Records) -> Records:
        """Let the rows of a table come long before the rest, or not; return what is to come."""
        rows = {place: records for place, records in epoch.items() if place[0] == ROWS}
        may_come = bool(rows) and not self.drawn.arrives and self.drawn.plan.rows_may_come_first
        if not may_come or self.random.random() >= _TABLES_COME_FIRST:
            return epoch
        self._faults.weather = CALM
        self._begin(rows)
        self._come_to_rest()
        return {place: records for place, records in epoch.items() if place not in rows}

    def _begin(self, epoch: Records) -> None:
        """Let the records of an epoch come at once, or from now on."""
        for place, records in epoch.items():
            self._arriving[place] = list(reversed(records))
            while self._arriving[place] and not self.drawn.arrives:
                self._write_next(place)

    def _run(self) -> None:
        random, drawn = self.random, self.drawn
        acts = acts_in_all = random.randint(3, 40) * len(self._places) // len(drawn.epochs)
        writes = sum(map(len, self._arriving.values())) / _RECORDS_AT_ONCE
        while acts > 0 or (drawn.arrives and any(self._arriving.values())):
            acts -= 1
            deeds: list[tuple[float, Callable[[], None]]] = [
                (10.0, self._step),
                (3.0, self._look),
                (10.0 * writes / acts_in_all, self._write_some),
                (0.1 * self._troubles, self._crash),
                (0.05 * self._troubles, self._crash_worker),
                (0.1 * self._troubles, self._leave),
                (0.1 * self._troubles, self._add_rival),
                (100.0 / acts_in_all if drawn.becomes_idle else 0.1, self._pause),
                (0.2, self._delete_what_is_processed),
                (20.0 / acts_in_all if drawn.is_rescaled else 0.0, self._rescale),
            ]
            weights, actions = zip(*deeds, strict=True)
            random.choices(actions, weights)[0]()

    def _step(self) -> None:
        """Let a task do something."""
        weights = [place.speed for place in self._places]
        place = self.random.choices(self._places, weights)[0]
        if self.random.random() < 0.2 and len(place.owners) > 1:
            self.random.choice(place.owners).step()
        else:
            self._step_of(place)

    def _step_of(self, place: Place) -> None:
        owner = place.latest or self._add_owner(place)
        self.broker.clock.advance(self._pace_s * 2 * self.random.random())
        owner.step()

    def _add_owner(self, place: Place) -> TaskOwner:
        taken = {owner.tm_id for owner in place.owners}
        free = [tm_id for tm_id in range(_TASK_MANAGERS) if tm_id not in taken]
        place.started += 1
        tm_id = self.random.choice(free)
        name = f"owner {place.started} of {place.replica.task} (TaskManager {tm_id})"
        own = replace(self._surroundings, replicas=[place.replica])
        owner = TaskOwner(name, tm_id, own, self._workers[tm_id].time_watch)
        owner.clients.link.let_others_act = self._preempt
        place.owners.append(owner)
        self._all_owners.append((place.replica.task, owner))
        return owner

    def _preempt(self) -> None:
        """Let somebody else act while one waits for an answer."""
        self.random.choice((self._step_other, self._look, self._write_some))()

    def _step_other(self) -> None:
        latest = [place.latest for place in self._places]
        others = [owner for owner in latest if owner is not None and owner.can_act]
        if others:
            self.random.choice(others).step()

    def _look(self) -> None:
        """Let a `TimeWatch` ask the brokers, as it does in a thread of its own."""
        self._look_of(self.random.choice(self._workers))

    def _look_of(self, worker: Worker) -> None:
        if worker.is_looking:
            return
        worker.is_looking = True
        try:
            worker.time_watch.look()
        except WorkerCrashedError:
            self._end(worker)
        finally:
            worker.is_looking = False

    def _new_worker(self, tm_id: int) -> Worker:
        worker = Worker(tm_id, self.config, self.broker, self.random)
        worker.link.let_others_act = self._act_beside_look
        return worker

    def _act_beside_look(self) -> None:
        """Let others act between the answers to a `TimeWatch`."""
        for _ in range(self.random.randint(1, _MOST_ACTS_BESIDE_LOOK)):
            self._preempt()

    def _crash_worker(self) -> None:
        self._end(self.random.choice(self._workers))

    def _end(self, worker: Worker) -> None:
        """End a TaskManager with all its tasks; another one takes its place."""
        self._workers[worker.tm_id] = self._new_worker(worker.tm_id)
        for _, owner in self._all_owners:
            if owner.tm_id == worker.tm_id and not owner.is_gone:
                owner.crash()
        if self._disk is not None and self.random.random() < _LOST_DISKS:
            self._disk.lose(f"taskmanager_{worker.tm_id}")

    def _write_some(self) -> None:
        waiting = [place for place, left in self._arriving.items() if left]
        if waiting:
            place = self.random.choices(waiting, [self._haste[each] for each in waiting])[0]
            for _ in range(self.random.randint(1, 2 * _RECORDS_AT_ONCE - 1)):
                self._write_next(place)

    def _write_next(self, place: Partition) -> None:
        if self._arriving[place]:
            self._write(place, self._arriving[place].pop())

    def _write(self, place: Partition, record: Input) -> None:
        self.broker.write(place, b"%d" % record.key, self.value_of(record), record.time_ms)

    def _crash(self) -> None:
        owner = self.random.choice(self._places).latest
        if owner is not None:
            owner.crash()

    def _leave(self) -> None:
        owner = self.random.choice(self._places).latest
        if owner is not None:
            owner.leave()

    def _add_rival(self) -> None:
        """Start a task somewhere else, though its owner does not know yet."""
        place = self.random.choice(self._places)
        if place.latest is not None and len(place.owners) < _TASK_MANAGERS:
            self._add_owner(place)

    def _pause(self) -> None:
        """Let time pass; in idle periods, other partitions then go on than before."""
        random, longest_s = self.random, 5.0
        if self.drawn.becomes_idle:
            longest_s = 3 * self.drawn.idle_after_ms / 1000
            for place in self._haste:
                self._haste[place] = random.choice((1.0, _LEAST_HASTE))
        self.broker.clock.advance(random.random() * longest_s)

    def _delete_what_is_processed(self) -> None:
        """Delete records of internal topics, as the JobManager does."""
        for place in self._places:
            replica = place.replica
            group = self.config.topic_names.consumer_group(replica.task.processor)
            for partition, offset in self.broker.offsets_of(group).items():
                if partition[0] in self._inner:
                    self.broker.log(partition).delete_before(offset)

    def _rescale(self) -> None:
        """Drain the job, and let it go on with other numbers of tasks."""
        self._faults.weather, weather = CALM, self._faults.weather
        user_topics, pipeline = set(self._pipeline.user_topics), self._pipeline
        places = self._places
        self._places = []
        for place in places:
            topics = pipeline.in_topics(pipeline.processor(place.replica.task.processor))
            if user_topics.isdisjoint(topics):
                self._places.append(place)
            else:
                self._stop(place)
        if self._places:
            self._come_to_rest()
        for place in places:
            self._stop(place)
        self.broker.clock.advance(_LONGEST_TRANSACTION_S)
        self._places = places
        parallelism = self.random.randint(1, _MOST_PARALLELISM)
        with TemporaryDirectory() as folder:
            try:
                rescaling = Rescaling(self.broker, pipeline, parallelism, Path(folder))
            except ConfigError as error:
                self.broker.tell(f"the parallelism stays: {error}")
            else:
                self.broker.tell(f"the parallelism is {parallelism}")
                rescaling.carry_out()
                self._let_go_on(rescaling)
        self._faults.weather = weather

    def _let_go_on(self, rescaling: Rescaling) -> None:
        """Go on with other tasks, the first of which have the counts of those before."""
        self._pipeline, moved = rescaling.pipeline, rescaling.moved
        self._places = self._places_of(self._pipeline)
        self._all_owners = [each for each in self._all_owners if each[0].processor not in moved]

    def _stop(self, place: Place) -> None:
        for owner in place.owners:
            owner.leave()
            owner.crash()

    def _come_to_rest(self) -> None:
        """Let all tasks go on, each at its speed, until nothing happens any more."""
        rest_s = _AT_REST_S
        if self.drawn.becomes_idle:
            rest_s += _IDLE_AT_REST * self.drawn.idle_after_ms / 1000
        broker = self.broker
        known, since_s, quiet_rounds = -1, 0.0, 0
        for count in range(_MOST_ROUNDS):
            if broker.decisions != known or not (broker.is_settled and self._is_quiet):
                known, since_s, quiet_rounds = broker.decisions, broker.clock.now_s, 0
            is_slow = quiet_rounds < _SLOW_ROUNDS and count < _MOST_SLOW_ROUNDS
            self._round(_LEAST_SPEED_AT_THE_END if is_slow else 1.0)
            quiet_rounds += 1
            is_long = broker.clock.now_s - since_s >= rest_s and broker.decisions == known
            if is_long and quiet_rounds > _SLOW_ROUNDS + 2:
                return
        raise AssertionError("the tasks do not come to rest")

    def _round(self, least_speed: float) -> None:
        """Let each task do a step, with a probability of its speed, and each worker look."""
        random = self.random
        random.shuffle(self._places)
        for place in self._places:
            if random.random() < max(place.speed, least_speed):
                self._step_of(place)
        for worker in self._workers:
            if random.random() < max(0.5, least_speed):
                self._look_of(worker)

    @property
    def _is_quiet(self) -> bool:
        latest = [place.latest for place in self._places]
        return all(owner is not None and not owner.is_busy for owner in latest)

    # What comes of it

    @property
    def results(self) -> Counter[Result]:
        """The committed records of the output topic."""
        found: Counter[Result] = Counter()
        for log in self.broker.topics[OUT].partitions:
            for entry in log.committed():
                assert entry.key is not None
                assert entry.value is not None
                ids = tuple(sorted(entry.value.split(b",")))
                found[Result(entry.key, ids, entry.timestamp)] += 1
        return found

    @property
    def dropped(self) -> Counter[str]:
        """How many records were dropped, by reason, in committed transactions."""
        # An owner goes on with the counts of the one before it.
        by_task: dict[TaskId, Counter[str]] = {}
        for task, owner in self._all_owners:
            counts = Counter(owner.memory.figures.dropped_by_reason)
            by_task[task] = by_task.get(task, Counter()) | counts
        return sum(by_task.values(), Counter())

    @property
    def after_idle(self) -> int:
        """How many records were late only because their partition had been idle."""
        return self.dropped[EXPIRED_AFTER_IDLE]

    @property
    def skipped(self) -> int:
        """How many records were rejected."""
        found: dict[tuple[str, int], int] = {}
        for processor in {place.replica.task.processor for place in self._places}:
            group = self.config.topic_names.consumer_group(processor)
            for (_, number), at in self.broker.positions_of(group).items():
                task = processor, number
                found[task] = max(found.get(task, 0), at.skipped)
        return sum(found.values())

    def check(self) -> None:
        """Compare results and numbers of rejected and late records with the model."""
        drawn, weather = self.drawn, self.drawn.weather
        known = self.expected()
        rejected = sum(each.is_rejected for found in drawn.inputs.values() for each in found)
        assert self.skipped == rejected, f"{self.skipped} are rejected, not {rejected}"
        dropped = self.dropped
        expired, after_idle = dropped.pop(EXPIRED, 0), dropped.pop(EXPIRED_AFTER_IDLE, 0)
        split = dropped.pop(SPLIT_SESSION, 0)
        assert not dropped, f"dropped for other reasons: {dict(dropped)}"
        wanted, found = (known.comparable(each) for each in (known.results, self.results))
        missing, more = wanted - found, found - wanted
        if drawn.may_miss:
            assert not more, f"too many: {shown(more)}; missing: {shown(missing)}"
        else:
            assert not missing, f"missing: {shown(missing)}; too many: {shown(more)}"
            assert not more, f"too many: {shown(more)}"
        if weather.bad_commit or weather.broken_connection or weather.crash:
            return  # what was committed may not have been counted
        assert expired == known.expired, f"{expired} are late, not {known.expired}"
        if not drawn.may_miss:
            most = known.most_split
            assert split <= most, f"{split} came too late for a session next to them, not {most}"
        self.check_missing(missing.total(), after_idle)

    def expected(self) -> Expected:
        """Return what the model says."""
        drawn = self.drawn
        inputs = {place: each for place, each in self.written.items() if place[0] != ROWS}
        return expected(drawn.plan, inputs, drawn.end_ms, may_miss=drawn.may_miss)

    @property
    def written(self) -> dict[Partition, list[Input]]:
        """All records, with those that close the windows."""
        closing = {place: [each] for place, each in self._closing.items()}
        return {
            place: [*each, *closing.get(place, ())] for place, each in self.drawn.inputs.items()
        }

    def check_missing(self, missing: int, after_idle: int) -> None:
        """Compare how many ids are missing with what was counted as late only after idle."""
        assert after_idle == missing, f"{after_idle} expired after idle, but {missing} are missing"


def shown(results: Counter[Any]) -> str:
    """Return results as a message shows them."""
    return "\n  ".join(["", *map(str, sorted(results.elements()))])


def let_live(world: EventTimeWorld, seed: int) -> None:
    """Let the world of a seed live; print its story if it fails."""
    try:
        world.live()
    except Exception as error:
        story = "\n".join(f"{at_s:10.3f} {what}" for at_s, what in world.broker.story)
        pytest.fail(
            f"{story}\n\nseed {seed}: {world.drawn.plan}\n{type(error).__name__}: {error}\n"
            f"replay with --seed {seed}",
            pytrace=not isinstance(error, AssertionError),
        )
