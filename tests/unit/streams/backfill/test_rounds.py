"""State that is computed in rounds is that of one run, and goes on as if nothing had happened."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.savepoints.rebuild_plan import RebuildPlan
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.backfill import sorted_runs
from kafka_pipeline.streams.backfill.kept_state import KeptState
from kafka_pipeline.streams.backfill.outputs import SortedRuns, runs_of
from kafka_pipeline.streams.backfill.rounds import Reach, Rounds, RoundsPlan, opened_rounds
from kafka_pipeline.streams.backfill.runner import Runner, shown_progress
from kafka_pipeline.streams.backfill.sorted_runs import batches
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.stores import window
from tests.history import Here, History, Interrupted, Row

WINDOWS = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:build"}
"""
NAMES = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:count_names"}
"""
CHAIN = """
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
BEST = """
- id: Best
  type: tests.user_code.rebuilt:Largest
  to: [sink]
  stores: [{name: Best, key: bytes, value: int64, persistent: PERSISTENT}]
"""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records fill several batches."""
    monkeypatch.setattr(sorted_runs, "TASK_BATCH_RECORDS", 15)
    monkeypatch.setattr("kafka_pipeline.streams.backfill.stage._MOST_UNCOMMITTED", 5)
    monkeypatch.setattr("kafka_pipeline.streams.backfill.kept_state._ENTRIES_AT_ONCE", 4)


@dataclass
class Log:
    """The partitions of the source, as Kafka has them: some offsets are markers."""

    partitions: list[list[tuple[int, Row]]]

    @classmethod
    def of(cls, rows: Sequence[Row], partitions: int) -> Log:
        found: list[list[tuple[int, Row]]] = [[] for _ in range(partitions)]
        for row in rows:
            its = found[default_partition(row[0] or b"", partitions)]
            its.append((len(its) + len(its) // 10, row))
        return cls(found)

    def read_range(
        self, config: Config, topic: str, partition: int, start: int, end: int
    ) -> Iterator[RecordBatch]:
        for offset, (key, value, time_ms, _) in self.partitions[partition]:
            if start <= offset < end:
                yield RecordBatch(topic, partition, [key], [value], [time_ms], [offset])

    def ends(self, share: float) -> list[int]:
        """Return the offsets after a share of each partition, less of the later ones."""
        return [
            its[int(len(its) * share / (number + 1)) - 1][0] + 1 if share < 1 else its[-1][0] + 1
            for number, its in enumerate(self.partitions)
        ]

    def before(self, ends: Sequence[int]) -> list[Row]:
        """Return the records before offsets, partition by partition."""
        return [
            row
            for its, end in zip(self.partitions, ends, strict=True)
            for offset, row in its
            if offset < end
        ]


@dataclass
class Case:
    """A pipeline, its records, and rounds over them."""

    history: History
    entry: str
    rows: list[Row]
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log.of(self.rows, self.history.parallelism)

    @property
    def pipeline(self) -> Pipeline:
        folder = self.history.folder
        return load_pipeline(folder / "pipeline.yaml", load_config(folder / "config.yaml"))

    def plan(self, code: str = "") -> RoundsPlan:
        found = RebuildPlan(self.pipeline, self.pipeline, self.entry)
        config = load_config(self.history.folder / "config.yaml")
        return RoundsPlan(config, self.pipeline, found.stages, found.internal, {"code": code})

    def reach(self, offsets: Sequence[int]) -> Reach:
        found = RebuildPlan(self.pipeline, self.pipeline, self.entry)
        return {
            processor: {topic: list(offsets) for topic in topics}
            for processor, topics in found.readers.items()
        }

    def advance(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *shares: float,
        jobs: Here | None = None,
        with_results: bool = False,
        code: str = "",
        start: int = 0,
    ) -> Rounds:
        """Advance to shares of the log, in a process of its own, and return the rounds."""
        monkeypatch.setattr("kafka_pipeline.streams.backfill.kafka.read_range", self.log.read_range)
        plan = self.plan(code)
        if with_results:
            plan = replace(plan, internal=plan.internal | {"out"})
        work = self.history.folder / "work"
        starts = self.reach([start] * self.history.parallelism)
        with shown_progress(Console(file=io.StringIO())) as progress:
            runner = Runner(jobs or Here(), progress, with_values=True)
            with opened_rounds(plan, work, starts, runner) as rounds:
                for share in shares:
                    rounds.advance(self.reach(self.log.ends(share)))
        return rounds

    def results(self) -> Counter[tuple[bytes | None, bytes | None, int]]:
        """Return what the last round has sent to the sink."""
        folders = [*(self.history.folder / "work").glob("round-*/stage-*/*")]
        return Counter(
            each
            for number in range(self.history.parallelism)
            for batch in batches(
                runs_of(folders, "out", number), "out", number, False, self.history.folder
            )
            for each in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        )

    def expected(self, share: float) -> Counter[tuple[bytes | None, bytes | None, int]]:
        """Return what a job that ran from the first record on sends after that share."""
        found = Counter[tuple[bytes | None, bytes | None, int]]()
        for number, its in enumerate(self.log.partitions):
            rows = [row for _, row in its]
            end = self.log.ends(share)[number]
            before = [row for offset, row in its if offset < end]
            for records, sign in ((rows, 1), (before, -1)):
                (out,) = self.history.streamed({"in": records}, "out")
                for key, value, time_ms, _ in out:
                    found[key, value, time_ms] += sign
        return +found

    def state(self, rounds: Rounds) -> dict[str, dict[bytes | None, bytes | None]]:
        """Return all state, by task and store."""
        found: dict[str, dict[bytes | None, bytes | None]] = {}
        for stage in self.plan().stages:
            for replica in stage:
                for store in replica.state_topics:
                    its = found.setdefault(f"{replica.task} {store}", {})
                    for batch in rounds.state(replica, store):
                        its.update(zip(batch.keys, batch.values, strict=True))
        return found

    def times(self, rounds: Rounds) -> dict[str, Mapping[str, int]]:
        return {
            str(replica.task): rounds.times(replica)
            for stage in self.plan().stages
            for replica in stage
        }


def rows(count: int, keys: int = 9) -> list[Row]:
    """Return records with jumps of time, some of them late."""
    chance = random.Random(5)
    found: list[Row] = []
    time_ms = 1_000_000
    for _ in range(count):
        time_ms += chance.choice((0, 10, 40, 40, 700))
        late_ms = chance.choice((0, 0, 0, 300, 900, 2_500))
        found.append(
            (b"k%d" % chance.randrange(keys), b"%d" % chance.randrange(50), time_ms - late_ms, [])
        )
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("pipeline", [WINDOWS, BEST.replace("PERSISTENT", "true")])
def test_a_task_goes_on_from_the_state_as_if_it_had_run_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str, parallelism: int
) -> None:
    entry = "Shop" if pipeline is WINDOWS else "Best"
    case = Case(History(tmp_path, pipeline, parallelism), entry, rows(150))
    case.advance(monkeypatch, 0.2, 0.5, 0.6)
    assert not case.results()
    case.advance(monkeypatch, 1, with_results=True)
    found = case.results()
    assert found
    assert found == case.expected(0.6)


@pytest.mark.parametrize("pipeline", [WINDOWS, NAMES, CHAIN, BEST.replace("PERSISTENT", "false")])
def test_the_state_does_not_depend_on_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    entry = {WINDOWS: "Shop", NAMES: "Shop", CHAIN: "Counter"}.get(pipeline, "Best")
    records = rows(120)
    once = Case(History(tmp_path / "once", pipeline, 2), entry, records)
    often = Case(History(tmp_path / "often", pipeline, 2), entry, records)
    at_once = once.advance(monkeypatch, 0.8)
    in_rounds = often.advance(monkeypatch, 0.1, 0.3, 0.3, 0.8)
    state = once.state(at_once)
    assert any(state.values())
    assert often.state(in_rounds) == state
    assert often.times(in_rounds) == once.times(at_once)


def test_state_that_depends_on_the_wall_clock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = WINDOWS.replace("rebuilt:build", "rebuilt:close_when_idle")
    case = Case(History(tmp_path, pipeline), "Shop", rows(3))
    with pytest.raises(ConfigError, match=r"Shop-Numbers changes its state by the wall clock"):
        case.advance(monkeypatch, 1)


def test_only_what_the_offsets_include_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 3), "Counter", rows(120))
    rounds = case.advance(monkeypatch, 0.3, 0.7)
    counted = Counter(key for key, *_ in case.log.before(case.log.ends(0.7)))
    found = {
        key: int(value or b"0") for its in case.state(rounds).values() for key, value in its.items()
    }
    assert found == counted


@pytest.mark.parametrize("after", range(10))
def test_a_round_that_was_interrupted_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    case = Case(History(tmp_path, CHAIN, 2), "Counter", rows(120))
    first = Here()
    first.interrupts = lambda task: len(first.ran) == after
    with pytest.raises(Interrupted):
        case.advance(monkeypatch, 0.3, 0.7, jobs=first)
    second = Here()
    rounds = case.advance(monkeypatch, 0.7, jobs=second)
    # Reading, Adder and Counter, for 2 partitions each, in 2 rounds.
    assert len(first.ran) + len(second.ran) == 12
    counted = Counter(key for key, *_ in case.log.before(case.log.ends(0.7)))
    found = [value for its in case.state(rounds).values() for value in its.values()]
    assert sum(int(value or b"0") for value in found) == counted.total()


def test_rounds_begin_again_with_other_code_or_if_offsets_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 2), "Counter", rows(120))
    case.advance(monkeypatch, 0.7)
    for share, code in ((0.3, ""), (0.3, "other")):
        rounds = case.advance(monkeypatch, share, code=code)
        counted = Counter(key for key, *_ in case.log.before(case.log.ends(share)))
        found = [value for its in case.state(rounds).values() for value in its.values()]
        assert sum(int(value or b"0") for value in found) == counted.total()
    assert len([*(tmp_path / "work").glob("round-*")]) == 1


def test_rounds_begin_again_if_records_that_they_lack_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 1), "Counter", rows(120))
    case.advance(monkeypatch, 0.3)
    # The first round ended at an offset of about 40.
    for start, share, first in ((20, 0.5, 0), (90, 1, 90)):
        rounds = case.advance(monkeypatch, share, start=start)
        (end,) = case.log.ends(share)
        counted = [offset for offset, _ in case.log.partitions[0] if first <= offset < end]
        found = [value for its in case.state(rounds).values() for value in its.values()]
        assert sum(int(value or b"0") for value in found) == len(counted)


@pytest.mark.parametrize("persistent", [True, False])
def test_the_latest_time_of_a_store_survives_though_its_key_was_deleted(
    tmp_path: Path, persistent: bool
) -> None:
    builder = window(
        "Windows",
        serdes.bytes,
        serdes.bytes,
        retention_ms=1_000,
        window_size_ms=10,
        persistent=persistent,
    )
    first = builder.open(tmp_path / "first", {})
    store: Any = builder.build(first)
    store.put(b"a", b"1", 5_000)
    store.put(b"b", b"2", 9_000)
    store.put(b"b", None, 9_000)
    runs = SortedRuns(tmp_path / "task", 0)
    KeptState({"Windows": first}, 0).write(runs)
    runs.close()
    first.close()
    second = builder.open(tmp_path / "second", {})
    KeptState({"Windows": second}, 0).restore(tmp_path / "task")
    assert second.max_timestamp == 9_000
    assert [value for _, value in second.entries()] == [b"1"]
    second.close()
