"""Secrets that pipeline.yaml refers to: they reach code and databases, and nothing else."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_committed
from kafka_pipeline.common.protocol.status import TaskState
from tests.engine import Engine, engine
from tests.user_code import signing

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEY, NEW_KEY = "hunter2-of-the-class", "correct-horse-of-the-class"
USER, PASSWORD = "ann-of-the-database", "swordfish-of-the-database"
TIMEOUT_S = 60

PIPELINE = """
- id: Sign
  type: signing:Sign
  config: {key: "${file:secrets/key}"}
  to: [sink]
- id: Named
  type: sql
  query: SELECT name AS value FROM input JOIN names USING (key)
  tables:
    names:
      format: jdbc
      options: {url: "URL", driver: org.apache.hive.jdbc.HiveDriver, dbtable: names,
                user: "${DB_USER}", password: "${DB_PASSWORD}"}
  to: [sink]
"""


class Database:
    """Takes what a client of Hive says first, its user and its password, and hangs up."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"jdbc:hive2://127.0.0.1:{self._socket.getsockname()[1]}/shop"
        self.heard = b""
        self.has_password = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed
                return
            with client:
                client.settimeout(TIMEOUT_S)
                while PASSWORD.encode() not in self.heard and (data := client.recv(4096)):
                    self.heard += data
                if PASSWORD.encode() in self.heard:
                    self.has_password.set()


@contextmanager
def running(folder: Path, servers: str, database: Database) -> Iterator[Engine]:
    """Run a job whose TaskManager, and no other process, has the database's password."""
    shutil.copy(signing.__file__, folder)
    driver = "org.apache.hive.jdbc.HiveDriver"
    with engine(
        folder,
        servers,
        f"secrets_{os.getpid()}",
        PIPELINE.replace("URL", database.url),
        tm_number=1,
        parallelism=1,
        heartbeat_interval_ms=500,
        modules="[signing]",
        python_path='["."]',
        secrets="{variables: [DB_USER, DB_PASSWORD], files: [secrets]}",
        tables=f'{{jdbc: {{urls: ["{database.url}"], drivers: [{driver}]}}}}',
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0, environment={"DB_USER": USER, "DB_PASSWORD": PASSWORD})
        yield made


def reason_of(status: ClusterStatus, processor: str) -> str:
    """Return why a processor's only task has failed; "" if it has not."""
    (found,) = [task.status for task in status.tasks if task.task.processor == processor]
    return found.reason if found is not None and found.state is TaskState.FAILED else ""


def everything(made: Engine) -> str:
    """Return all records of all topics of the job, all logs, and what commands show."""
    job = made.config.job_name or ""
    topics = {name: count for name, count in Admin(made.config).topics().items() if job in name}
    assert {made.names.pipeline, made.names.processors("0"), made.names.heartbeat} <= topics.keys()
    parts = [
        str((batch.topic, batch.keys, batch.values, batch.headers))
        for topic, count in topics.items()
        for batch in read_committed(made.config, topic, count)
    ]
    parts.append(made.logs())
    parts.append(made.run_command("versions", "--json"))
    parts.append(made.run_command("plan", with_pipeline=True))
    return "\n".join(parts)


def test_secrets_are_on_no_topic_and_in_no_log_or_status(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    key = tmp_path / "secrets" / "key"
    key.parent.mkdir()
    key.write_text(f"{KEY}\n")
    with closing(Database()) as database, running(tmp_path, bootstrap_servers, database) as made:
        made.write([(b"k", b"1")])
        made.wait_until_done({made.names.sink: 1})
        assert database.has_password.wait(TIMEOUT_S)
        assert USER.encode() in database.heard
        made.wait_until(lambda s: "cannot be read" in reason_of(s, "Named"))
        shown = made.run_command("status", "--json")
        made.run_command("pause", "Named")

        key.write_text(NEW_KEY)
        made.run_command("restart", "Sign")
        made.write([(b"k", b"2")])
        made.wait_until_done({made.names.sink: 2})
        key.unlink()
        with pytest.raises(AssertionError, match="restart ended with 1"):
            made.run_command("restart", "Sign")
        reason = reason_of(made.wait_until(lambda s: bool(reason_of(s, "Sign"))), "Sign")
        assert reason.startswith("TaskManager 0 at ")
        assert reason.endswith("Sign.config.key: ${file:secrets/key}: there is no such file")

        found = shown + everything(made)
        signed = [signing.signature(KEY, b"1"), signing.signature(NEW_KEY, b"2")]
        assert [value for _, value in made.read(made.names.sink)] == signed
    assert "${file:secrets/key}" in found
    assert "${DB_PASSWORD}" in found
    for secret in (KEY, NEW_KEY, USER, PASSWORD):
        assert secret not in found
