"""The pages of a daemon that runs: what a monitor sees of it."""

from __future__ import annotations

import json
from http.client import HTTPConnection

from prometheus_client.parser import text_string_to_metric_families

from kafka_pipeline.admin.daemons import Daemon
from tests.waiting import wait_until

TIMEOUT_S = 60
_LOGGED = "metrics are shown"


class Pages:
    """The pages of a daemon, at the port that it has logged as JSON."""

    def __init__(self, daemon: Daemon) -> None:
        """Wait until it has logged that."""
        wait_until(lambda: _LOGGED in daemon.log_file.read_text())
        lines = [line for line in daemon.log_file.read_text().splitlines() if _LOGGED in line]
        self.port = int(json.loads(lines[0])["port"])

    def get(self, path: str) -> tuple[int, str]:
        """Return the status of a page, and what is on it."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    def is_ready(self) -> bool:
        """Whether the daemon says that it is."""
        return self.get("/readyz")[0] == 200

    def values(self, name: str, **labels: str) -> dict[str, float]:
        """Return the values of a metric, by its label `processor`, summed over the others."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == f"kafka_pipeline_{name}" and labels.items() <= (
                    sample.labels.items()
                ):
                    key = sample.labels.get("processor", "")
                    found[key] = found.get(key, 0) + sample.value
        return found

    def names(self) -> set[str]:
        """Return the names of the engine's metrics."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {s.name for f in families for s in f.samples if s.name.startswith("kafka_")}
