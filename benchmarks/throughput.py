"""Sustained rates of single processors: `python -m benchmarks.throughput [--records N]`.

Two PipelineThreads of one TaskManager (the real commands, a real broker beside them on the same
machine) work off a backlog of 16-byte records in two partitions, exactly once. The rate is that
between the first and the last tenth of the output, which leaves out starting and stopping.
Afterwards the sink is read back and compared with a model. Ratios are against `baseline.py` in
the same run: machines differ and are noisy, ratios travel.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from admin.local_broker import LocalCluster
from benchmarks import baseline
from common.kafka.admin import Admin
from common.kafka.bulk import BulkWriter, Row
from common.topics import TopicSpec
from tests.engine import Engine, engine

KEYS = 10_000
ROOT = Path(__file__).parents[1]
CLASS = """
- id: Stage
  type: benchmarks.counting:{}
  to: [sink]
  serdes: {{key: string, value: string, out_value: integer}}
  stores: [{{name: Counts, key: string, value: int64}}]
"""
PIPELINES = {
    "forward": "- {id: Stage, type: forward, to: [sink]}\n",
    "sum": "- {id: Stage, type: sum, to: [sink]}\n",
    "count": "- {id: Stage, type: count, to: [sink]}\n",
    "forward → count": (
        "- {id: First, type: forward, to: [Stage]}\n- {id: Stage, type: count, to: [sink]}\n"
    ),
    "sql": """
- id: Stage
  type: sql
  query: SELECT key, substring(value, 9) AS value FROM input WHERE value LIKE '%1'
  to: [sink]
""",
    "Processor": CLASS.format("Counting"),
    "BatchProcessor": CLASS.format("BatchCounting"),
}
TIMEOUT_S = 600


def rows(records: int) -> list[Row]:
    """Return records whose values are 16 decimal digits, on 10,000 keys."""
    return [(b"%d" % (i * 7919 % KEYS), b"%016d" % i) for i in range(records)]


def load(kafka: Engine, source: str, records: list[Row]) -> dict[int, int]:
    """Fill the source topic; return how many records each partition got."""
    Admin(kafka.config).ensure_topics([TopicSpec(source, 2, 1)])
    writer = BulkWriter(kafka.config, source)
    writer.write(records)
    writer.flush(timeout_s=120)
    ends = Admin(kafka.config).high_watermarks([(source, 0), (source, 1)])
    return {partition: end for (_, partition), end in ends.items()}


def outputs_of(name: str, records: list[Row]) -> list[Row]:
    """Return what the query of `sql` gives; the other pipelines give a record for each."""
    if name != "sql":
        return records
    return [(key, value[8:]) for key, value in records if value and value.endswith(b"1")]


def measure(job: Engine, records: int, outputs: int) -> float:
    """Run the job over its backlog; return records per second of the middle eight tenths.

    Of those that are read; `outputs` is how many are written.
    """
    job.start_job_manager()
    job.start_task_manager(0, threads=2)
    sink = job.config.sink_topic
    admin = Admin(job.config)
    reached: dict[int, float] = {}
    deadline_s = time.monotonic() + TIMEOUT_S
    while 9 not in reached:
        if time.monotonic() > deadline_s:
            sys.exit(f"no result within {TIMEOUT_S} s\n{job.logs()}")
        written = 0
        if admin.partition_counts([sink]):
            written = sum(admin.high_watermarks([(sink, 0), (sink, 1)]).values())
        for tenth in (1, 9):
            if written >= outputs * tenth // 10:
                reached.setdefault(tenth, time.monotonic())
        time.sleep(0.02)
    return records * 0.8 / (reached[9] - reached[1])


def verify(job: Engine, name: str, records: list[Row]) -> None:
    """Exit with an error unless the sink has exactly what the pipeline should make."""
    job.wait_until_done({job.config.sink_topic: len(outputs_of(name, records))})
    found = Counter(job.read(job.config.sink_topic))
    if name in ("forward", "sql"):
        expected = Counter(outputs_of(name, records))
    elif name == "sum":
        expected = Counter((key, b"%d" % (int(value or b"0") + 1)) for key, value in records)
    else:
        seen: Counter[bytes | None] = Counter()
        expected = Counter()
        for key, _ in records:
            seen[key] += 1
            expected[key, b"%d" % seen[key]] += 1
    if found != expected:
        sys.exit(f"{name}: the sink differs from the model")


def main() -> None:
    """Measure, print a table, and verify."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pipelines", nargs="*", default=list(PIPELINES))
    arguments = parser.parse_args()
    records = rows(arguments.records)
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        try:
            run(Path(folder), cluster.bootstrap_servers, arguments, records)
        finally:
            cluster.stop()


def run(folder: Path, servers: str, arguments: argparse.Namespace, records: list[Row]) -> None:
    """Measure every pipeline in turn, round by round, against the bare loop."""
    source = "backlog"
    print(f"{'pipeline':18} {'round':>5} {'records/s':>10} {'of the bare loop':>17}  sink")
    for number in range(arguments.rounds):
        bare = None
        for name in arguments.pipelines:
            job_name = f"bench_{number}_{list(PIPELINES).index(name)}"
            job_folder = folder / job_name
            job_folder.mkdir()
            settings = {
                "source_topic": source,
                "tm_number": 1,
                "modules": "[benchmarks.counting]",
                "python_path": f"[{ROOT}]",
            }
            with engine(job_folder, servers, job_name, PIPELINES[name], **settings) as job:
                partitions = load(job, source, [] if number or bare else records)
                if bare is None:
                    sink = f"bare_{number}"
                    Admin(job.config).ensure_topics([TopicSpec(sink, 2, 1)])
                    bare = baseline.rate(servers, source, sink, partitions)
                    print(f"{'(bare loop)':18} {number + 1:5} {bare:10,.0f} {1:17.2f}")
                rate = measure(job, len(records), len(outputs_of(name, records)))
                verify(job, name, records)
            print(f"{name:18} {number + 1:5} {rate:10,.0f} {rate / bare:17.2f}  exact", flush=True)


if __name__ == "__main__":
    main()
