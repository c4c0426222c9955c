"""The output of a task: a run for each topic and partition that it writes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord
from kafka_pipeline.streams.backfill.partitions import partitions_of
from kafka_pipeline.streams.backfill.sorted_runs import RunWriter, run_table
from kafka_pipeline.streams.engine.outputs import OutputColumns

_RUNS = "runs"


def runs_of(folders: Iterable[Path], topic: str, partition: int) -> list[Path]:
    """Return the runs that tasks have written for a partition, in the order of the tasks."""
    pattern = f"{partition}-*.arrow"
    return [path for f in folders for path in sorted((f / _RUNS / topic).glob(pattern))]


def count_runs(folder: Path) -> int:
    """Return how many runs a task has written for all topics and partitions."""
    return sum(1 for _ in folder.glob(f"{_RUNS}/*/*.arrow"))


def topics_of(folders: Iterable[Path]) -> set[str]:
    """Return the topics that tasks have written to."""
    return {path.name for folder in folders for path in (folder / _RUNS).glob("*")}


class SortedRuns:
    """The sorted runs of a task, in its folder; each number has its own runs."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._folder = folder / _RUNS
        self._number = number
        self._writers: dict[tuple[str, int], RunWriter] = {}

    def write(self, topic: str, table: pa.Table, partitions: npt.NDArray[np.int32]) -> None:
        """Write records to the runs of their partitions, which are 0 or more."""
        for partition in np.unique(partitions):
            chosen = np.flatnonzero(partitions == partition)
            whole = len(chosen) == len(table)
            self._writer(topic, int(partition)).write(
                table if whole else table.take(pa.array(chosen))
            )

    def next_position(self, topic: str, partition: int) -> int:
        """Return how many records were written to a partition so far."""
        return self._writer(topic, partition).records

    def close(self) -> dict[str, int]:
        """Complete all runs; return how many records each topic got."""
        counts: Counter[str] = Counter()
        for (topic, _), writer in self._writers.items():
            writer.close()
            counts[topic] += writer.records
        return +counts

    def _writer(self, topic: str, partition: int) -> RunWriter:
        if (topic, partition) not in self._writers:
            path = self._folder / topic / f"{partition}-{self._number:06}.arrow"
            self._writers[topic, partition] = RunWriter(path)
        return self._writers[topic, partition]


class OutputWriter:
    """Puts the output of a `GroupTask` into runs, and chooses partitions as producers do."""

    def __init__(
        self,
        runs: SortedRuns,
        num_partitions: Callable[[str], int],
        wanted: Collection[str] | None,
    ) -> None:
        """Write what goes to the `wanted` topics, or all of it."""
        self._runs = runs
        self._num_partitions = num_partitions
        self._wanted = wanted

    def write(self, outputs: Sequence[OutputRecord | OutputColumns]) -> None:
        """Write records after those that were written before."""
        singles: dict[str, list[OutputRecord]] = {}
        wanted = self._wanted
        for output in outputs:
            if wanted is not None:
                topic = output.topic if isinstance(output, OutputColumns) else output[0]
                if topic not in wanted:
                    continue
            if isinstance(output, OutputColumns):
                self._write_singles(output.topic, singles.pop(output.topic, []))
                self._write_columns(output)
            else:
                singles.setdefault(output[0], []).append(output)
        for topic, records in singles.items():
            self._write_singles(topic, records)

    def _write_columns(self, output: OutputColumns) -> None:
        keys = pa.array(output.keys, pa.binary())
        partitions = self._by_key(output.topic, keys)
        if output.partitions is not None:
            chosen = np.array(output.partitions, np.int32)
            partitions = np.where(chosen < 0, partitions, chosen)
        self._write(
            output.topic, keys, output.values, output.timestamps, output.headers, partitions
        )

    def _write_singles(self, topic: str, records: Sequence[OutputRecord]) -> None:
        if not records:
            return
        _, keys, values, given, timestamps, headers = zip(*records, strict=True)
        column = pa.array(keys, pa.binary())
        chosen = np.array(given, np.int32)
        partitions = np.where(chosen < 0, self._by_key(topic, column), chosen)
        has_headers = headers if any(headers) else None
        self._write(topic, column, values, timestamps, has_headers, partitions)

    def _by_key(self, topic: str, keys: pa.Array) -> npt.NDArray[np.int32]:
        return partitions_of(keys, self._num_partitions(topic))

    def _write(
        self,
        topic: str,
        keys: pa.Array,
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[KafkaHeaders] | None,
        partitions: npt.NDArray[np.int32],
    ) -> None:
        size = len(keys)
        positions = np.zeros(size, np.int64)
        for partition in np.unique(partitions):
            chosen = partitions == partition
            first = self._runs.next_position(topic, int(partition))
            positions[chosen] = np.arange(first, first + np.count_nonzero(chosen))
        table = run_table(keys, values, timestamps, headers, positions)
        self._runs.write(topic, table, partitions)
