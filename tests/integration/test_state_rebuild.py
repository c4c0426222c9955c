"""State that is computed again takes over on a real Kafka, also if that is killed at each step."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.errors import ConfigError, ControlFlow, PipelineError
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.deployment.deploy import Proposal, deploy
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.prepare import prepared
from kafka_pipeline.operations.savepoints import state_rebuild
from kafka_pipeline.operations.savepoints.create import TopicCopy
from kafka_pipeline.operations.savepoints.job_stop import JobStop
from kafka_pipeline.operations.savepoints.restore import Restore
from kafka_pipeline.operations.savepoints.state_rebuild import StateRebuild
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.history import Here
from tests.tasks import Job, Record, run_once
from tests.user_code.rebuilt import GRACE_MS, WINDOW_MS

pytestmark = pytest.mark.integration

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
NAMES = """
- id: Shop
  type: topology
  builder: "tests.user_code.rebuilt:count_names"
  config: {suffix: "SUFFIX"}
"""


class Killed(ControlFlow):
    """What ends a command in the middle."""


class Command:
    """A job without daemons, whose tasks run when the test says so."""

    def __init__(self, job: Job, folder: Path) -> None:
        job.config = replace(job.config, modules=("tests.user_code.rebuilt",), python_path=(ROOT,))
        self.job = job
        self.folder = folder
        self.written = 0
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

    def run(self, version: Proposal, partitions: Sequence[int] = (0, 1)) -> None:
        """Let the tasks process all that there is."""
        for replica in replicas(version.pipeline):
            if replica.task.partition in partitions:
                run_once(self.job.task(replica, self._tm_id))

    def rebuild(
        self, version: Proposal, jobs: Here | None = None, since_ms: int | None = None
    ) -> int:
        """Do what `pipeline apply --rebuild Shop` does."""
        rebuild = StateRebuild(
            self.job.config, self.job.admin, self.folder / "saved", version, "Shop", since_ms, print
        )
        number = rebuild.carry_out(60, jobs or Here(), Console(file=io.StringIO()))
        self._tm_id = 1
        return number

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
