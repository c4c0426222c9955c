"""A TCP proxy on the loopback interface that can delay, swallow or reset traffic."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_READ_BYTES = 65_536
_IN_FLIGHT_BYTES = 4 * 1024 * 1024
_THROTTLED_SLICES_PER_S = 50
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Link:
    """Clients connect to it instead of a broker, at `port`; it forwards to `target_port`.

    The port is reserved from the start, so that a broker which is not up yet can advertise it.
    Clients can connect between `start` and `close`; as a context manager, it calls both.

    Each control affects open and new connections at once, and is in force when the call returns.
    The controls add up until `mend`; `cut` also ends open connections.
    """

    def __init__(self, target_port: int) -> None:
        """Reserve a free port; no connections are accepted before `start`."""
        self._target_port = target_port
        self._listener = socket.create_server((HOST, 0), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._to_broker, self._to_client = _Way(), _Way()
        self._is_cut = False
        self._acceptor: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start accepting connections."""
        self._thread.start()
        self._in_loop(self._start_to_accept)

    def close(self) -> None:
        """Reset all connections and release the port. Call it once, after `start`."""
        self.cut()
        asyncio.run_coroutine_threadsafe(self._stop_to_accept(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def delay(self, ms: float) -> None:
        """Delay every byte by `ms` (0 or more), in each direction; the order is kept."""
        self._change(lambda way: setattr(way, "delay_s", ms / 1000))

    def throttle(self, bytes_per_s: float) -> None:
        """Limit each direction to this many bytes a second (more than 0), for all connections."""
        self._change(lambda way: setattr(way, "bytes_per_s", bytes_per_s))

    def block(self, to_broker: bool, to_client: bool) -> None:
        """Hold back traffic in one or both directions; open and new connections stay open.

        Bytes that were read, or that wait in a socket, flow on after `mend` or another `block`.
        """

        def change() -> None:
            self._to_broker.set_blocked(to_broker)
            self._to_client.set_blocked(to_client)

        self._in_loop(change)

    def cut(self) -> None:
        """Reset all connections, and every new connection at once, until `mend`."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    def mend(self) -> None:
        """Forward everything without delay again, starting with the bytes that were held back."""

        def change() -> None:
            self._is_cut = False
            for way in (self._to_broker, self._to_client):
                way.mend()

        self._in_loop(change)

    def _change(self, change: Callable[[_Way], None]) -> None:
        def change_both() -> None:
            for way in (self._to_broker, self._to_client):
                change(way)
                way.notify()

        self._in_loop(change_both)

    def _in_loop(self, call: Callable[[], None]) -> None:
        async def run() -> None:
            call()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _start_to_accept(self) -> None:
        self._acceptor = self._loop.create_task(self._accept())

    async def _stop_to_accept(self) -> None:
        assert self._acceptor is not None, "close comes after start"
        self._acceptor.cancel()
        await asyncio.gather(self._acceptor, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            if self._is_cut:
                _reset(client)
                continue
            broker = socket.socket()
            connection = self._loop.create_task(self._serve(client, broker))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

    async def _cut(self) -> None:
        self._is_cut = True
        # A connection task that has not begun would never close its sockets.
        await asyncio.sleep(0)
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        """Forward bytes in both directions until both ends have closed, or one has failed."""
        pumps: list[asyncio.Task[None]] = []
        try:
            for end in (client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(broker, (HOST, self._target_port))
            pumps = [
                self._loop.create_task(_pump(client, broker, self._to_broker)),
                self._loop.create_task(_pump(broker, client, self._to_client)),
            ]
            await asyncio.gather(*pumps)
            client.close()
            broker.close()
        except OSError:
            # An end learns of the failure only when its direction is open again.
            await asyncio.gather(self._to_broker.opened(), self._to_client.opened())
        finally:
            for pump in pumps:
                pump.cancel()
            try:
                await asyncio.gather(*pumps, return_exceptions=True)
            finally:  # A cut may happen meanwhile.
                _reset(client)
                _reset(broker)


class _Way:
    """One direction of a link: its restrictions, and the tasks that wait for them to change."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.mend()

    def mend(self) -> None:
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self._is_blocked = False
        self._free_at_s = 0.0
        self.notify()

    def set_blocked(self, is_blocked: bool) -> None:
        self._is_blocked = is_blocked
        self.notify()

    def notify(self) -> None:
        """Wake up everything that waits; each waiter checks its restriction again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def opened(self) -> None:
        """Return when nothing blocks this direction."""
        while self._is_blocked:
            await self._changed.wait()

    async def turn(self, arrived_s: float, size: int) -> int:
        """Wait until bytes that arrived at `arrived_s` may leave; return how many of `size` may."""
        loop = asyncio.get_running_loop()
        while True:
            now_s = loop.time()
            at_s = max(arrived_s + self.delay_s, self._free_at_s if self.bytes_per_s else 0.0)
            if self._is_blocked:
                await self._changed.wait()
            elif now_s < at_s:
                await self._changed_within(at_s - now_s)
            elif self.bytes_per_s is None:
                return size
            else:
                size = min(size, max(int(self.bytes_per_s / _THROTTLED_SLICES_PER_S), 1))
                self._free_at_s = now_s + size / self.bytes_per_s
                return size

    async def _changed_within(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return


async def _pump(source: socket.socket, sink: socket.socket, way: _Way) -> None:
    """Forward bytes until `source` has ended; then end `sink` too."""
    in_flight = _InFlight()
    reader = asyncio.create_task(_read(source, in_flight, way))
    try:
        await _write(sink, in_flight, way)
        await reader
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


class _InFlight:
    """Bytes in transit, with the times of their arrival; `b""` means the end."""

    def __init__(self) -> None:
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.changed = asyncio.Event()


async def _read(source: socket.socket, in_flight: _InFlight, way: _Way) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            await way.opened()
            while in_flight.size >= _IN_FLIGHT_BYTES:
                in_flight.changed.clear()
                await in_flight.changed.wait()
            data = await loop.sock_recv(source, _READ_BYTES)
            in_flight.chunks.append((loop.time(), data))
            in_flight.size += len(data)
            in_flight.changed.set()
            if not data:
                return
    except OSError:
        in_flight.chunks.append((loop.time(), b""))
        in_flight.changed.set()
        raise


async def _write(sink: socket.socket, in_flight: _InFlight, way: _Way) -> None:
    loop = asyncio.get_running_loop()
    while True:
        while not in_flight.chunks:
            in_flight.changed.clear()
            await in_flight.changed.wait()
        arrived_s, data = in_flight.chunks[0]
        allowed = await way.turn(arrived_s, len(data))
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return
        await loop.sock_sendall(sink, data[:allowed])
        in_flight.size -= allowed
        if allowed == len(data):
            in_flight.chunks.popleft()
        else:
            in_flight.chunks[0] = (arrived_s, data[allowed:])
        in_flight.changed.set()


def _reset(end: socket.socket) -> None:
    """Close with RST and drop unsent bytes; does nothing if the socket is closed."""
    if end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        end.close()
