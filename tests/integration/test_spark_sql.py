"""Processors that Spark runs, in the whole engine, with a TaskManager that is killed."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.engine import all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
NAMES = {f"k{number}": f"name {number}" for number in range(0, 50, 2)}
RECORDS = 40_000
PARTS = 40

PIPELINE = """
- id: Named
  type: sql
  query: >
    SELECT name AS key, CAST(value AS INT) AS value
    FROM input JOIN names ON key = code WHERE value NOT LIKE '%7'
  tables: {{names: {{format: csv, path: "{file}", schema: "code STRING, name STRING"}}}}
  on_error: dead_letter
  to: [Loud]
- id: Loud
  type: dataframe
  function: tests.user_code.frames:loud
  to: [Counter]
- {{id: Counter, type: count, to: [sink]}}
"""


def test_queries_in_front_of_a_count_are_exact_though_a_task_manager_is_killed(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """A lookup, a filter, a Python function, dead letters; every key is counted without a gap."""
    file = tmp_path / "names.csv"
    file.write_text("".join(f"{code},{name}\n" for code, name in NAMES.items()))
    rows = [(b"k%d" % (i % 50), b"bad" if i % 4_000 == 2 else b"%d" % i) for i in range(RECORDS)]
    settings = {"modules": "[tests.user_code.frames]", "python_path": f"[{ROOT}]"}
    named = [(key, value) for key, value in rows if key.decode() in NAMES]
    bad = [row for row in named if row[1] == b"bad"]
    wanted = Counter(
        NAMES[key.decode()].encode() for key, value in named if not value.endswith((b"7", b"bad"))
    )
    with engine(
        tmp_path,
        bootstrap_servers,
        f"queries_{os.getpid()}",
        PIPELINE.format(file=file),
        tm_number=2,
        heartbeat_interval_ms=500,
        **settings,
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        victim = made.start_task_manager(1)
        made.wait_until(all_run([0, 1]))
        for part in range(PARTS):
            made.write(rows[part * RECORDS // PARTS : (part + 1) * RECORDS // PARTS])
            time.sleep(0.1)
            if part == PARTS // 2:
                victim.kill()
        letters = made.names.dead_letter("Named")
        made.wait_until_done({made.config.sink_topic: wanted.total(), letters: len(bad)})
        counts: dict[bytes | None, list[int]] = {}
        for key, value in made.read(made.config.sink_topic):
            counts.setdefault(key, []).append(int(value or b"0"))
        assert counts == {key: list(range(1, n + 1)) for key, n in wanted.items()}
        assert Counter(made.read(letters)) == Counter(bad)
