"""What it costs to ask the brokers for event time: `python -m benchmarks.time_questions`.

One process watches as many tasks as a worker would that has all of them: by default 400 tasks of 20
processors, each behind a topic that another processor writes. All of these have committed, and
nothing else goes on. CPU time is that of the process, all of its threads included, and of the only
broker, as shares of one core. At rest, the broker does the same without questions. Linux only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, TopicPartition

from benchmarks.bench import Bench, bench
from kafka_pipeline.common.committed import Committed, InputProgress
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import client_config
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.taskmanager.time_watch import TimeWatch

_IDLE_AFTER_MS = 3000


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.time_questions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--processors", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=400, help="of all processors")
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args(words)
    partitions = arguments.tasks // arguments.processors
    with bench(partitions=partitions) as made:
        _measure(made, arguments.processors, arguments.seconds)


def _measure(made: Bench, processors: int, seconds: float) -> None:
    config, partitions = made.config, made.partitions
    sources = [f"source_{number}" for number in range(processors)]
    arcs = [f"arc_{number}" for number in range(processors)]
    made.admin.ensure_topics([TopicSpec(each, partitions, 1) for each in (*sources, *arcs)])
    for number, source in enumerate(sources):
        _commit(config, f"P{number}", source, partitions)
    time.sleep(10)
    _, resting, _ = _shares(made, seconds)
    watch = TimeWatch(config, GroupPositions(config, made.admin))
    looks = 0
    look = watch.look

    def counted() -> None:
        nonlocal looks
        looks += 1
        look()

    watch.look = counted  # type: ignore[method-assign]
    for number, (source, arc) in enumerate(zip(sources, arcs, strict=True)):
        writer = Writer(processor=f"P{number}", inputs={source: partitions})
        spec = EventTimeSpec(writers={arc: (writer,)})
        for partition in range(partitions):
            known = InputTime({(arc, partition): partitions}, _IDLE_AFTER_MS)
            watch.watch(TaskId(f"Q{number}", partition), spec, known)
    watch.start()
    time.sleep(5)
    looks = 0
    own, asked, passed_s = _shares(made, seconds)
    watch.close()
    print(
        f"{processors * partitions} tasks of {processors} processors: {looks / passed_s:.1f} looks "
        f"per second, {own:.1%} of a core here, {asked:.1%} of the broker ({resting:.1%} at rest)"
    )


def _commit(config: Config, processor: str, topic: str, partitions: int) -> None:
    group = config.topic_names.consumer_group(processor)
    consumer = Consumer(client_config(config, "consumer", group_id=group))
    at = Committed(0, 1, progress=InputProgress(0, 1, 1))
    offsets = [TopicPartition(topic, n, 0, metadata=at.metadata) for n in range(partitions)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _shares(made: Bench, seconds: float) -> tuple[float, float, float]:
    """Return the shares of a core that this process and the broker take, and the seconds."""
    own, others, began_s = time.process_time(), made.broker_cpu_s(), time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - began_s
    return (
        (time.process_time() - own) / passed_s,
        (made.broker_cpu_s() - others) / passed_s,
        passed_s,
    )


if __name__ == "__main__":
    main()
