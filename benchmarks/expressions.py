"""CPU time per record of filter and map, by functions and by column expressions.

The nodes of one task read JSON from memory and write JSON, without Kafka around them. Both
topologies process the same batches in turns; the table shows medians, and the ratio.

    python -m benchmarks.expressions
    python -m benchmarks.expressions --records 200000 --rounds 9
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import median

from benchmarks.lone_task import lone_task, results_of
from kafka_pipeline import StreamsBuilder, col, serdes, struct
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.group_task import GroupTask

BATCH_RECORDS = 10_000
WORKLOADS: dict[str, tuple[Callable[[Stream], Stream], Callable[[Stream], Stream]]] = {
    "filter + map": (
        lambda s: s.filter(
            lambda key, value: value["delay"] is not None and value["delay"] > 15
        ).map_values(
            lambda value: {
                "carrier": value["carrier"],
                "route": value["origin"].lower() + "-" + value["dest"].lower(),
                "hours": value["delay"] // 60,
            }
        ),
        lambda s: s.filter(col("delay") > 15).map_values(
            struct(
                carrier=col("carrier"),
                route=col("origin").str.to_lowercase() + "-" + col("dest").str.to_lowercase(),
                hours=col("delay") // 60,
            )
        ),
    ),
    "filter": (
        lambda s: s.filter(lambda key, value: value["delay"] is not None and value["delay"] > 15),
        lambda s: s.filter(col("delay") > 15),
    ),
    "map": (
        lambda s: s.map_values(lambda value: {"to": value["dest"], "delay": value["delay"]}),
        lambda s: s.map_values(struct(to=col("dest"), delay=col("delay"))),
    ),
    "select_key": (
        lambda s: s.select_key(lambda key, value: value["carrier"]),
        lambda s: s.select_key(col("carrier")),
    ),
}


def flights(count: int) -> list[bytes]:
    """Return records of flights, of which about a third are more than 15 minutes late."""
    chance = random.Random(7)
    return [
        serdes.json.serialize(
            {
                "carrier": chance.choice(["AA", "B6", "DL", "UA"]),
                "flight": chance.randrange(1, 9999),
                "origin": chance.choice(["EWR", "JFK", "LGA"]),
                "dest": chance.choice(["ATL", "LAX", "ORD", "SFO"]),
                "distance": chance.randrange(100, 5000) / 10,
                "tail": f"N{chance.randrange(1, 9999)}",
                "date": f"2013-01-{chance.randrange(1, 29):02}T05:00:00",
                "delay": chance.choice([None, *range(-30, 60)]),
            }
        )
        for _ in range(count)
    ]


def task_of(steps: Callable[[Stream], Stream]) -> GroupTask:
    """Return the task of a topology with a source, these steps and a sink."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    steps(builder.stream("in", name="In")).to("out")
    (group,) = builder.build().groups
    return lone_task(group, {}, [("in", 0)])


def measure(steps: Callable[[Stream], Stream], values: list[bytes]) -> float:
    """Return the nanoseconds of CPU time per record."""
    task = task_of(steps)
    spent_s = 0.0
    for start in range(0, len(values), BATCH_RECORDS):
        part = values[start : start + BATCH_RECORDS]
        offsets = range(start, start + len(part))
        batch = RecordBatch("in", 0, [b"key"] * len(part), part, list(offsets), offsets)
        began_s = time.thread_time()
        results_of(task, batch)
        spent_s += time.thread_time() - began_s
    task.close()
    return spent_s / len(values) * 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    values = flights(arguments.records)
    print(f"{'':14}{'functions':>12}{'expressions':>14}{'ratio':>8}   ns per record")
    for name, both in WORKLOADS.items():
        rounds = [[measure(steps, values) for steps in both] for _ in range(arguments.rounds)]
        functions, expressions = (median(each) for each in zip(*rounds, strict=True))
        print(f"{name:14}{functions:12.0f}{expressions:14.0f}{functions / expressions:8.2f}")


if __name__ == "__main__":
    main()
