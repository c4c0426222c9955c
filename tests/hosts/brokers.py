"""Kafka brokers, each on a host of its own."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kafka_pipeline.admin.broker.jars import BROKER
from kafka_pipeline.admin.broker.processes import BrokerProcess
from kafka_pipeline.admin.broker.properties import BrokerNode, server_properties
from kafka_pipeline.admin.broker.server import KafkaServer, new_cluster_id
from kafka_pipeline.admin.terminal import last_words
from tests.hosts.network import Host

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.05
_PORT, _OBSERVER_PORT, _CONTROLLER_PORT = 9092, 9093, 9094
_STARTED = b"Kafka Server started"


class HostBrokers:
    """Brokers that know each other by name, and are known to clients by name.

    The observer has a listener that gives addresses: it sees what happens while no name resolves.
    Used as a `LocalCluster` is: brokers have numbers from 1, and files in `directory`.
    """

    def __init__(
        self, directory: Path, hosts: Sequence[Host], settings: Mapping[str, str | int]
    ) -> None:
        """Remember where they are to run; `start` starts them."""
        self.directory = directory
        self.hosts = dict(enumerate(hosts, 1))
        self._settings = settings
        self._processes: dict[int, BrokerProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the observer."""
        return ",".join(f"{host.address}:{_OBSERVER_PORT}" for host in self.hosts.values())

    @property
    def named_servers(self) -> str:
        """The names of all brokers, for processes on the hosts."""
        return ",".join(f"{host.name}:{_PORT}" for host in self.hosts.values())

    def process(self, broker: int) -> BrokerProcess | None:
        """Return the process of a broker; None if it does not run."""
        process = self._processes.get(broker)
        return process if process and process.is_running() else None

    def start(self, broker: int | None = None, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the brokers that do not run, or only `broker`, and wait until they serve."""
        server = KafkaServer(BROKER)
        self.directory.mkdir(parents=True, exist_ok=True)
        missing = [number for number in self._chosen(broker) if self.process(number) is None]
        self._format(server, missing)
        deadline_s = time.monotonic() + timeout_s
        try:
            log_starts = {number: self._launch(server, number) for number in missing}
            for number, start in log_starts.items():
                self._wait_until_serving(number, start, deadline_s)
        except BaseException:
            self._signal(missing, signal.SIGKILL, _KILL_TIMEOUT_S)
            raise

    def stop(self, broker: int | None = None, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the brokers, or only `broker`; kill those that still run after `timeout_s`."""
        self._signal(self._chosen(broker), signal.SIGTERM, timeout_s)
        self._signal(self._chosen(broker), signal.SIGKILL, _KILL_TIMEOUT_S)

    def kill(self, broker: int) -> None:
        """End a broker at once, as a crash would (SIGKILL)."""
        self._signal([broker], signal.SIGKILL, _KILL_TIMEOUT_S)

    def log_file(self, broker: int) -> Path:
        """Return where a broker writes its log."""
        return self.directory / f"broker-{broker}.log"

    def _chosen(self, broker: int | None) -> list[int]:
        return list(self.hosts) if broker is None else [broker]

    def _properties_file(self, broker: int) -> Path:
        return self.directory / f"server-{broker}.properties"

    def _format(self, server: KafkaServer, brokers: Iterable[int]) -> None:
        """Write the settings of brokers, and prepare the data folders of new ones."""
        nodes = {number: BrokerNode(number, _PORT, _CONTROLLER_PORT) for number in self.hosts}
        cluster_id = new_cluster_id()
        for number in brokers:
            file, data = self._properties_file(number), self.directory / f"data-{number}"
            extra = {**self._listeners(self.hosts[number]), **self._settings}
            text = server_properties(nodes[number], list(nodes.values()), data, extra)
            file.write_text(text, encoding="ascii")
            if not data.exists():
                server.format(file, cluster_id)

    def _listeners(self, host: Host) -> dict[str, str | int]:
        ports = {"PLAINTEXT": _PORT, "OBSERVER": _OBSERVER_PORT, "CONTROLLER": _CONTROLLER_PORT}
        return {
            "listeners": ",".join(f"{n}://{host.address}:{port}" for n, port in ports.items()),
            "advertised.listeners": (
                f"PLAINTEXT://{host.name}:{_PORT},OBSERVER://{host.address}:{_OBSERVER_PORT}"
            ),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in ports),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": ",".join(
                f"{number}@{each.name}:{_CONTROLLER_PORT}" for number, each in self.hosts.items()
            ),
        }

    def _launch(self, server: KafkaServer, broker: int) -> int:
        """Start a broker; return the length of its log before."""
        log = self.log_file(broker)
        length = log.stat().st_size if log.exists() else 0
        self._processes[broker] = server.launch(
            self._properties_file(broker),
            log,
            is_short_lived=True,
            within=self.hosts[broker].within,
        )
        return length

    def _wait_until_serving(self, broker: int, log_start: int, deadline_s: float) -> None:
        while True:
            log = self.log_file(broker).read_bytes()[log_start:]
            if _STARTED in log and self._accepts(self.hosts[broker]):
                return
            words = last_words(log.decode(errors="replace"))
            assert self.process(broker) is not None, f"broker {broker} ended:\n{words}"
            assert time.monotonic() < deadline_s, f"broker {broker} is not up in time:\n{words}"
            time.sleep(_POLL_S)

    @staticmethod
    def _accepts(host: Host) -> bool:
        try:
            socket.create_connection((host.address, _OBSERVER_PORT), timeout=1).close()
        except OSError:
            return False
        return True

    def _signal(self, brokers: Iterable[int], number: signal.Signals, timeout_s: float) -> None:
        running = [process for broker in brokers if (process := self.process(broker)) is not None]
        deadline_s = time.monotonic() + timeout_s
        for process in running:
            process.send(number)
        for process in running:
            process.wait(deadline_s - time.monotonic())
