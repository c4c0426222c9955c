"""The driver channel: JSON between the TaskManager's process and each PipelineThread's worker.

A worker may run on another host, so the channel is a TCP connection to the driver, opened by
the worker and authenticated with a random key (`multiprocessing.connection`). It carries JSON
text and never unpickles anything.
"""

from __future__ import annotations

import faulthandler
import json
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
from typing import Any

import structlog

from taskmanager.listening import ConnectionServer, connect

Message = dict[str, Any]

ORPHAN_GRACE_S = 10
BUSY_WAIT_S = 1.0
"""How long `dump` and `kill` wait for a message that is being sent to the same worker."""

_PING = b'{"type":"ping"}'

logger = structlog.get_logger()


def here() -> str:
    """Return what is the same for two processes only if they see the same process ids."""
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
    """Held by whoever writes to the connection."""

    @property
    def takes_more(self) -> bool:
        """Whether a short message can be written now without blocking."""
        poll = select.poll()
        poll.register(self.connection.fileno(), select.POLLOUT)
        return bool(poll.poll(0))


class DriverChannel:
    """The driver's side: accepts the workers and passes on what they say.

    `ping` may be called from another thread than the other methods.
    """

    def __init__(self, host: str, on_message: Callable[[int, Message], None]) -> None:
        """Listen on a free port of `host`.

        `on_message(thread, message)` is called from threads of the channel, in order for each
        worker. Raises ValueError, KeyError or TypeError for a message that it cannot read.
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
        return list(self._workers)  # without the lock: a signal handler asks, too

    def send(self, thread: int, message: Message) -> None:
        """Send to a thread's worker, if there is one."""
        self._send(thread, message, -1)

    def ping(self) -> None:
        """Send a sign of life to all workers. Never blocks.

        Left out are workers that are being sent something else, which they take for the same, and
        those that have not read for so long that their connection takes no more.
        """
        for thread in self.threads:
            worker = self._workers.get(thread)
            if worker is None or not worker.sending.acquire(blocking=False):
                continue
            try:
                if worker.takes_more:
                    worker.connection.send_bytes(_PING)
            except (OSError, ValueError):
                pass  # It has just hung up: `_serve` notices.
            finally:
                worker.sending.release()

    def dump(self, thread: int) -> None:
        """Let a worker write its stacks: by SIGUSR1, which needs no GIL, where that reaches it."""
        if not self._signal(thread, signal.SIGUSR1):
            self._send(thread, {"type": "dump"}, BUSY_WAIT_S)

    def kill(self, thread: int) -> None:
        """End a worker; one on another host obeys if it ever reads the channel again."""
        if not self._signal(thread, signal.SIGKILL):
            self._send(thread, {"type": "die"}, BUSY_WAIT_S)

    def _send(self, thread: int, message: Message, wait_s: float) -> None:
        """Send; `wait_s` bounds the wait for another message to the same worker, unless it is -1.

        Signal handlers must bound it: the message may be that of the code that they interrupt.
        """
        worker = self._workers.get(thread)
        if worker is None:
            return
        if not worker.sending.acquire(timeout=wait_s):
            logger.warning("worker does not take messages", thread=thread)
            return
        try:
            worker.connection.send_bytes(json.dumps(message).encode())
        except OSError:
            logger.warning("worker does not take messages", thread=thread)
        finally:
            worker.sending.release()

    def _signal(self, thread: int, number: signal.Signals) -> bool:
        """Send a signal to a worker on this host; return whether there is one."""
        worker = self._workers.get(thread)
        if worker is None or worker.place != here():
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.kill(worker.pid, number)
        return True

    def close(self) -> None:
        """Stop listening. The connections end with the process, or with the workers'."""
        self._server.close()

    def _serve(self, connection: Connection) -> None:
        try:
            hello = json.loads(connection.recv_bytes())
            thread, pid = int(hello["thread"]), int(hello["pid"])
            worker = _Worker(connection, pid, str(hello["place"]))
        except (EOFError, OSError, ValueError, KeyError):
            connection.close()
            return
        with self._changing:
            self._workers[thread] = worker
        message = hello
        try:
            while self._workers.get(thread) is worker:
                self._pass_on(thread, message)
                message = json.loads(connection.recv_bytes())
            # Spark took its executor for lost, and the thread has a new worker. This one ends when
            # its channel is closed; it reports often.
            logger.warning("worker has a successor: hung up", thread=thread, pid=pid)
            connection.close()
        except (EOFError, OSError):
            with self._changing:
                if self._workers.get(thread) is worker:
                    del self._workers[thread]

    def _pass_on(self, thread: int, message: Message) -> None:
        try:
            self._on_message(thread, message)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("a worker says what cannot be read", thread=thread, reason=str(error))


class WorkerChannel:
    """The worker's side. `is_lost` once the driver is gone: whoever works then stops.

    A thread of its own reads, so commands and the driver's pings arrive while the worker is
    busy. It ends the process when it reads `die`, since the worker hangs then; and if the worker
    is still there 10 s after the driver went, since its tasks belong to others by then. The worker
    must write its stacks on SIGUSR1.
    """

    def __init__(self, address: tuple[str, int], authkey: bytes, thread: int) -> None:
        self._connection = connect(address, authkey)
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._closed = threading.Event()
        self.is_lost = False
        self.last_heard_s = time.monotonic()
        self.send({"type": "hello", "thread": thread, "pid": os.getpid(), "place": here()})
        threading.Thread(target=self._read, name="channel", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send to the driver; what cannot be sent any more is dropped."""
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self.is_lost = True

    def receive(self, wait_s: float = 0) -> Message | None:
        """Return the next command, `None` if there is none within `wait_s`."""
        try:
            return self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        self._connection.close()

    def _read(self) -> None:
        try:
            while True:
                message = json.loads(self._connection.recv_bytes())
                self.last_heard_s = time.monotonic()
                if message["type"] == "dump":
                    faulthandler.dump_traceback(all_threads=True)
                elif message["type"] == "die":
                    os._exit(1)
                elif message["type"] != "ping":
                    self._inbox.put(message)
        except (EOFError, OSError):
            self.is_lost = True
            if not self._closed.wait(ORPHAN_GRACE_S):
                os._exit(1)
