"""The driver channel: messages between the TaskManager's process and each PipelineThread's worker.

A worker may run on another host, so the channel is a TCP connection that the worker opens to the
driver. A random key authenticates it (`multiprocessing.connection`). The channel carries the JSON
of `channel_messages.py` and never unpickles anything.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

import structlog

from kafka_pipeline.common.protocol.messages import MalformedMessageError
from kafka_pipeline.taskmanager.channel_messages import (
    Ask,
    Assign,
    Command,
    Die,
    Died,
    Dump,
    Hello,
    Ping,
    Revoke,
    Stop,
    ToDriver,
    ToWorker,
    decode,
    encode,
)
from kafka_pipeline.taskmanager.listening import ConnectionServer, connect

ORPHAN_GRACE_S = 10
_TELL_TIMEOUT_S = 10.0
BUSY_WAIT_S = 1.0
"""How long `dump` and `kill` wait while another message is being sent to the same worker."""

_PINGS = {is_sure: encode(Ping(is_sure)) for is_sure in (False, True)}

logger = structlog.get_logger()


def here() -> str:
    """Return a string that is equal in two processes only if they see the same process ids."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # containers may share a host's name
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


@dataclass(frozen=True, slots=True)
class _Worker:
    connection: Connection
    pid: int
    place: str
    sending: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that writes to the connection."""

    @property
    def takes_more(self) -> bool:
        """Whether a short message can be written now without blocking."""
        poll = select.poll()
        poll.register(self.connection.fileno(), select.POLLOUT)
        return bool(poll.poll(0))


class DriverChannel:
    """The driver's side: accepts the workers and passes their messages on.

    `ping` and `ask` may be called from different threads than the other methods.
    """

    def __init__(self, host: str, on_message: Callable[[int, ToDriver], None]) -> None:
        """Listen on a free port of `host`.

        The channel's threads call `on_message(thread, message)`, in order for each worker, with a
        `Hello` first. A `Died` has a connection to itself, which is closed once `on_message` has
        returned. A message that cannot be read is logged and skipped.
        """
        self.authkey = os.urandom(32)
        self._on_message = on_message
        self._workers: dict[int, _Worker] = {}
        self._changing = threading.Lock()
        self._server = ConnectionServer("driver", host, self.authkey, self._serve)

    @property
    def port(self) -> int:
        """The port that workers connect to."""
        return self._server.port

    @property
    def threads(self) -> list[int]:
        """The threads whose workers are connected."""
        return list(self._workers)  # without the lock: a signal handler calls this too

    def send(self, thread: int, message: ToWorker) -> None:
        """Send to a thread's worker, if one is connected."""
        self._send(thread, message, -1)

    def ping(self, is_sure: bool) -> None:
        """Send a sign of life to all workers, and whether tasks may fence others. Never blocks.

        Two kinds of worker are skipped: one that is being sent another message, which also counts
        as a sign of life, and one that has not read for so long that its connection is full.
        """
        for thread in self.threads:
            self._send_unless_full(thread, _PINGS[is_sure], 0)

    def ask(self, thread: int, question: Ask) -> bool:
        """Send a query of state; return False if the worker cannot take it now.

        Then it is not connected, or its connection is full. May be called from any thread. Waits
        for a second at most, so that no query can delay a command to a hanging worker.
        """
        return self._send_unless_full(thread, encode(question), BUSY_WAIT_S)

    def dump(self, thread: int) -> None:
        """Have a worker write its stacks: by SIGUSR1 if it is on this host, which needs no GIL."""
        if not self._signal(thread, signal.SIGUSR1):
            self._send(thread, Dump(), BUSY_WAIT_S)

    def kill(self, thread: int) -> None:
        """End a worker; one on another host ends only if it reads the channel again."""
        if not self._signal(thread, signal.SIGKILL):
            self._send(thread, Die(), BUSY_WAIT_S)

    def _send(self, thread: int, message: ToWorker, wait_s: float) -> None:
        """Send; `wait_s` limits the wait for another message to the same worker, unless it is -1.

        Signal handlers must limit it: they may have interrupted the code that sends that message.
        """
        worker = self._workers.get(thread)
        if worker is None:
            return
        if not worker.sending.acquire(timeout=wait_s):
            logger.warning("worker does not accept messages", thread=thread)
            return
        try:
            worker.connection.send_bytes(encode(message))
        except OSError:
            logger.warning("worker does not accept messages", thread=thread)
        finally:
            worker.sending.release()

    def _send_unless_full(self, thread: int, data: bytes, wait_s: float) -> bool:
        """Return whether it was sent. Only another message to the same worker is waited for."""
        worker = self._workers.get(thread)
        if worker is None or not worker.sending.acquire(timeout=wait_s):
            return False
        try:
            if worker.takes_more:
                worker.connection.send_bytes(data)
                return True
        except (OSError, ValueError):
            pass  # The worker has just hung up; `_serve` notices.
        finally:
            worker.sending.release()
        return False

    def _signal(self, thread: int, number: signal.Signals) -> bool:
        """Send a signal to a worker on this host; return whether there is such a worker."""
        worker = self._workers.get(thread)
        if worker is None or worker.place != here():
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.kill(worker.pid, number)
        return True

    def close(self) -> None:
        """Stop listening. Connections end when this process or the worker's ends."""
        self._server.close()

    def _serve(self, connection: Connection) -> None:
        message: ToDriver | None
        try:
            message = _from_worker(connection.recv_bytes())
        except (EOFError, OSError):
            message = None
        if isinstance(message, Died):
            self._on_message(message.thread, message)
        if not isinstance(message, Hello):
            connection.close()
            return
        thread = message.thread
        worker = _Worker(connection, message.pid, message.place)
        with self._changing:
            self._workers[thread] = worker
        try:
            while self._workers.get(thread) is worker:
                if message is not None:
                    self._on_message(thread, message)
                message = _from_worker(connection.recv_bytes(), thread)
            # Spark considers this worker's executor lost, and the thread has a new worker. The old
            # worker ends when its channel is closed, which it soon notices because it reports
            # often.
            logger.warning(
                "worker has a successor: connection closed", thread=thread, pid=worker.pid
            )
            connection.close()
        except (EOFError, OSError):
            with self._changing:
                if self._workers.get(thread) is worker:
                    del self._workers[thread]


def tell_of_death(address: tuple[str, int], authkey: bytes, died: Died) -> None:
    """Report to the driver how a worker ended; wait until it has read that, at most ten seconds.

    If the driver does not answer, the report is lost, and a warning is logged.
    """
    try:
        with connect(address, authkey) as connection:
            connection.send_bytes(encode(died))
            connection.poll(_TELL_TIMEOUT_S)  # until it hangs up
    except OSError as error:
        logger.warning("the driver does not learn how a worker ended", reason=str(error))


def _from_worker(data: bytes, thread: int | None = None) -> ToDriver | None:
    """Return a worker's message; `None` if it cannot be read, after logging why."""
    try:
        message = decode(data)
    except MalformedMessageError as error:
        reason = str(error)
    else:
        if isinstance(message, ToDriver):
            return message
        reason = f"{type(message).__name__} is a message to workers"
    logger.error("a worker sent a malformed message", thread=thread, reason=reason)
    return None


class WorkerChannel:
    """The worker's side. `is_lost` is set once the driver is gone; the worker then stops.

    A separate thread reads, so commands and the driver's pings arrive while the worker is busy.
    That thread ends the process in two cases: when it reads `die`, because the worker hangs; and
    when the worker still runs 10 s after the driver went, because other TaskManagers own its tasks
    by then. The worker must write its stacks on SIGUSR1.
    """

    def __init__(self, address: tuple[str, int], authkey: bytes, thread: int) -> None:
        self._connection = connect(address, authkey)
        self._inbox: SimpleQueue[Command | MalformedMessageError] = SimpleQueue()
        self._closed = threading.Event()
        self._sending = threading.Lock()
        self.on_ask: Callable[[Ask], None] = lambda _: None
        """Called with each query of state, on the thread that reads; it must not block."""
        self.is_lost = False
        self.on_ping: Callable[[bool], None] = lambda _: None
        """Called with each ping's `is_sure`, likewise."""
        self.last_heard_s = time.monotonic()
        self.send(Hello(thread, os.getpid(), here()))
        threading.Thread(target=self._read, name="channel", daemon=True).start()

    def send(self, message: ToDriver) -> None:
        """Send to the driver, from any thread; drop the message if the connection is gone."""
        data = encode(message)
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError:
            self.is_lost = True

    def receive(self, wait_s: float = 0) -> Command | None:
        """Return the next command, or `None` if there is none within `wait_s`.

        Raises `MalformedMessageError` for a command that cannot be read. The worker then ends, and
        its successor is assigned all tasks again. If the command were skipped, a task would wait
        for it forever.
        """
        try:
            command = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
        except Empty:
            return None
        if isinstance(command, MalformedMessageError):
            raise command
        return command

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        self._connection.close()

    def _read(self) -> None:
        try:
            while True:
                data = self._connection.recv_bytes()
                self.last_heard_s = time.monotonic()
                self._take(data)
        except (EOFError, OSError):
            self.is_lost = True
            if not self._closed.wait(ORPHAN_GRACE_S):
                os._exit(1)

    def _take(self, data: bytes) -> None:
        try:
            message = decode(data)
        except MalformedMessageError as error:
            self._inbox.put(error)
            return
        match message:
            case Ping(is_sure):
                self.on_ping(is_sure)
            case Dump():
                faulthandler.dump_traceback(all_threads=True)
            case Die():
                os._exit(1)
            case Ask():
                self.on_ask(message)
            case Assign() | Revoke() | Stop():
                self._inbox.put(message)
            case _:
                name = type(message).__name__
                self._inbox.put(MalformedMessageError(f"{name} is a message to the driver"))
