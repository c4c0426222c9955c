"""User code that Spark ships to the executors of a cluster, and the results that it must give."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.engine import Engine

# Lies in no folder that an executor's Python searches.
_OWN_CODE = """
from pathlib import Path
import kafka_pipeline
import own_helper
from pyspark.sql import functions as F

class Place(kafka_pipeline.Processor):
    def init(self, context):
        self.context = context
        files = (Path(kafka_pipeline.__file__).parents[1], Path(own_helper.__file__).parent)
        self.place = " ".join(file.name for file in files).encode()

    def process(self, record):
        self.context.forward(record.with_key(record.key + b" " + self.place))

def _loud(text):
    return own_helper.loud(text)

def loud(frame):
    return frame.select("key", F.udf(lambda text: _loud(text))("value").alias("value"))
"""
_OWN_HELPER = "def loud(text):\n    return text.upper()\n"

PLACE = b" pipeline.zip pipeline.zip"
"""What `own_code:Place` adds to a key where the engine and the user's code were shipped."""

COUNTED = """
- {id: Place, type: "own_code:Place", to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
"""Processors that count each key, with the place where the code lies; see `check_counts`."""


def settings_with_own_code(
    folder: Path, master: str, conf: Mapping[str, object]
) -> dict[str, object]:
    """Return config.yaml's settings for a cluster and for user code, which goes into a folder.

    The settings of Spark in `conf` are added to those that all clusters here have.
    """
    code = folder / "code"
    code.mkdir()
    (code / "own_code.py").write_text(_OWN_CODE)
    (code / "own_helper.py").write_text(_OWN_HELPER)
    known = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    lines = ", ".join(f'"{key}": "{value}"' for key, value in (known | dict(conf)).items())
    return {
        "modules": "[own_code]",
        "python_path": f"[{code}]",
        "spark": f"{{master: '{master}', conf: {{{lines}}}}}",
        "heartbeat_interval_ms": 500,
    }


def check_counts(made: Engine, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Assert that each key is counted 1..n, by code from the archive."""
    made.wait_until_done({made.config.sink_topic: len(rows)})
    counts: dict[bytes | None, list[int]] = {}
    for key, value in made.read(made.config.sink_topic):
        counts.setdefault(key, []).append(int(value or b"0"))
    expected = Counter(key + PLACE for key, _ in rows)
    assert counts == {key: list(range(1, n + 1)) for key, n in expected.items()}


def worker_pids(log_file: Path) -> dict[int, int]:
    """Return the process id of each PipelineThread's last worker."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log_file.read_text())
    lines = re.findall(r"PipelineThread runs .*", text)
    return {_number("thread", line): _number("pid", line) for line in lines}


def _number(name: str, line: str) -> int:
    match = re.search(rf"\b{name}=([0-9]+)", line)
    assert match is not None
    return int(match[1])


def ancestor(pid: int, generations: int) -> int:
    """Return a parent, or further up: PySpark's worker and daemon, an executor, its Worker."""
    for _ in range(generations):
        answer = subprocess.run(
            ["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True
        )
        pid = int(answer.stdout)
    return pid
