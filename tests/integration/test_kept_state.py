"""Changes of queries with state: what `pipeline plan` says is what happens to a running job."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.admin.daemons import command_path
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

_TIMEOUT_S = 400
KEYS = [b"k0", b"k1", b"k2"]
PIPELINE = """
sinks: {{best: best_{job}, totals: totals_{job}}}
processors:
- {{id: Counter, type: count, to: [sink]}}
- id: Best
  type: sql
  format: json
  schema: n INT
  query: >
    SELECT concat(key, '-', place) AS key, n
    FROM (SELECT key, n, row_number() OVER (PARTITION BY key ORDER BY n DESC) AS place FROM input)
    WHERE place <= {limit}
  to: [best]
- id: Totals
  type: sql
  format: json
  schema: n INT
  query: SELECT key, {aggregate} AS v FROM input GROUP BY key
  to: [totals]
"""


class Changes:
    """A job, the numbers that were written for each key, and what it must have given by now."""

    def __init__(self, made: Engine, folder: Path) -> None:
        self.engine = made
        self._folder = folder
        self._written: list[int] = []

    def write_pipeline(self, limit: int, aggregate: str) -> None:
        job = self.engine.config.job_name
        self.engine.write_pipeline(PIPELINE.format(job=job, limit=limit, aggregate=aggregate))

    def write(self, *numbers: int) -> None:
        self._written += numbers
        self.engine.write([(key, b'{"n": %d}' % n) for n in numbers for key in KEYS])

    def run(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(name, *options),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def kill(self, name: str, *options: str, after_s: float) -> None:
        """Start a command, and kill it while it works."""
        started = subprocess.Popen(
            self._words(name, *options), cwd=self._folder, stdout=subprocess.DEVNULL
        )
        time.sleep(after_s)
        started.kill()
        started.wait()

    def _words(self, name: str, *options: str) -> list[str]:
        files = [str(self.engine.config_file)]
        if name != "rollback":
            files.append(str(self._folder / "pipeline.yaml"))
        return [str(command_path("pipeline")), name, *files, *options]

    def effects(self) -> dict[str, str]:
        """Return what the plan says about the first store of each query."""
        done = self.run("plan", "--json")
        assert done.returncode == 0, done.stderr
        stores = json.loads(done.stdout)["stores"]
        return {each["processor"]: each["state"] for each in stores}

    def check(self, best: list[int], value: float) -> None:
        """Wait for the numbers of the best places, the last total, and all counts."""
        last = len(self._written)
        self._wait("sink", lambda v: int(v), dict.fromkeys((k.decode() for k in KEYS), last))
        job = self.engine.config.job_name
        places = {
            f"{key.decode()}-{place}": n for key in KEYS for place, n in enumerate(best, start=1)
        }
        self._wait(f"best_{job}", lambda v: json.loads(v)["n"], places)
        self._wait(
            f"totals_{job}",
            lambda v: json.loads(v)["v"],
            dict.fromkeys((k.decode() for k in KEYS), value),
        )

    def _wait(self, topic: str, read: Callable[[bytes], Any], wanted: dict[str, Any]) -> None:
        name = self.engine.config.sink_topic if topic == "sink" else topic
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            rows = self.engine.read(name)
            found = {(key or b"").decode(): read(value) for key, value in rows if value is not None}
            if found == wanted:
                return
            assert time.monotonic() < deadline_s, f"{found}, wanted {wanted}\n{self.engine.logs()}"
            time.sleep(0.2)

    @property
    def versions(self) -> int:
        return len(json.loads(self.engine.run_command("versions", "--json")))


def test_queries_change_as_the_plan_says(tmp_path: Path, bootstrap_servers: str) -> None:
    job = f"kept_{os.getpid()}"
    first = PIPELINE.format(job=job, limit=3, aggregate="sum(n)")
    settings = {"heartbeat_interval_ms": 500, "tm_number": 1}
    with engine(tmp_path, bootstrap_servers, job, first, **settings) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        changes = Changes(made, tmp_path)
        changes.write(1, 2, 3, 4)
        changes.check([4, 3, 2], 10)

        # A larger limit goes on with its state: the row that was left out does not come back.
        changes.write_pipeline(5, "sum(n)")
        assert changes.effects() == {"Counter": "kept", "Best": "converted", "Totals": "kept"}
        done = changes.run("apply")
        assert done.returncode == 0, done.stderr
        changes.write(0, 9)
        changes.check([9, 4, 3, 2, 0], 19)

        # Other aggregate functions are refused, and everything runs on.
        changes.write_pipeline(5, "avg(n)")
        assert changes.effects() == {"Counter": "kept", "Best": "kept", "Totals": "impossible"}
        shown = changes.run("plan").stdout
        assert "the aggregate functions were sum" in shown
        assert "pipeline apply --lose Totals" in shown
        done = changes.run("apply", "--yes")
        assert done.returncode == 2
        assert "the aggregate functions were sum" in done.stderr
        assert "pipeline apply --lose Totals" in done.stderr
        assert changes.versions == 2
        changes.write(1)
        changes.check([9, 4, 3, 2, 1], 20)

        # What is lost begins empty, though the command is killed. Others keep their state.
        for moment_s in (12.0, 15.0):
            changes.kill("apply", "--lose", "Totals", "--yes", after_s=moment_s)
        done = changes.run("apply", "--lose", "Totals", "--yes")
        assert done.returncode == 0, done.stderr
        assert changes.versions == 3
        changes.write(2, 4)
        changes.check([9, 4, 4, 3, 2], 3.0)
        # Repeated, it loses nothing more.
        assert changes.run("apply", "--lose", "Totals", "--yes").returncode == 0
        assert changes.versions == 3

        # The way back is the same.
        assert changes.run("rollback", "--yes").returncode == 2
        done = changes.run("rollback", "--lose", "Totals", "--yes")
        assert done.returncode == 0, done.stderr
        changes.write(7)
        changes.check([9, 7, 4, 4, 3], 7)
