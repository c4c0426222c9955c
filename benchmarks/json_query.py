"""What JSON costs a query on its way through Spark: `python -m benchmarks.json_query`.

A query passes the seven fields of Nexmark's bids on (its q0), in one process without Kafka. Batches
of 100,000 records (`--records`) go from bytes to bytes. For each, the benchmark prints the CPU time
of Python and of the JVM. It compares the results with the records. `--extra` is put into the last
field of each record. With a quote, `to_json` writes the results. With `,NaN`, Spark reads the
values.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from pyspark import SparkContext

from benchmarks.kept_groups import CONFIG
from benchmarks.lone_task import lasting_queries, lone_task, results_of
from benchmarks.resources import process_cpu_s
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.units import group_of

START_MS = 1_700_000_000_000
PIPELINE = """
- id: Bids
  type: sql
  format: json
  schema: >
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT,
    extra STRING
  query: SELECT key, auction, bidder, price, channel, url, dateTime, extra FROM input
  to: [sink]
"""


def bid(random_: random.Random, number: int, extra: str) -> dict[str, int | str]:
    """Return a bid; `extra` is part of its last field."""
    folder = "abcdefgh"[: random_.randrange(3, 9)]
    return {
        "auction": 1000 + random_.randrange(10**6),
        "bidder": 1000 + random_.randrange(10**6),
        "price": int(100 * 10 ** (6 * random_.random())),
        "channel": f"channel-{random_.randrange(10_000)}",
        "url": f"https://www.nexmark.com/{folder}/item.htm?query=1&channel_id={number}",
        "dateTime": START_MS + number,
        "extra": extra + "x" * random_.randrange(30, 60),
    }


def main() -> None:
    """Measure, and print a line for each batch and their medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, metavar="N")
    parser.add_argument("--batches", type=int, default=10, metavar="N")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N")
    parser.add_argument("--extra", default="", metavar="TEXT")
    arguments = parser.parse_args()
    random_, size = random.Random(1), arguments.records
    bids = [bid(random_, number, arguments.extra) for number in range(size)]
    values = [json.dumps(each).encode() for each in bids]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        config, pipeline = Path(folder) / "config.yaml", Path(folder) / "pipeline.yaml"
        config.write_text(CONFIG)
        pipeline.write_text(PIPELINE)
        loaded = load_config(config)
        code = UserCode.of(loaded)
        (unit,) = replicas(load_pipeline(pipeline, loaded))
        task = lone_task(group_of(unit, code, lasting_queries(code, loaded)), {})
        opened.callback(task.close)
        java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
        taken: list[tuple[float, float]] = []
        for number in range(arguments.warm_up + arguments.batches):
            offsets = range(number * size, (number + 1) * size)
            batch = RecordBatch("source", 0, [b"k"] * size, values, [START_MS] * size, offsets)
            of_java_s, of_python_s = process_cpu_s(java), time.process_time()
            outputs = results_of(task, batch)
            of_python_s = time.process_time() - of_python_s
            of_java_s = process_cpu_s(java) - of_java_s
            found = [
                value
                for output in outputs
                if isinstance(output, OutputColumns)
                for value in output.values
            ]
            if number == 0 and [json.loads(value or b"") for value in found] != bids:
                sys.exit("the results differ from the records")
            if number >= arguments.warm_up:
                taken.append((of_python_s, of_java_s))
            print(
                f"Python {1000 * of_python_s:5.0f} ms, JVM {1000 * of_java_s:5.0f} ms", flush=True
            )
        python_s, java_s = (median(column) for column in zip(*taken, strict=True))
        print(f"medians: Python {1000 * python_s:.0f} ms, JVM {1000 * java_s:.0f} ms of CPU time")


if __name__ == "__main__":
    main()
