"""What Avro costs beside JSON, with a class and with a query: `python -m benchmarks.formats`.

Each multiplies the price of Nexmark's bids (its q1), in one process without Kafka, from bytes to
bytes. Batches of 50,000 records (`--records`) of both formats take turns. For each, the benchmark
prints the CPU time of Python and of the JVM per record, and how many records Avro has for one of
JSON in the same time. It compares the results of both with each other.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from pyspark import SparkContext

from benchmarks.json_query import START_MS, bid
from benchmarks.kept_groups import CONFIG
from benchmarks.lone_task import lasting_queries, lone_task, results_of
from benchmarks.resources import process_cpu_s
from kafka_pipeline import Processor, schema_registry
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.units import group_of
from kafka_pipeline.streams.record import Record

REGISTRY = "mock://formats"
RATE = 3
TYPES = {
    "auction": "long",
    "bidder": "long",
    "price": "long",
    "channel": "string",
    "url": "string",
    "dateTime": "long",
    "extra": "string",
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Bid",
        "fields": [{"name": name, "type": type_} for name, type_ in TYPES.items()],
    }
)
COLUMNS = ", ".join(
    f"{name} {'STRING' if type_ == 'string' else 'BIGINT'}" for name, type_ in TYPES.items()
)
QUERY = (
    f"SELECT key, auction, bidder, {RATE} * price AS price, channel, url, dateTime, extra FROM bids"
)
VALUES = {"json": "json", "avro": "{avro: {schema: bid.avsc}}"}
PARTS = {
    "class": "type: benchmarks.formats:Exchange, serdes: {{key: string, value: {value}}}",
    "query": 'type: sql, format: {format}, query: "{query}", out_value: {value}{schema}',
}


def pipeline_of(way: str, format_: str) -> str:
    """Return the text of pipeline.yaml: a source, a class or a query, and the sink."""
    value = VALUES[format_]
    schema = f', schema: "{COLUMNS}"' if format_ == "json" else ""
    part = PARTS[way].format(value=value, format=format_, query=QUERY, schema=schema)
    of_source = f", value: {value}" if (way, format_) == ("query", "avro") else ""
    return (
        f"sources: {{bids: {{topic: source{of_source}}}}}\n"
        f"processors: [{{id: Bids, from: [bids], to: [sink], {part}}}]\n"
    )


class Exchange(Processor):
    """Multiplies the price of a bid."""

    def process(self, record: Record) -> None:
        """Forward the bid with its price in another currency."""
        value = record.value
        self.context.forward(record.with_value({**value, "price": RATE * value["price"]}))


class Way:
    """A task with one of the formats, and its records."""

    def __init__(
        self, task: GroupTask, values: list[bytes], read: Callable[[bytes], object]
    ) -> None:
        self._task = task
        self._values = values
        self.read = read
        """Returns what is in a result."""
        self._offset = 0
        self.taken: list[tuple[float, float]] = []
        """The CPU seconds of Python and of the JVM, of each batch."""

    def play(self, java: int) -> list[bytes]:
        """Process the records once more; return the values of the results."""
        size = len(self._values)
        offsets = range(self._offset, self._offset + size)
        self._offset += size
        batch = RecordBatch("source", 0, [b"k"] * size, self._values, [START_MS] * size, offsets)
        of_java_s, of_python_s = process_cpu_s(java), time.process_time()
        outputs = results_of(self._task, batch)
        of_python_s = time.process_time() - of_python_s
        self.taken.append((of_python_s, process_cpu_s(java) - of_java_s))
        return [
            value or b""
            for output in outputs
            for value in (output.values if isinstance(output, OutputColumns) else [output[2]])
        ]


def main() -> None:
    """Measure, and print a line for each way and format, and the ratio of each way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=50_000, metavar="N")
    parser.add_argument("--batches", type=int, default=9, metavar="N")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    random_ = random.Random(1)
    bids = [bid(random_, number, "") for number in range(arguments.records)]
    registry = schema_registry.SchemaRegistry(REGISTRY)
    serde = schema_registry.avro(registry, "bids-value", AVRO)
    values = {
        "json": [json.dumps(each).encode() for each in bids],
        "avro": [serde.serialize(each) for each in bids],
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        config = Path(folder) / "config.yaml"
        config.write_text(
            CONFIG + f"schema_registry: {{url: '{REGISTRY}'}}\nmodules: [benchmarks.formats]\n"
        )
        (Path(folder) / "bid.avsc").write_text(AVRO)
        loaded = load_config(config)
        code = UserCode.of(loaded)
        queries = lasting_queries(code, loaded)
        ways: dict[tuple[str, str], Way] = {}
        for way in PARTS:
            for format_ in VALUES:
                file = Path(folder) / f"{way}_{format_}.yaml"
                file.write_text(pipeline_of(way, format_))
                (unit,) = replicas(load_pipeline(file, loaded))
                task = lone_task(group_of(unit, code, queries, loaded.schema_registry), {})
                opened.callback(task.close)
                read = json.loads if format_ == "json" else serde.deserialize
                ways[way, format_] = Way(task, values[format_], read)
        java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
        expected = [{**each, "price": RATE * int(each["price"])} for each in bids]
        for number in range(arguments.warm_up + arguments.batches):
            for (way, format_), played in ways.items():
                found = played.play(java)
                if number == 0 and list(map(played.read, found)) != expected:
                    sys.exit(f"the results of the {way} with {format_} are wrong")
        report(ways, arguments.records, arguments.warm_up)


def report(ways: dict[tuple[str, str], Way], records: int, warm_up: int) -> None:
    """Print the medians."""
    whole: dict[tuple[str, str], float] = {}
    for (way, format_), played in ways.items():
        python_us, java_us = (
            1e6 * median(column) / records for column in zip(*played.taken[warm_up:], strict=True)
        )
        whole[way, format_] = python_us + java_us
        print(f"{way} with {format_}: Python {python_us:.2f} us, JVM {java_us:.2f} us per record")
    for way in PARTS:
        print(
            f"{way}: {whole[way, 'json'] / whole[way, 'avro']:.2f} records of Avro for one of JSON"
        )


if __name__ == "__main__":
    main()
