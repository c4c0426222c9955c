"""A transactional librdkafka producer that knows whether it can still be trusted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import (
    PromptLog,
    T,
    TransactionFailedError,
    connect,
    retry,
    translate,
)
from kafka_pipeline.common.process.spare_threads import SpareThreads

_WAIT_S = 0.1
_WAITS = 10
_FENCE_WAIT_S = 1.0
_STIR_TIMEOUT_S = 1.0
_STIRS = 3
_ROUND_TRIPS = 20
_SLOW_LINK_S = 0.1
_ABORT_TIMEOUT_S = 1.0
# Codes of errors that only follow from an earlier one, which ended the transaction or producer.
_CONSEQUENCES = (KafkaError._STATE, KafkaError._FATAL)


class GuardedProducer:
    """Makes transactional calls, and reports when the producer must be replaced.

    That is after a connection broke, since librdkafka may then hang, and after librdkafka itself
    has declared the producer unusable. Calls raise `FencedError`, `NonRetriableError` or
    `TransactionFailedError`.
    """

    def __init__(self, settings: dict[str, Any], timeout_s: float, threads: SpareThreads) -> None:
        """Connect. A call may take `timeout_s`; a call that may hang runs on one of `threads`."""
        self._timeout_s = timeout_s
        self._threads = threads
        self._connections = _Connections()
        self._log = PromptLog()
        # The closing of a connection is only logged, not passed to the error callback.
        logger = self._log.logger(settings, self._connections.on_log)
        self.client = connect(
            Producer, settings | {"error_cb": self._connections.on_error, "logger": logger}
        )
        """The producer itself, for records; pass its exceptions to `cause`."""
        self._end: Exception | None = None
        """The error that has ended the producer."""

    @property
    def is_suspect(self) -> bool:
        """Whether a connection or the producer broke: replace the producer before further use."""
        with suppress(EngineError):
            self.poll()
        return self._connections.have_broken or self._end is not None

    def require_connected(self) -> None:
        """Raise if a connection broke: sending offsets would hang (librdkafka 5456, 5511).

        If an error has ended the producer, raises that error.
        """
        self.poll()
        if self._end is not None:
            raise self._end
        if self._connections.have_broken:
            raise TransactionFailedError("the connection to a broker broke")

    def poll(self, timeout_s: float = 0) -> None:
        """Let librdkafka call back. Raises an error that is fatal to the producer, once."""
        try:
            with self._log.polling():
                self.client.poll(timeout_s)
        except KafkaException as exception:
            self._end = self.cause(exception)
            raise self._end from exception

    def cause(self, exception: KafkaException) -> Exception:
        """Return the translated error, or the earlier error that it follows from."""
        if exception.args[0].code() in _CONSEQUENCES:
            try:
                # After a failure, this call changes nothing, but raises the reason for the failure.
                self.client.begin_transaction()
            except KafkaException as cause:
                return translate(cause)
        return translate(exception)

    def fence(self, timeout_s: float, require: Callable[[], None] = lambda: None) -> None:
        """Fence every older producer of this id and abort its open transaction.

        Calls `require` before that, and each second meanwhile; it may raise to end this. The
        producer must then be closed, as librdkafka would go on.
        """

        def init(left_s: float) -> None:
            require()
            self.client.init_transactions(min(left_s, _FENCE_WAIT_S))

        # Without a connection, init_transactions waits on a timer of 500 ms.
        retry(lambda left: self.client.list_topics(timeout=left), timeout_s)
        retry(init, timeout_s)
        self.poll()
        self._connections.clear()

    def begin(self) -> None:
        """Open a transaction."""
        self.require_connected()
        try:
            self.client.begin_transaction()
        except KafkaException as exception:
            raise translate(exception) from exception

    def send_offsets(self, positions: list[TopicPartition], group_metadata: Any) -> None:
        """Add the offsets to the transaction, in a thread that may be abandoned.

        After a connection was closed, librdkafka may wait, whatever the timeout, for a state change
        of some connection that never comes (its issues 5456 and 5511). A metadata request causes
        one. If three of these do not help, only a new producer does; over a slow link, more are
        tried, since sending the offsets may itself take that long. If no connection was closed, the
        brokers are just slow.
        """

        def send() -> None:
            self._retry(
                lambda left: self.client.send_offsets_to_transaction(
                    positions, group_metadata, left
                ),
                self._timeout_s,
            )

        sent = self._threads.submit(send)
        deadline_s = time.monotonic() + self._timeout_s
        answers, answer_s = 0, 0.0
        # In short waits: time during which this process is stopped must not look like a hang.
        while not any(wait([sent], timeout=_WAIT_S).done for _ in range(_WAITS)):
            is_enough = answers >= _STIRS + _ROUND_TRIPS * answer_s
            if is_enough or time.monotonic() > deadline_s:
                raise TransactionFailedError("librdkafka hangs while it sends offsets")
            self.poll()
            if not self._connections.has_disconnected:
                continue
            asked_s = time.monotonic()
            with suppress(KafkaException):
                self.client.list_topics(timeout=_STIR_TIMEOUT_S)
                answers += 1
                answer_s = time.monotonic() - asked_s
            if answer_s < _SLOW_LINK_S:
                self._connections.have_broken = True
        sent.result()

    def flush(self, timeout_s: float) -> None:
        """Wait until all records have been delivered and reported.

        Not with librdkafka's `flush`: it calls back even while an exception is to be raised, which
        ends in a `SystemError` (confluent-kafka 2.16).
        """
        deadline_s = time.monotonic() + timeout_s
        while len(self.client):
            if time.monotonic() > deadline_s:
                raise TransactionFailedError("brokers do not take the records in time")
            self.poll(_WAIT_S)

    def commit(self, timeout_s: float) -> None:
        """Commit the transaction once all its records have been delivered and reported."""
        self._retry(self.client.commit_transaction, timeout_s)
        self.poll()

    def close(self) -> None:
        """Abort the open transaction and drop the producer; does not block.

        A thread does both: aborting takes up to a second, and dropping waits for librdkafka's
        threads. If the abort fails, the next `fence` of this id aborts the transaction.
        """
        last = [self.client]
        del self.client
        threading.Thread(target=_abort_and_free, args=(last,), name="close", daemon=True).start()

    def _retry(self, call: Callable[[float], T], timeout_s: float) -> T:
        """Make a call as `retry` does; raise the cause of its error."""
        try:
            return retry(call, timeout_s)
        except TransactionFailedError as error:
            if isinstance(error.__cause__, KafkaException):
                raise self.cause(error.__cause__) from error.__cause__
            raise


class _Connections:
    """Records librdkafka's reports about a producer's connections.

    This is an object of its own: the producer refers to it, and could never be freed if it referred
    to the producer.
    """

    def __init__(self) -> None:
        self.have_broken = False
        self.has_disconnected = False

    def clear(self) -> None:
        self.have_broken = self.has_disconnected = False

    def on_error(self, error: KafkaError) -> None:
        # A connection that was never made had no request in progress, and such errors come all the
        # time while one of several brokers is away. But transactions need their coordinator.
        text = error.str()
        if "Connect to" not in text or "TxnCoordinator" in text:
            self.have_broken = True

    def on_log(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        self.has_disconnected |= message.startswith("FAIL") and "Connect to" not in message
        return True


def _abort_and_free(last: list[Producer]) -> None:
    """Free the producer in `last`, which must be the only reference to it.

    librdkafka must not end while it registers a partition with the transaction: it may handle the
    failed request before counting it, and an assertion (`txn_req_cnt > 0` in rdkafka_txnmgr.c) then
    ends the process. A transaction that is being aborted registers nothing.
    """
    # Errors come from a producer that is fenced, has no transaction, or waits for its brokers.
    with suppress(EngineError):
        retry(last[0].abort_transaction, _ABORT_TIMEOUT_S)
    last.clear()
