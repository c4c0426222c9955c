"""A real Kafka on this machine, for trying things out and for tests."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kafka_pipeline.admin.broker.jars import BROKER, JarSet
from kafka_pipeline.admin.broker.ports import LOOPBACK, accepts, find_free, is_free
from kafka_pipeline.admin.broker.processes import BrokerProcess
from kafka_pipeline.admin.broker.properties import (
    BrokerNode,
    security_properties,
    server_properties,
)
from kafka_pipeline.admin.broker.secrets_folder import FOLDER, PRIVATE_FOLDER, SecretsFolder
from kafka_pipeline.admin.broker.server import (
    KafkaServer,
    new_cluster_id,
    read_cluster_id,
)
from kafka_pipeline.admin.broker.state import NodeState, read_state, write_state
from kafka_pipeline.admin.terminal import last_words
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.suggest import counted

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.05
_FOLDER = 0o777  # as the umask allows
_STARTED = b"Kafka Server started"
_DATA_DIR = re.compile("data-([1-9][0-9]*)")


class LocalCluster:
    """Kafka brokers on the loopback interface: each a JVM, broker and KRaft controller in one.

    Everything is in one folder:

        broker.json            the processes and ports, while the cluster runs
        broker.log             the broker's output; broker-1.log… if there are several
        data-1/, data-2/…      Kafka's data, which survives stop() and start()
        server-1.properties…   the settings, rewritten by each start()
        secrets/               certificates and passwords, if it is secured
        .lock                  held by a command that starts or stops the cluster

    The brokers outlive this object and the process that started them; `find` returns them again.
    Processes that share the folder must take turns (`exclusive`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        num_brokers: int = 1,
        port: int | None = None,
        settings: Mapping[str, str | int] = {},
        is_secure: bool = False,
        is_short_lived: bool = False,
        jar_set: JarSet = BROKER,
        found: Sequence[NodeState] = (),
    ) -> None:
        """Choose the ports; nothing starts yet.

        Args:
            directory: where everything is kept; start() creates it if needed. Its path must not
                contain a comma, which Kafka would take for the end of the path.
            num_brokers: how many, from 1. Three or more survive the loss of one.
            port: port of the first broker; the others follow it. By default, free ports.
            settings: entries of server.properties for all brokers, which override the built-in
                ones. They are not saved: a cluster from `find` starts its brokers without them.
            is_secure: whether clients need TLS, a name and rights; see `SecretsFolder`.
            is_short_lived: whether it will run for minutes: its JVMs then take less CPU time at
                first, and more later.
            jar_set: the version of Kafka.
            found: the brokers of an existing cluster, instead of new ones; passed by `find`.

        Raises:
            UnavailableError: no free ports.
        """
        # Absolute, since Kafka and later commands may run in another folder.
        self.directory = directory.expanduser().absolute()
        self._settings = dict(settings)
        self.is_secure = is_secure
        self._is_short_lived = is_short_lived
        self._jar_set = jar_set
        states = found or [
            NodeState(node, None) for node in _new_nodes(num_brokers, port, is_secure=is_secure)
        ]
        self._states = {state.node.id: state for state in states}

    @classmethod
    def find(cls, directory: Path) -> LocalCluster | None:
        """Return the cluster that runs in a folder, fully or partly; None if none does.

        Raises `UnavailableError` if its broker.json is damaged.
        """
        states = read_state(directory / "broker.json")
        if not any(state.is_running for state in states):
            return None
        is_secure = any(state.node.tls_port is not None for state in states)
        return cls(directory, is_secure=is_secure, found=states)

    @property
    def nodes(self) -> tuple[BrokerNode, ...]:
        """The brokers, running or not, by number."""
        return tuple(state.node for state in self._states.values())

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, running or not, as Kafka clients take them."""
        return ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    @property
    def tls_servers(self) -> str:
        """The addresses for clients with certificates, if it is secured."""
        return ",".join(f"{LOOPBACK}:{node.tls_port}" for node in self.nodes)

    def process(self, broker: int) -> BrokerProcess | None:
        """Return the process of a broker; None if it does not run."""
        state = self._states[broker]
        return state.process if state.is_running else None

    def is_running(self) -> bool:
        """Tell whether every broker runs."""
        return all(state.is_running for state in self._states.values())

    def log_file(self, broker: int) -> Path:
        """Return where a broker writes its log."""
        name = "broker.log" if len(self._states) == 1 else f"broker-{broker}.log"
        return self.directory / name

    def start(self, broker: int | None = None, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the brokers that do not run, or only `broker`, and wait until they serve clients.

        Takes about four seconds, and up to `timeout_s`. A broker that is started alone serves
        clients only if most of the others run. If this raises, it stops the brokers that it has
        started.

        Raises:
            UnavailableError: Java or Kafka is not available, a port is in use, the folder belongs
                to another cluster, or a broker does not come up.
            ConfigError: it is to be secured, and the library for certificates is missing.
            OSError: the folder cannot be written.
        """
        server = KafkaServer(self._jar_set)
        chosen = self._choose(broker)
        missing = [node for node in chosen if self.process(node.id) is None]
        self.directory.mkdir(parents=True, exist_ok=True)
        self._refuse_unusable_folder()
        for node in missing:
            _require_free_ports(node)
        self._format(server)
        self._launch(server, missing, timeout_s)

    def stop(self, broker: int | None = None, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the brokers, or only `broker`; kill those that still run after `timeout_s`.

        Raises:
            UnavailableError: a process belongs to another user.
        """
        chosen = self._choose(broker)
        self._signal(chosen, signal.SIGTERM, timeout_s)
        self._signal(chosen, signal.SIGKILL, _KILL_TIMEOUT_S)
        self._save()

    def kill(self, broker: int) -> None:
        """End a broker at once, as a crash would (SIGKILL)."""
        self._signal(self._choose(broker), signal.SIGKILL, _KILL_TIMEOUT_S)
        self._save()

    def _choose(self, broker: int | None) -> tuple[BrokerNode, ...]:
        return self.nodes if broker is None else (self._states[broker].node,)

    def _properties_file(self, node: BrokerNode) -> Path:
        return self.directory / f"server-{node.id}.properties"

    def _data_dir(self, node: BrokerNode) -> Path:
        return self.directory / f"data-{node.id}"

    def _save(self) -> None:
        file = self.directory / "broker.json"
        if any(state.is_running for state in self._states.values()):
            write_state(file, tuple(self._states.values()))
        else:
            file.unlink(missing_ok=True)

    def _refuse_unusable_folder(self) -> None:
        if "," in str(self.directory):
            raise UnavailableError(
                f"Kafka takes no folder with a comma in its path, as {self.directory} has: "
                "choose another (--dir)."
            )
        ours = {state.process for state in self._states.values()}
        for state in read_state(self.directory / "broker.json"):
            if state.is_running and state.process not in ours:
                raise UnavailableError(
                    f"another Kafka runs in {self.directory}, at port {state.node.port}. "
                    "Stop it first (`pipeline broker stop`) or choose another folder (--dir)."
                )

    def _format(self, server: KafkaServer) -> None:
        """Prepare new data folders; existing ones must belong to this cluster."""
        found = _brokers_in(self.directory)
        if found and len(found) != len(self.nodes):
            raise UnavailableError(
                f"{self.directory} holds the data of {counted(len(found), 'broker')}, not of "
                f"{len(self.nodes)}. Start as many (--brokers), choose another folder (--dir) "
                "or delete the data (`pipeline broker stop --delete-data`)."
            )
        secrets = self._secrets(has_data=bool(found))
        ids = {node.id: read_cluster_id(self._data_dir(node)) for node in self.nodes}
        for node in self.nodes:
            if node.id not in found and ids[node.id] is None:
                _require_empty(self._data_dir(node))
        # All folders exist before one is formatted: they show how many brokers there are.
        for node in self.nodes:
            mode = PRIVATE_FOLDER if secrets else _FOLDER
            self._data_dir(node).mkdir(mode=mode, exist_ok=True)
            extra = security_properties(node, secrets.path) if secrets else {}
            settings = {**extra, **self._settings}
            text = server_properties(node, self.nodes, self._data_dir(node), settings)
            self._properties_file(node).write_text(text, encoding="ascii")
        cluster_id = next(filter(None, ids.values()), None) or new_cluster_id()
        for node in self.nodes:
            if ids[node.id] is None:
                passwords = secrets.passwords() if secrets else {}
                server.format(self._properties_file(node), cluster_id, passwords)

    def _secrets(self, *, has_data: bool) -> SecretsFolder | None:
        """Return the folder of the secrets, made if need be; `None` if nothing is secured.

        Users come into being when the data are, so existing data stay as secured as they are.
        """
        secrets = SecretsFolder.of(self.directory)
        if secrets is not None and not self.is_secure:
            raise UnavailableError(
                f"the Kafka in {self.directory} is secured: start it with --secure, choose another "
                "folder (--dir) or delete the data (`pipeline broker stop --delete-data`)."
            )
        if secrets is None and self.is_secure:
            if has_data:
                raise UnavailableError(
                    f"the Kafka in {self.directory} was started without --secure, and cannot be "
                    "secured later: choose another folder (--dir) or delete the data "
                    "(`pipeline broker stop --delete-data`)."
                )
            secrets = SecretsFolder.make(self.directory)
        if secrets is not None:
            secrets.write_client_files(self.bootstrap_servers, self.tls_servers)
        return secrets

    def _launch(self, server: KafkaServer, nodes: Sequence[BrokerNode], timeout_s: float) -> None:
        log_starts = {node.id: _size(self.log_file(node.id)) for node in nodes}
        try:
            for node in nodes:
                process = server.launch(
                    self._properties_file(node),
                    self.log_file(node.id),
                    is_short_lived=self._is_short_lived,
                )
                self._states[node.id] = NodeState(node, process)
                self._save()
            deadline_s = time.monotonic() + timeout_s
            for node in nodes:
                self._wait_until_serving(node, log_starts[node.id], deadline_s)
        except BaseException:
            # On Ctrl-C too: a broker that was not seen to come up must not be left running.
            self._signal(nodes, signal.SIGKILL, _KILL_TIMEOUT_S)
            self._save()
            raise

    def _wait_until_serving(self, node: BrokerNode, log_start: int, deadline_s: float) -> None:
        log_file = self.log_file(node.id)
        while True:
            is_running = self.process(node.id) is not None
            log = _read_from(log_file, log_start)
            # The port opens a moment before the controller lets the broker lead partitions.
            if is_running and _STARTED in log and accepts(node.port):
                return
            if not is_running or time.monotonic() >= deadline_s:
                slow = "did not come up in time, as on a busy machine: start it again"
                ending = slow if is_running else "ended while starting"
                words = last_words(log.decode(errors="replace"))
                raise UnavailableError(
                    f"the Kafka broker at {LOOPBACK}:{node.port} {ending}. "
                    f"The end of {log_file}:\n{words}"
                )
            time.sleep(_POLL_S)

    def _signal(
        self, nodes: Iterable[BrokerNode], number: signal.Signals, timeout_s: float
    ) -> None:
        """Send a signal to all the brokers, then wait for all of them to end."""
        running = [process for node in nodes if (process := self.process(node.id)) is not None]
        deadline_s = time.monotonic() + timeout_s
        for process in running:
            try:
                process.send(number)
            except PermissionError as error:
                raise UnavailableError(
                    f"the Kafka in {self.directory} (process {process.pid}) belongs to another "
                    "user: let them stop it"
                ) from error
        for process in running:
            process.wait(deadline_s - time.monotonic())


def delete_data(directory: Path) -> None:
    """Delete the files of a stopped cluster, and its folder if nothing else is in it.

    Keeps files that no broker has made, and `.lock`: if it were deleted, a process that waits for
    it and the next process to start could both get the lock.

    Raises:
        UnavailableError: data cannot be deleted.
        OSError: the folder or a file in it cannot be used.
    """
    brokers = _brokers_in(directory)
    for broker in brokers:
        data_dir = directory / f"data-{broker}"
        try:
            shutil.rmtree(data_dir)
        except OSError as error:
            raise UnavailableError(f"{data_dir} cannot be deleted: {error}") from error
    has_secrets = SecretsFolder.of(directory) is not None
    if has_secrets:
        shutil.rmtree(directory / FOLDER)
    if brokers or has_secrets:
        names = ["broker.json", "broker.log", "broker.crash"]
        for n in brokers:
            names += [f"server-{n}.properties", f"broker-{n}.log", f"broker-{n}.crash"]
        for file in (directory / name for name in names):
            if _is_file(file):
                file.unlink()
        with suppress(OSError):
            directory.rmdir()


def _brokers_in(directory: Path) -> set[int]:
    """Return the numbers of the brokers that keep their data in a folder.

    A broker has a folder `data-<n>` next to a `server-<n>.properties`. Symbolic links do not count.
    """
    return {
        int(match[1])
        for path in directory.iterdir()
        if (match := _DATA_DIR.fullmatch(path.name))
        and path.is_dir()
        and not path.is_symlink()
        and _is_file(directory / f"server-{match[1]}.properties")
    }


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _new_nodes(num_brokers: int, port: int | None, *, is_secure: bool) -> list[BrokerNode]:
    if num_brokers < 1:
        raise ValueError(f"num_brokers must be 1 or more, not {num_brokers}")
    ports = find_free(num_brokers) if port is None else range(port, port + num_brokers)
    others = find_free(num_brokers * (2 if is_secure else 1), excluded=ports)
    return [
        BrokerNode(i + 1, ports[i], others[i], others[num_brokers + i] if is_secure else None)
        for i in range(num_brokers)
    ]


def _require_empty(data_dir: Path) -> None:
    if data_dir.is_dir() and any(data_dir.iterdir()):
        raise UnavailableError(
            f"{data_dir} holds files, and none of them is Kafka's: choose another folder (--dir)"
        )


def _require_free_ports(node: BrokerNode) -> None:
    for port in (node.port, node.controller_port, node.tls_port):
        try:
            if port is None or is_free(port):
                continue
        except PermissionError as error:
            raise UnavailableError(
                f"port {port} may not be opened by this user: choose one above 1023 (--port)"
            ) from error
        raise UnavailableError(
            f"port {port} of {LOOPBACK} is in use by another program "
            f"(`lsof -nP -iTCP:{port} -sTCP:LISTEN` shows which). Stop that one, or choose "
            "another port (--port)."
        )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _read_from(file: Path, start: int) -> bytes:
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read()
