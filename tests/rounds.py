"""Rounds over the log of a source in memory, and what windows behind a repartition must give."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from rich.console import Console

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.savepoints.rebuild_plan import RebuildPlan
from kafka_pipeline.streams.backfill.outputs import runs_of
from kafka_pipeline.streams.backfill.rounds import (
    Reach,
    Rounds,
    RoundsPlan,
    Times,
    opened_rounds,
)
from kafka_pipeline.streams.backfill.runner import Runner, shown_progress
from kafka_pipeline.streams.backfill.sorted_runs import batches
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.history import Here, History, Row
from tests.user_code.rebuilt import GRACE_MS, WINDOW_MS


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
        reached: Times | None = None,
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
                    rounds.advance(self.reach(self.log.ends(share)), reached or {})
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


@dataclass
class WindowsModel:
    """The counts of `names_in_windows`, by name and start, as each source partition says alone."""

    counts: Counter[tuple[bytes, int]]
    now: int
    """The time of the partition that is behind; those without records hold nobody back."""

    @classmethod
    def of(cls, log: Log, ends: Sequence[int], modulus: int = 7) -> WindowsModel:
        counts = Counter[tuple[bytes, int]]()
        clocks = []
        for its, end in zip(log.partitions, ends, strict=True):
            clock = -1
            for _, (_, value, time_ms, _) in (entry for entry in its if entry[0] < end):
                clock = max(clock, time_ms)
                start = time_ms // WINDOW_MS * WINDOW_MS
                if start + WINDOW_MS + GRACE_MS > clock:
                    counts[b"name%d" % (int(value or b"") % modulus), start] += 1
            clocks.append(clock)
        return cls(counts, min(clock for clock in clocks if clock >= 0))

    def closed(
        self, since: int, until: int, what: bytes = b"count"
    ) -> Counter[tuple[bytes | None, bytes | None]]:
        """Return the results of windows that close after a time, up to another one."""
        return Counter(
            (name, b"%s %d %d" % (what, start, count))
            for (name, start), count in self.counts.items()
            if since < start + WINDOW_MS + GRACE_MS <= until
        )


def skewed(count: int) -> list[Row]:
    """Return records of which one partition has the later half of the times, and few records."""
    return [
        (key, value, time_ms + (40_000 if default_partition(key or b"", 3) == 1 else 0), headers)
        for key, value, time_ms, headers in rows(count)
    ]
