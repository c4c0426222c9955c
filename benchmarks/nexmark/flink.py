"""Flink SQL as a contender for the queries of Nexmark."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Job, Running, launch
from benchmarks.nexmark.catalog import FOLDER, sections
from benchmarks.peers.flink_sql import FlinkSql

QUERIES = sections(FOLDER / "flink.sql")
TABLES = {name for name, section in QUERIES.items() if section.words}
"""The queries whose results are a table."""
_APPLICATION = Path(__file__).with_name("flink_query.py")


class FlinkQueries(FlinkSql):
    """One process with a cluster of Flink in it, which has a slot for each thread."""

    def __init__(self, *, is_mini_batch: bool) -> None:
        """Use mini-batches or not: they delay results to save work."""
        self._is_mini_batch = is_mini_batch
        if is_mini_batch:
            self.title = f"{FlinkSql.title}, mini-batch"

    def start(self, job: Job) -> Running:
        """Start the process."""
        section = QUERIES[job.kind]
        checkpoints = job.state_dir(0)
        command = [
            *(str(self._python), str(_APPLICATION), section.text, ",".join(section.words)),
            *(str(self._is_mini_batch).lower(), job.servers, job.name, job.sink),
            *(str(job.instances * job.threads), checkpoints.as_uri(), self._connector.as_uri()),
        ]
        environment = {"JAVA_HOME": str(self._java.home), "FLINK_LOG_DIR": str(job.folder)}
        return Running([[launch(job, "0_flink", command, environment)]], group=job.name)
