"""State that is computed again takes over on a real Kafka, also if that is killed at each step."""

from __future__ import annotations

import io
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import TopicPartition
from rich.console import Console

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, ControlFlow, PipelineError, UnavailableError
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.deployment.deploy import Proposal, deploy
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.prepare import prepared
from kafka_pipeline.operations.savepoints import state_rebuild
from kafka_pipeline.operations.savepoints.create import TopicCopy
from kafka_pipeline.operations.savepoints.job_stop import JobStop
from kafka_pipeline.operations.savepoints.restore import Restore
from kafka_pipeline.operations.savepoints.state_rebuild import StateRebuild
from kafka_pipeline.operations.times import shown_time
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.sql.spec import Queries
from tests.history import Here, Row
from tests.rounds import Log, WindowsModel, rows
from tests.tasks import Job, Record, SteppedTask, run_once
from tests.user_code.rebuilt import GRACE_MS, WINDOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
STEP_MS = 100
PER_WINDOW = WINDOW_MS // STEP_MS
KEYS = [b"k%d" % number for number in range(6)]
START_MS = wall_clock_ms() // WINDOW_MS * WINDOW_MS - 3_600_000

SHOP = """
sinks: {results: RESULTS}
processors:
- {id: Other, type: count, to: [sink]}
- id: Shop
  type: topology
  builder: "tests.user_code.rebuilt:windowed"
  config: {factor: FACTOR}
"""
WINDOWS = """
- id: Shop
  type: topology
  builder: "tests.user_code.rebuilt:names_in_windows"
  config: {modulus: MODULUS, what: WHAT}
"""
QUERY = """
- id: Shop
  type: sql
  query: >-
    SELECT concat('name', cast(value AS INT) % MODULUS) AS key,
    concat('WHAT ', unix_millis(window.start), ' ', count(*)) AS value FROM input
    GROUP BY concat('name', cast(value AS INT) % MODULUS), window(timestamp, '1 second')
  emit: on_close
  grace: 500 ms
  to: [sink]
"""
NAMES = """
- id: Shop
  type: topology
  builder: "tests.user_code.rebuilt:count_names"
  config: {suffix: "SUFFIX"}
"""


@dataclass
class InThisProcess:
    """Runs queries for tasks, as a driver does for its workers."""

    queries: Queries

    def while_waiting(self, meanwhile: object) -> Queries:
        return self.queries


class Killed(ControlFlow):
    """What ends a command in the middle."""


class Command:
    """A job without daemons, whose tasks run when the test says so."""

    def __init__(self, job: Job, folder: Path) -> None:
        job.config = replace(job.config, modules=("tests.user_code.rebuilt",), python_path=(ROOT,))
        self.job = job
        self.folder = folder
        self.written = 0
        self.said: list[str] = []
        self._tm_id = 0

    def version(self, text: str) -> Proposal:
        file = self.folder / "pipeline.yaml"
        file.write_text(text)
        loaded = load_pipeline(file, self.job.config)
        return Proposal(prepared(loaded, self.job.config, self.job.admin), text)

    def deploy(self, version: Proposal) -> None:
        deploy(version, self.job.config, self.job.admin, None)

    def write(self, rounds: int) -> None:
        """Write the next numbers of each key."""
        self.job.write(
            *(
                Record(key, b"%d" % number, START_MS + number * STEP_MS, partition=partition(key))
                for number in range(self.written, self.written + rounds)
                for key in KEYS
            )
        )
        self.written += rounds

    def write_rows(self, number: int, part: Sequence[tuple[int, Row]]) -> None:
        """Write records to a partition."""
        self.job.write(
            *(
                Record(key, value, START_MS + time_ms, partition=number)
                for _, (key, value, time_ms, _) in part
            )
        )

    def run_in_time(self, version: Proposal, local: Queries, partitions: Sequence[int]) -> None:
        """Let tasks process all that there is, writers first, and all event time that is known."""
        for replica in replicas(version.pipeline):
            is_writer = replica.in_topics == (self.job.config.source_topic,)
            if is_writer and replica.task.partition not in partitions:
                continue
            context = self.job.context(self._tm_id)
            spark: Any = InThisProcess(local)
            task = SteppedTask(replica, replace(context, queries=spark))
            task.start()
            task.drain()
            context.time_watch.look()
            while task.running.turn(inf).has_more:
                pass
            if task.running.has_uncommitted:
                task.commit()
            task.drop()

    def run(self, version: Proposal, partitions: Sequence[int] = (0, 1)) -> None:
        """Let the tasks process all that there is."""
        for replica in replicas(version.pipeline):
            if replica.task.partition in partitions:
                run_once(self.job.task(replica, self._tm_id))

    def planned(self, version: Proposal, since_ms: int | None = None) -> StateRebuild:
        folder = self.folder / "saved"
        config, admin = self.job.config, self.job.admin
        return StateRebuild(config, admin, folder, version, "Shop", since_ms, self.said.append)

    def rebuild(
        self,
        version: Proposal,
        jobs: Here | None = None,
        since_ms: int | None = None,
        timeout_s: float = 60,
    ) -> int:
        """Do what `pipeline apply --rebuild Shop` does."""
        rebuild = self.planned(version, since_ms)
        number = rebuild.carry_out(timeout_s, jobs or Here(), Console(file=io.StringIO()))
        self.started_again()
        return number

    def started_again(self) -> None:
        """Let another TaskManager run the tasks from now on, whose stores are empty."""
        self._tm_id = 1

    def values(self, topic: str) -> dict[bytes | None, list[bytes]]:
        found: dict[bytes | None, list[bytes]] = {}
        for record in self.job.read(topic):
            found.setdefault(record.key, []).append(record.value or b"")
        return found


def partition(key: bytes) -> int:
    return default_partition(key, 2)


@pytest.fixture
def command(job: Job, tmp_path: Path) -> Command:
    return Command(job, tmp_path)


def sums(rounds: int, factor: int) -> list[bytes]:
    """Return the sums of a key, as each number updates them."""
    found, total = [], 0
    for number in range(rounds):
        total = number * factor + (total if number % PER_WINDOW else 0)
        found.append(b"sum %d %d" % (START_MS + number // PER_WINDOW * WINDOW_MS, total))
    return found


def closed(first: int, last: int, factor: int) -> list[bytes]:
    """Return the windows that close with the numbers from `first` up to, but not, `last`."""
    by_window = {each.split()[1]: each.split()[2] for each in sums(10_000, factor)}
    ends = [number * STEP_MS - GRACE_MS - WINDOW_MS for number in (first - 1, last - 1)]
    return [
        b"closed %s %s" % (start, total)
        for start, total in by_window.items()
        if ends[0] < int(start) - START_MS <= ends[1]
    ]


def killed(*_: object, **__: object) -> NoReturn:
    raise Killed


STEPS: list[tuple[Any, str]] = [
    (TopicCopy, "finish"),
    (state_rebuild._State, "make"),
    (state_rebuild._State, "_write"),
    (Restore, "_renew_topics"),
    (Restore, "_fill"),
    (Restore, "_commit"),
    (JobStop, "end"),
]
"""What is not done any more when the command is killed, in the order of the steps."""


@pytest.mark.parametrize("steps", [[], STEPS])
def test_windows_go_on_as_if_the_new_code_had_run_from_the_start(
    command: Command, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, str]]
) -> None:
    results = command.job.make_topic("results")
    text = SHOP.replace("RESULTS", results)
    old, new = (command.version(text.replace("FACTOR", factor)) for factor in ("1", "10"))
    command.deploy(old)
    command.write(47)
    command.run(old)
    command.write(16)
    command.run(old, [0])
    for owner, name in steps:
        with monkeypatch.context() as patched:
            # Nobody tidies up after SIGKILL.
            patched.setattr(JobStop, "end", killed)
            patched.setattr(owner, name, killed)
            with pytest.raises(Killed):
                command.rebuild(new)
    assert command.rebuild(new) == 2
    deployment = read_deployment(command.job.config, command.job.admin)
    assert deployment.wish is not None
    assert deployment.wish.stop is None
    assert not (command.folder / "saved.work").exists()
    command.write(20)
    command.run(new)
    found = command.values(results)
    for key in KEYS:
        seam = 63 if partition(key) == 0 else 47
        its = found[key]
        assert [each for each in its if each.startswith(b"sum")] == [
            *sums(seam, 1),
            *sums(83, 10)[seam:],
        ]
        assert [each for each in its if each.startswith(b"closed")] == [
            *closed(0, seam, 1),
            *closed(seam, 83, 10),
        ]
    counts = command.values(command.job.config.sink_topic)
    assert counts == {key: [b"%d" % n for n in range(1, 84)] for key in KEYS}


@pytest.mark.parametrize(
    ("text", "steps"), [(QUERY, STEPS), (WINDOWS, STEPS), (WINDOWS, []), (QUERY, [])]
)
def test_windows_behind_a_repartition_go_on_as_if_the_new_version_had_run_from_the_start(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    queries: Queries,
    text: str,
    steps: list[tuple[Any, str]],
) -> None:
    log = Log.of(
        [
            # One partition is ahead of the other.
            (key, value, time_ms + 5_000 * partition(key or b""), headers)
            for key, value, time_ms, headers in rows(200)
        ],
        2,
    )
    old, new = (
        command.version(text.replace("MODULUS", modulus).replace("WHAT", what))
        for modulus, what in (("7", "old"), ("5", "new"))
    )
    command.deploy(old)
    at = [0, 0]
    for share, partitions in ((0.4, (0, 1)), (0.7, (1,))):
        for number in partitions:
            end = int(len(log.partitions[number]) * share)
            command.write_rows(number, log.partitions[number][at[number] : end])
            at[number] = end
        command.run_in_time(old, queries, partitions)
    # What nobody has read yet is for the new version.
    for number, its in enumerate(log.partitions):
        command.write_rows(number, its[at[number] :])
    for owner, name in steps:
        with monkeypatch.context() as patched:
            patched.setattr(JobStop, "end", killed)
            patched.setattr(owner, name, killed)
            with pytest.raises(Killed):
                command.rebuild(new, Here(local=queries))
    assert command.rebuild(new, Here(local=queries)) == 2
    command.run_in_time(new, queries, (0, 1))
    moved = Log(
        [
            [(n, (row[0], row[1], row[2] + START_MS, row[3])) for n, (_, row) in enumerate(its)]
            for its in log.partitions
        ]
    )
    before, after = (
        WindowsModel.of(moved, ends, modulus)
        for ends, modulus in ((at, 7), ([*map(len, log.partitions)], 5))
    )
    read = command.job.read(command.job.config.sink_topic)
    assert Counter((each.key, each.value) for each in read) == (
        before.closed(-1, before.now, b"old") + after.closed(before.now, after.now, b"new")
    )
    assert {(each.value or b"")[:3] for each in read} == {b"old", b"new"}


def test_state_after_a_repartition_goes_on_with_other_code(command: Command) -> None:
    old, new = (command.version(NAMES.replace("SUFFIX", suffix)) for suffix in ("", "!"))
    command.deploy(old)
    command.write(30)
    command.run(old)
    command.write(5)
    command.rebuild(new)
    command.run(new)
    found = command.values(command.job.config.sink_topic)
    assert sum(map(len, found.values())) == 35 * len(KEYS)
    for counts in found.values():
        assert [int(each.rstrip(b"!")) for each in counts] == [*range(1, len(counts) + 1)]
        assert sorted(each.endswith(b"!") for each in counts) == [
            each.endswith(b"!") for each in counts
        ]


def test_only_records_from_a_time_on_are_taken(command: Command) -> None:
    old, new = (command.version(NAMES.replace("SUFFIX", suffix)) for suffix in ("", "!"))
    command.deploy(old)
    command.write(30)
    command.run(old)
    command.rebuild(new, since_ms=START_MS + 20 * STEP_MS)
    command.write(1)
    command.run(new)
    last = [
        each for counts in command.values(command.job.config.sink_topic).values() for each in counts
    ]
    new_ones = sorted(int(each[:-1]) for each in last if each.endswith(b"!"))
    # Number 30 is named 2: of the numbers from 20 on, so was 23.
    assert new_ones == [len(KEYS) + n for n in range(1, len(KEYS) + 1)]


def test_job_goes_on_as_it_was_if_the_new_code_rejects_a_record(command: Command) -> None:
    old, new = (command.version(NAMES.replace("SUFFIX", suffix)) for suffix in ("", "!"))
    command.deploy(old)
    command.write(3)
    command.run(old)

    def fails(task: object) -> bool:
        raise PipelineError("a record was rejected")

    with pytest.raises(PipelineError, match="a record was rejected"):
        command.rebuild(new, Here(interrupts=fails))
    deployment = read_deployment(command.job.config, command.job.admin)
    assert deployment.wish is not None
    assert deployment.wish.version == 1
    assert deployment.wish.stop is None
    (command.folder / "saved").mkdir()
    with pytest.raises(ConfigError, match="saved exists already"):
        command.rebuild(new)


@dataclass
class Codes:
    """What TaskManagers report of their code: the last report is repeated."""

    reports: list[dict[int, dict[str, str]]]

    def status(self, config: Config) -> Codes:
        return self

    @property
    def code(self) -> dict[int, dict[str, str]]:
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]


OTHER_CODE = {0: {"tests.user_code.rebuilt": "000000000000"}}


def test_switch_waits_for_taskmanagers_with_other_code(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (command.version(NAMES.replace("SUFFIX", suffix)) for suffix in ("", "!"))
    command.deploy(old)
    command.write(2)
    command.run(old)
    monkeypatch.setattr(state_rebuild, "read_status", Codes([OTHER_CODE]).status)
    with pytest.raises(UnavailableError, match="so the job continues as it was"):
        command.rebuild(new, timeout_s=1)
    deployment = read_deployment(command.job.config, command.job.admin)
    assert deployment.wish is not None
    assert (deployment.wish.version, deployment.wish.stop) == (1, None)
    monkeypatch.setattr(state_rebuild, "read_status", Codes([OTHER_CODE, OTHER_CODE, {}]).status)
    assert command.rebuild(new) == 2
    assert any("restart the TaskManagers now" in line for line in command.said)


def test_what_a_source_no_longer_has_is_said(command: Command) -> None:
    version = command.version(NAMES.replace("SUFFIX", ""))
    command.deploy(version)
    command.write(10)
    command.run(version)
    source = command.job.config.source_topic
    assert f"  from {source}, all records" in [*command.planned(version).lines()]
    for number in (0, 1):
        count = sum(partition(key) == number for key in KEYS)
        if count:
            cut = TopicPartition(source, number, 4 * count)
            for done in command.job.admin_client.delete_records([cut]).values():
                done.result(30)
    first = shown_time(START_MS + 4 * STEP_MS)
    said = f"  from {source}, which no longer has its first records: the oldest that are left"
    assert f"{said} are of {first}" in [*command.planned(version).lines()]


def test_command_computes_the_state_on_spark(command: Command) -> None:
    config = command.job.config
    settings = {
        **{name: getattr(config, name) for name in ("server_ip", "server_port", "job_name")},
        **{name: getattr(config, name) for name in ("source_topic", "sink_topic", "state_dir")},
        "tm_number": 2,
        "parallelism": 2,
        "replication_factor": 1,
        "heartbeat_interval_ms": 500,
        "modules": "[tests.user_code.rebuilt]",
        "python_path": f"[{ROOT}]",
    }
    file = command.folder / "config.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    old, new = (command.version(NAMES.replace("SUFFIX", suffix)) for suffix in ("", "!"))
    command.deploy(old)
    command.write(20)
    command.run(old)
    words = ["apply", str(file), str(command.folder / "pipeline.yaml"), "--rebuild", "Shop"]
    done = subprocess.run(
        [command_path("pipeline"), *words, "--yes", "--no-wait"],
        cwd=command.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "State computed again: Shop-Names, Shop-ByName" in done.stdout
    assert "version 2 is the pipeline of the job" in done.stdout
    command.write(1)
    command.started_again()
    command.run(new)
    found = command.values(config.sink_topic)
    # All keys have the same number, so one of the 7 names is counted on.
    new_ones = [each for counts in found.values() for each in counts if each.endswith(b"!")]
    assert new_ones == [b"%d!" % (2 * len(KEYS) + n) for n in range(1, len(KEYS) + 1)]
