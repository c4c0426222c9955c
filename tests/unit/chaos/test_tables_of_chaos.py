"""The judge of tables in the chaos harness: it must find what it is there to find."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.testing import TopologyTestDriver
from tests.chaos.ledger import value_of
from tests.chaos.numbered_results import Tally
from tests.chaos.pipelines import START, Kind, pipeline
from tests.chaos.tables import LOGIN, ROWS_TOPIC, Tables, compared, settings, wanted_of
from tests.postgres import Database
from tests.user_code.table_rows import DELETED_EVERY, ROWS, row_of

ROOT = Path(__file__).parents[3]
CONFIG = f"""
server_ip: localhost
server_port: 9092
job_name: chaos
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: source
sink_topic: sink
modules: [tests.user_code, tests.chaos.lanes]
python_path: ['{ROOT}']
"""
NUMBERS = (1, 2, 7, 5, ROWS + 1, ROWS + 2)
"""Those of records: a deletion without a row, a change of the first row, a deletion of the second.
"""


def test_a_row_is_replaced_and_deleted_and_each_change_is_added() -> None:
    assert ROWS % DELETED_EVERY, "each row is deleted at times"
    records = [(1, n, *row_of(b"k01", n)) for n in range(1, 2 * ROWS + 1)]
    wanted = wanted_of(records)
    deletions = range(DELETED_EVERY, 2 * ROWS + 1, DELETED_EVERY)
    assert wanted.records == 2 * ROWS
    assert wanted.deletions == Counter(f"k01-{n % ROWS}" for n in deletions)
    last = [n for n in range(ROWS + 1, 2 * ROWS + 1) if n % DELETED_EVERY]
    assert sorted(n for _, n, _, _ in wanted.kept) == last
    assert wanted.appended["k01-1", 41, 'note "41", \\ é\n', Decimal("0.41"), 1, 41] == 1


@pytest.mark.parametrize(
    ("found", "tally"),
    [
        ("abc", Tally()),
        ("ab", Tally(lost=1)),
        ("abcc", Tally(repeated=1)),
        ("abx", Tally(lost=1, wrong=1)),
        ("", Tally(lost=3)),
    ],
)
def test_each_difference_is_counted(found: str, tally: Tally) -> None:
    assert compared(Counter("abc"), Counter(found)) == tally


def test_what_the_driver_writes_is_clean(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    allowed = "".join(f"{key}: {value}\n" for key, value in settings(database.url).items())
    (tmp_path / "config.yaml").write_text(CONFIG + allowed)
    files = (tmp_path / name for name in ("gate", "brake", "may_hang"))
    text = pipeline(START, Kind.TABLES, *files, database_url=database.url)
    (tmp_path / "pipeline.yaml").write_text(text)
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        source = driver.create_input_topic("source")
        for number in NUMBERS:
            source.pipe_input(b"k01", b"%d" % value_of(number))
        source.pipe_input(b"poison", b"of another fault")
        rows = driver.create_output_topic(ROWS_TOPIC, serdes.bytes).read_key_values()
        names = load_config(tmp_path / "config.yaml").topic_names

        def letters(name: str) -> Counter[str]:
            found = driver.create_output_topic(names.dead_letter(name), serdes.bytes)
            return Counter(key.decode() for key, _ in found.read_key_values())

        tables = Tables(tmp_path, database).look(
            wanted_of((0, offset, key, value) for offset, (key, value) in enumerate(rows)), letters
        )
    sizes = {name: wanted.total() for name, (wanted, _) in tables.items()}
    assert (sizes["Delta"], sizes["Iceberg"], sizes["letters of Iceberg"]) == (2, 4, 2)
    for name, (wanted, found) in tables.items():
        assert found == wanted, name
