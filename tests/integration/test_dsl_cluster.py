"""Each operator of the DSL on a real Kafka gives what the test driver gives, times included.

All topologies run at once in one PipelineThread. Twice, another one takes over on another host,
which restores all state from Kafka. Each topic has one partition. Records for tasks with two inputs
are written while no thread runs: a task that starts reads both to the end before it processes
either, so that the order of the results is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.testing import TopologyTestDriver
from tests.tasks import KEEP, Job, Thread
from tests.user_code.operators import OPERATORS, build
from tests.user_code.operators.windowed import IDLE_MS

pytestmark = [pytest.mark.integration, pytest.mark.long]

TIMEOUT_S = 120.0
WEEK_MS = 7 * 86_400_000
REST_S = 1.0
"""How long to look for results that must not come."""


class Input(NamedTuple):
    """A record to write."""

    topic: str
    key: str
    value: str | None
    timestamp: int


class Output(NamedTuple):
    """A record that was read."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


def of(topic: str, *records: tuple[str, str | None, int]) -> list[Input]:
    return [Input(topic, *record) for record in records]


PHASES: list[list[list[Input]]] = [
    # The global table must have these before the first task begins.
    [of("rates", ("1", "one", 1), ("2", "two", 2))],
    [
        of(
            "a",
            *(("x", "1", 1), ("y", "2", 3), ("x", "3", 7), ("x", "4", 4), ("y", "5", 12)),
            *(("x", "6", 13), ("x", "7", 2)),
        ),
        of("b", ("x", "11", 2), ("y", "12", 5), ("x", "13", 8), ("y", None, 10)),
        of("rows", ("r1", "1a", 3), ("r2", "2b", 4), ("r3", "3c", 5)),
    ],
    [
        of("a", ("x", "8", 17), ("x", "9", 1), ("y", "10", 21), ("x", "11", 26)),
        of("b", ("x", "14", 16), ("y", "15", 20), ("z", "16", 24)),
        of("rows", ("r5", "1e", 17)),
    ],
    [of("rates", ("2", "zwei", 22), ("3", "drei", 23))],
    [
        of("a", ("x", "12", 1000), ("y", "13", 1001)),
        of("b", ("x", "17", 1002), ("x", "18", 1003)),
        of("rows", ("r1", "2a", 30), ("r2", None, 31), ("r4", "1d", 32)),
    ],
]
STARTS = (1, 2, 4)
"""The phases whose records are there when a thread begins."""


def in_order(topics: Sequence[Sequence[Input]]) -> Iterator[Input]:
    """Yield the records of several topics as a task takes them: the head that is earliest."""
    queues = [list(topic) for topic in topics]
    while queues := [queue for queue in queues if queue]:
        yield min(queues, key=lambda queue: queue[0].timestamp).pop(0)


def expected(operator: str) -> list[list[Output]]:
    """Return what the test driver gives up to the end of each phase, after which time passes."""
    with TopologyTestDriver(build(operator, "")) as driver:
        read = {topic for group in build(operator, "").groups for topic in group.in_topics}
        read |= {store.topic for store in build(operator, "").global_stores}
        names = {record.topic for topics in PHASES for topic in topics for record in topic}
        inputs = {name: driver.create_input_topic(name) for name in read & names}
        output = driver.create_output_topic(f"out-{operator}")
        found: list[Output] = []
        phases = []
        for topics in PHASES:
            for topic, key, value, timestamp in in_order(topics):
                if topic in inputs:
                    data = None if value is None else value.encode()
                    inputs[topic].pipe_input(key.encode(), data, timestamp=timestamp)
            driver.advance_wall_clock_time(IDLE_MS)
            found += [
                Output(record.key, record.value, record.timestamp, list(record.headers))
                for record in output.read_records()
            ]
            phases.append(list(found))
        return phases


class Cluster:
    """Runs all topologies, thread by thread."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.job = Job(folder, bootstrap_servers)
        self.job.config = replace(self.job.config, parallelism=1, modules=("tests.user_code",))
        self._prefix = f"{self.job.config.job_name}-"
        inputs = {record.topic for topics in PHASES for topic in topics for record in topic}
        outputs = {f"{self._prefix}out-{operator}": operator for operator in OPERATORS}
        own = [*(f"{self._prefix}{name}" for name in inputs), *outputs]
        self.job.admin.ensure_topics([TopicSpec(name, 1, 1, KEEP) for name in own])
        self.pipeline = self._load(folder / "pipeline.yaml")
        self.job.admin.ensure_topics(self.pipeline.data_topics(1))
        servers = {"bootstrap.servers": bootstrap_servers}
        self._producer = Producer(servers)
        self._consumer = Consumer(
            servers | {"group.id": "outputs", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(name, 0, 0) for name in outputs])
        self._operators = outputs
        self.found: dict[str, list[Output]] = {operator: [] for operator in OPERATORS}

    def _load(self, file: Path) -> Pipeline:
        file.write_text(
            "".join(
                f"- id: {operator}\n"
                "  type: topology\n"
                "  builder: tests.user_code.operators:build\n"
                f"  config: {{operator: {operator}, prefix: {self._prefix}}}\n"
                for operator in OPERATORS
            )
        )
        return load_pipeline(file, self.job.config)

    def start(self, tm_id: int) -> Thread:
        """Start a thread on a host of its own, with all tasks."""
        thread = Thread(self.job, tm_id)
        for replica in replicas(self.pipeline):
            thread.assign(replica)
        self.step_until(
            thread,
            lambda: (
                len(states := thread.statuses()) > 0
                and all(status.state is TaskState.RUNNING for status in states)
            ),
        )
        return thread

    def write(self, topics: Sequence[Sequence[Input]]) -> None:
        """Write records while no thread runs."""
        for topic, key, value, timestamp in in_order(topics):
            data = None if value is None else value.encode()
            self._producer.produce(
                f"{self._prefix}{topic}", data, key.encode(), timestamp=timestamp
            )
        assert self._producer.flush(10) == 0

    def step_until(self, thread: Thread, condition: Callable[[], bool]) -> None:
        """Let a thread work until a condition holds, and read what comes out."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, thread.statuses()
            thread.step()
            self._read()

    def wait_for(self, thread: Thread, wanted: Mapping[str, int]) -> None:
        """Let a thread work until there are so many results."""
        try:
            self.step_until(thread, lambda: not self._missing(wanted))
        except AssertionError as error:
            raise AssertionError(f"results are missing: {self._missing(wanted)}") from error

    def _missing(self, wanted: Mapping[str, int]) -> dict[str, str]:
        return {
            operator: f"{len(self.found[operator])} of {count}"
            for operator, count in wanted.items()
            if len(self.found[operator]) < count
        }

    def rest(self, thread: Thread) -> None:
        """Let a thread work on for a while."""
        until_s = time.monotonic() + REST_S
        self.step_until(thread, lambda: time.monotonic() > until_s)

    def _read(self) -> None:
        for message in self._consumer.consume(1000, 0):
            assert message.error() is None, message.error()
            topic, (_, timestamp) = message.topic(), message.timestamp()
            assert topic is not None
            self.found[self._operators[topic]].append(
                Output(
                    message.key(),
                    message.value(),
                    timestamp,
                    message.headers() or [],  # type: ignore[arg-type]
                )
            )

    def policy(self, topic: str) -> tuple[str, int]:
        """Return how a topic of the job is cleaned up, and the retention in ms, as Kafka says."""
        name = f"{topic}_{self.job.config.job_name}"
        (answer,) = self.job.admin_client.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, name)]
        ).values()
        config = answer.result(10)
        return config["cleanup.policy"].value, int(config["retention.ms"].value)

    def close(self) -> None:
        self._consumer.close()
        self.job.close()


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[list[Output]]]:
    """What the test driver gives for each operator, phase by phase."""
    return {operator: expected(operator) for operator in OPERATORS}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    bootstrap_servers: str,
    wanted: Mapping[str, Sequence[Sequence[Output]]],
) -> Iterator[Cluster]:
    """All topologies after all phases."""
    folder = tmp_path_factory.mktemp("dsl")
    with closing(Cluster(folder, bootstrap_servers)) as made:
        thread: Thread | None = None
        for number, topics in enumerate(PHASES):
            if thread is not None and number in STARTS:
                thread.close()
            made.write(topics)
            if number in STARTS:
                thread = made.start(tm_id=number)
            if thread is not None:
                made.wait_for(thread, {o: len(phases[number]) for o, phases in wanted.items()})
        assert thread is not None
        made.rest(thread)
        thread.close()
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_gives_what_the_test_driver_gives(
    operator: str, cluster: Cluster, wanted: Mapping[str, Sequence[Sequence[Output]]]
) -> None:
    assert wanted[operator][-1], "nothing is compared"
    assert cluster.found[operator] == wanted[operator][-1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("topic", "policy"),
    [
        ("repartition_Again-repartition", ("delete", -1)),
        ("join_by_foreign_key_Rated-subscriptions-repartition", ("delete", -1)),
        ("state_topic_count-A_Counts", ("compact", -1)),
        ("state_topic_tumbling-A_Counts", ("compact,delete", WEEK_MS + 15)),
        ("state_topic_tumbling-A_Counts-times", ("compact", -1)),
        ("state_topic_sessions-A_Counts", ("compact,delete", WEEK_MS + 8)),
        ("state_topic_join_streams-A_Joined-left", ("compact,delete", WEEK_MS + 10)),
        ("state_topic_left_join_streams-A_Joined-unmatched", ("compact", -1)),
        ("state_topic_join_versioned_table-A_B", ("compact", -1)),
        ("state_topic_join_versioned_table_later-A_Joined-waiting", ("compact", -1)),
        ("state_topic_deduplicate-A_Once", ("compact,delete", WEEK_MS + 60_006)),
        ("state_topic_distinct-A_Distinct", ("compact", -1)),
    ],
)
def test_a_topic_of_the_engine_is_kept_as_long_as_its_content_is_needed(
    topic: str, policy: tuple[str, int], cluster: Cluster
) -> None:
    """The retention of topics that are only compacted is that of the brokers, without effect."""
    assert cluster.policy(topic) == policy
