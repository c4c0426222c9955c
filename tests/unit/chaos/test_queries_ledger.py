"""The judge of queries in the chaos harness: what the test driver gives is right."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.chaos.dsl_ledger import OF_SQL, PREFIXES, DslLedger
from tests.chaos.event_times import EventTimes
from tests.chaos.ledger import value_of
from tests.chaos.numbered_results import Tally
from tests.chaos.pipelines import START, Kind, pipeline

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[3]
KEYS = [b"k%02d" % number for number in range(6)]
CONFIG = f"""
server_ip: localhost
server_port: 9092
job_name: chaos
tm_number: 1
parallelism: 3
replication_factor: 1
source_topic: source
sink_topic: sink
modules: [tests.user_code, tests.chaos.lanes]
python_path: ['{ROOT}']
"""


def test_what_the_driver_gives_is_clean(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    files = (tmp_path / name for name in ("gate", "brake", "may_hang"))
    (tmp_path / "pipeline.yaml").write_text(pipeline(START, Kind.QUERIES, *files))
    random = Random(1)
    times, written = EventTimes(KEYS), dict.fromkeys(KEYS, 0)
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        source = driver.create_input_topic("source")

        def write(keys: list[bytes]) -> None:
            for key in keys:
                written[key] += 1
                number = written[key]
                time = times.next_time(key, number)
                source.pipe_input(key, b"%d" % value_of(number), timestamp=time)

        for _ in range(15):
            write(random.sample(KEYS, len(KEYS)))
        times.begin_epoch(written)
        write(KEYS)
        results = driver.create_output_topic("sink", serdes.bytes).read_key_values()
    ledger = DslLedger(KEYS, times, OF_SQL)
    found = [(key, value) for key, value in results if value.startswith(PREFIXES)]
    for key, value in found:
        ledger.note(key, value)
    assert ledger.losses(written) == []
    assert ledger.tally(written) == Tally()
    assert ledger.is_complete(written)
    assert {value.split()[1] for _, value in found} == OF_SQL
