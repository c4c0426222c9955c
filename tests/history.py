"""Backfills in this process, without Spark, for tests."""

from __future__ import annotations

import io
import pickle
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ControlFlow
from kafka_pipeline.streams.backfill.plan import make_plan
from kafka_pipeline.streams.backfill.run import Result, default_work, run_backfill
from kafka_pipeline.streams.backfill.tasks import BackfillTask, Done, Failed
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.testing.driver import TopologyTestDriver

ROOT = Path(__file__).parents[1]
CONFIG = f"""
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
replication_factor: 1
source_topic: in
sink_topic: out
modules: [tests.user_code]
python_path: ["{ROOT}"]
parallelism: """

Row = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]
"""Key, value, timestamp and headers."""


class Interrupted(ControlFlow):
    """What ends a backfill in the middle."""


@dataclass
class Here:
    """Runs tasks one by one; before each one, `interrupts` decides whether to end the run.

    Queries run in this process, if they are given as `local`.
    """

    interrupts: Callable[[BackfillTask], bool] = lambda task: False
    ran: list[str] = field(default_factory=list)
    slots: int = 1
    local: Queries | None = None

    def start(self, config: Config) -> Here:
        return self

    def queries(self) -> Queries:
        assert self.local is not None, "there is no Spark here"
        return self.local

    def run(
        self,
        tasks: Sequence[BackfillTask],
        body: Callable[[BackfillTask], Done | Failed],
        description: str,
    ) -> list[Done | Failed]:
        outcomes = []
        for task in tasks:
            if self.interrupts(task):
                raise Interrupted
            self.ran.append(f"{task.folder.parent.name}/{task.folder.name}")
            # They travel to other hosts.
            outcomes.append(body(pickle.loads(pickle.dumps(task))))
        return outcomes

    def cancel(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class History:
    """A pipeline and its input in a folder."""

    folder: Path
    pipeline: str
    parallelism: int = 1
    sources: dict[str, str] = field(default_factory=lambda: {"in": "in.parquet"})

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.yaml").write_text(f"{CONFIG}{self.parallelism}\n")
        (self.folder / "pipeline.yaml").write_text(self.pipeline)

    def write(self, rows: Sequence[Row], name: str = "in.parquet", per_group: int = 100) -> None:
        """Write the input."""
        headers = [[{"key": k, "value": v} for k, v in row[3]] or None for row in rows]
        type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        table = pa.table(
            {
                "key": pa.array([row[0] for row in rows], pa.binary()),
                "value": pa.array([row[1] for row in rows], pa.binary()),
                "timestamp": pa.array([row[2] for row in rows], pa.int64()),
                "headers": pa.array(headers, type_),
            }
        )
        pq.write_table(table, self.folder / name, row_group_size=per_group)

    def run(
        self,
        jobs: Here | None = None,
        to: str = "results",
        work: Path | None = None,
        console: Console | None = None,
    ) -> Result:
        """Run a backfill, or go on with one."""
        from_ = [f"{name}={self.folder / path}" for name, path in self.sources.items()]
        plan = make_plan(
            self.folder / "config.yaml", self.folder / "pipeline.yaml", from_, str(self.folder / to)
        )
        return run_backfill(
            plan,
            work or default_work(plan),
            console or Console(file=io.StringIO()),
            (jobs or Here()).start,
        )

    def results(self, topic: str, to: str = "results") -> list[list[Row]]:
        """Return what each partition of a topic got."""
        return [
            read_results(self.folder / to / topic / f"{number}.parquet")
            for number in range(self.parallelism)
        ]

    def streamed(self, rows: dict[str, Sequence[Row]], *topics: str) -> list[list[Row]]:
        """Return what a `TopologyTestDriver` writes to topics, one partition each.

        Of several topics, it gets the older record first; at equal times, in the order of `rows`.
        """
        files = self.folder / "config.yaml", self.folder / "pipeline.yaml"
        with TopologyTestDriver.of_pipeline(*files) as driver:
            inputs = {name: driver.create_input_topic(name) for name in rows}
            waiting = {name: deque(records) for name, records in rows.items()}
            while any(waiting.values()):
                name = min(filter(waiting.get, waiting), key=lambda name: waiting[name][0][2])
                key, value, timestamp, headers = waiting[name].popleft()
                inputs[name].pipe_input(key, value, timestamp, headers)
            return [
                [(k, v, time, list(headers)) for k, v, time, headers, _ in driver.log(topic)]
                for topic in topics
            ]


def backfill_command(history: History) -> list[str]:
    """Return the command that runs a backfill, for a process of its own."""
    folder = history.folder
    files = [str(folder / "config.yaml"), str(folder / "pipeline.yaml")]
    where = ["--from", str(folder / "in.parquet"), "--to", str(folder / "results")]
    return command("backfill", *files, *where)


def command(*words: str) -> list[str]:
    """Return a call of `pipeline`."""
    return [sys.executable, "-c", "from kafka_pipeline.admin.cli import main; main()", *words]


def read_results(path: Path) -> list[Row]:
    """Return the records of a file of results."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert {row["partition"] for row in rows} <= {int(path.stem)}
    return [
        (
            row["key"],
            row["value"],
            round(row["timestamp"].timestamp() * 1000),
            [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for row in rows
    ]
