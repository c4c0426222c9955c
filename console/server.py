"""Serves the console in a thread of the JobManager, which it can neither delay nor break."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.console.access import Access, read_token
from kafka_pipeline.console.action_log import ActionLog
from kafka_pipeline.console.assets import read_assets
from kafka_pipeline.console.board import Board, Tap
from kafka_pipeline.console.hub import Hub, HubHeartbeats
from kafka_pipeline.console.job import Job
from kafka_pipeline.console.kafka_job import KafkaJob
from kafka_pipeline.console.views.snapshot import Snapshot

if TYPE_CHECKING:
    import uvicorn

_LEAST_PERIOD_S, _MOST_PERIOD_S = 1.0, 5.0
_STOP_S = 2.0

logger = structlog.get_logger()


@contextmanager
def running_console(config: Config) -> Iterator[Tap | None]:
    """Serve the console of a job; yield the tap for the JobManager, `None` without a console.

    Raises `ConfigError` if the console's packages are not installed, or if its token cannot be
    read, and `UnavailableError` if its address cannot be used.
    """
    if config.console_port is None:
        yield None
        return
    tap = Tap(config.tm_number + 1)
    board = Board(config, tap)
    server = ConsoleServer(config, lambda: board.next_snapshot(wall_clock_ms()), KafkaJob(config))
    server.start()
    try:
        yield tap
    finally:
        server.stop()


class ConsoleServer:
    """The console's thread."""

    def __init__(self, config: Config, next_snapshot: Callable[[], Snapshot], job: Job) -> None:
        """Bind the address; see `running_console` for the errors.

        `next_snapshot` is called once per heartbeat, in the console's thread once it has started.
        The methods of `job` are called on threads of their own.
        """
        self._config = config
        self._next_snapshot = next_snapshot
        self._job = job
        self._actions = ActionLog()
        file = config.console_token_file
        self._token = None if file is None else read_token(file)
        self._socket = _listen(config)
        self._server = self._uvicorn()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    @property
    def address(self) -> str:
        """The console's address in a browser."""
        host, port = self._config.console_host, self._socket.getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()
        logger.info("the console is served", address=self.address)

    def stop(self) -> None:
        """Stop serving; waits for two seconds at most."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread has ended, and its loop is closed
                self._loop.call_soon_threadsafe(self._hub.close)
        self._server.should_exit = True
        self._thread.join(_STOP_S)

    def _uvicorn(self) -> uvicorn.Server:
        try:
            import uvicorn

            from kafka_pipeline.console.actions import Actions
            from kafka_pipeline.console.answers import Contents
            from kafka_pipeline.console.app import application
            from kafka_pipeline.console.connections import Connection
            from kafka_pipeline.console.state_lookups import StateLookups
        except ImportError as error:
            self._socket.close()
            raise ConfigError(
                "config.yaml sets console_port, but the console's packages are not installed "
                f"({error}). Run `pip install 'kafka-pipeline[console]'`, or remove console_port."
            ) from error
        config = self._config
        self._hub = Hub(self._next())
        hosts = (config.console_host, "localhost", *config.console_names)
        access = Access(self._token)
        contents = Contents(access, are_shown=config.console_records)
        actions = Actions(self._job, access, contents, self._actions)
        lookups = StateLookups(HubHeartbeats(self._hub), contents)
        others = [*actions.routes, *lookups.routes]
        return uvicorn.Server(
            uvicorn.Config(
                application(self._hub, others, access, read_assets(), hosts),
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # anyone can cause warnings without end
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )

    def _next(self) -> Snapshot:
        return self._actions.joined(self._next_snapshot())

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            why = described(error, with_values=self._config.log_record_values)
            logger.exception("the console ended; the JobManager goes on", reason=why)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        publishing = asyncio.create_task(self._publish())
        await self._server.serve([self._socket])
        publishing.cancel()

    async def _publish(self) -> None:
        """Publish a snapshot once per heartbeat."""
        interval_s = self._config.heartbeat_interval_ms / 1000
        period_s = min(max(interval_s, _LEAST_PERIOD_S), _MOST_PERIOD_S)
        while True:
            await asyncio.sleep(period_s)
            try:
                self._hub.publish(self._next())
            except Exception as error:
                why = described(error, with_values=self._config.log_record_values)
                logger.exception("the console cannot read what has come", reason=why)


def _listen(config: Config) -> socket.socket:
    """Return a socket that listens at the console's address."""
    host, port = config.console_host, config.console_port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        takes_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((host, port or 0), family=family, dualstack_ipv6=takes_both)
    except OSError as error:
        raise UnavailableError(
            f"the console cannot listen at {host}, port {port} (console_host and console_port in "
            f"config.yaml): {error}. Choose others; console_port: 0 takes a free port."
        ) from error
