"""What readers cost that have nothing to read: `python -m benchmarks.idle_readers`.

Two threads read half of the partitions each, as two PipelineThreads do. In turns, their consumers
may rest, and may not. CPU time is that of this process, all of its threads included, and of the
only broker, as shares of one core. The broker does some of its work without readers, too.
Linux only.
"""

from __future__ import annotations

import argparse
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.bench import Bench, bench
from kafka_pipeline.common.kafka import managed_consumer
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.taskmanager.pipeline_thread import IDLE_WAIT_S

READERS = 2
TOPIC = "idle"
SETTLE_S = 8.0


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print a line for each round."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle_readers", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--partitions", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args(words)
    with bench(partitions=arguments.partitions) as made:
        made.make_topic(TOPIC)
        print(f"{'consumers':<12}{'readers':>10}{'broker':>10}", flush=True)
        _measure("none", made, arguments.seconds)
        for _ in range(arguments.rounds):
            for name, rest_after_s in (("awake", math.inf), ("at rest", 0.0)):
                managed_consumer.REST_AFTER_S = rest_after_s
                with _reading(made):
                    _measure(name, made, arguments.seconds)


@contextmanager
def _reading(made: Bench) -> Iterator[None]:
    is_over = threading.Event()

    def read(first: int) -> None:
        reader = PartitionReader(made.config, "idle", made.admin)
        reader.assign({(TOPIC, number): 0 for number in range(first, made.partitions, READERS)})
        while not is_over.is_set():
            reader.fetch(made.config.max_batch_records, IDLE_WAIT_S)
        reader.close()

    threads = [threading.Thread(target=read, args=(first,)) for first in range(READERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def _measure(name: str, made: Bench, seconds: float) -> None:
    time.sleep(SETTLE_S)
    own, others, began_s = time.process_time(), made.broker_cpu_s(), time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - began_s
    own, others = time.process_time() - own, made.broker_cpu_s() - others
    print(f"{name:<12}{own / passed_s:>10.2%}{others / passed_s:>10.2%}", flush=True)


if __name__ == "__main__":
    main()
