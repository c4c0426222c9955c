"""The control plane: readers of control topics, and two kinds of writers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import READ, WRITE
from kafka_pipeline.common.kafka.clients import (
    MissingRightError,
    NonRetriableError,
    Partition,
    TransactionFailedError,
    client_config,
    explain,
    follow_leaders,
    is_missing_topic,
    retry,
    translate,
)
from kafka_pipeline.common.kafka.lifeline import connect_with_lifeline, successor
from kafka_pipeline.common.kafka.managed_consumer import ManagedConsumer
from kafka_pipeline.common.kafka.stall_watch import Scout
from kafka_pipeline.common.kafka.writer_rights import named
from kafka_pipeline.common.protocol.messages import MAX_RECORD_BYTES, ControlRecord
from kafka_pipeline.common.topic_names import CONTROL_GROUP

_START_TIMEOUT_S = 30
_SILENCE_S = 3.0
_REPORT_TIMEOUT_MS = 5000
_LOG_INTERVAL_S = 10.0
_PROBE_S = 3.0
_SCOUT_PATIENCE_S = 2.0
_MOST_RECORDS = 1000


class ControlReader:
    """Reads the new records of control topics, in the order of each topic."""

    def __init__(self, config: Config, topics: Sequence[str], history: int = 0) -> None:
        """Start at the end of each topic, or up to `history` offsets before it.

        Raises `UnavailableError` if the brokers do not report the end offsets.
        """
        settings = client_config(
            config,
            "consumer",
            group_id=CONTROL_GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=100,
        )
        follow_leaders(settings)
        self._consumer = ManagedConsumer(settings, _SILENCE_S)
        self._scout: Scout | None = None
        self._asked_s = 0.0
        """When the scout was sent."""
        self._errors = _ErrorLog()
        self.ends: dict[str, int] = {}
        """The end offset of each topic at the start: later records were written since."""
        self.refusal = ""
        """The right that was missing at the last read; "" if none was."""
        self._consumer.assign({(topic, 0): self._start(topic, history) for topic in topics})

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offsets to read next."""
        return self._consumer.positions

    def read(self, wait_s: float) -> list[ControlRecord]:
        """Return the records that have arrived; waits up to `wait_s` for the first one."""
        records: list[ControlRecord] = []

        def take(_partition: Partition, messages: list[Message]) -> int:
            records.extend(map(_record, messages))
            return records[-1].offset + 1

        signals = self._consumer.receive(_MOST_RECORDS, wait_s, take)
        if records or signals.ends:
            self.refusal = ""
        for (topic, _), error in signals.errors:
            self._errors.log("control messages cannot be read", topic, error, READ)
            if isinstance(translate(KafkaException(error)), MissingRightError):
                self.refusal = explain(error, f"{READ} of topic {topic}")
        return records

    def look_for_end(self) -> None:
        """Ask a broker where the topics end now, unless such a request is under way.

        After two seconds, the next broker is asked: this one may be dead, or cut off from here.
        """
        is_due = self._scout is None or self._scout.is_back
        if is_due or time.monotonic() - self._asked_s > _SCOUT_PATIENCE_S:
            self._dismiss_scout()
            self._scout = self._consumer.send_scout(self.positions)
            self._asked_s = time.monotonic()

    @property
    def is_at_end(self) -> bool:
        """Whether all is read that was there at `look_for_end`; False without an answer."""
        ends = self._scout.ends if self._scout is not None else {}
        return all(ends.get(place, at + 1) <= at for place, at in self.positions.items())

    def _dismiss_scout(self) -> None:
        if self._scout is not None:
            self._scout.dismiss()

    def _start(self, topic: str, history: int) -> int:
        try:
            # The first of the two offsets may be wrong (see `Admin.oldest_offsets`). If `history`
            # goes further back than the oldest record, the consumer starts with that one.
            _, end = retry(
                lambda left: self._ask_offsets(topic, left), _START_TIMEOUT_S, waits_for_topic=True
            )
        except (NonRetriableError, TransactionFailedError) as error:
            if isinstance(error, MissingRightError):
                error = error.naming(f"{READ} of topic {topic}")
            raise UnavailableError(f"topic {topic} cannot be read: {error}") from error
        self.ends[topic] = end
        return int(max(end - history, 0))

    def _ask_offsets(self, topic: str, timeout_s: float) -> Any:
        client = self._consumer.client
        try:
            return client.get_watermark_offsets(TopicPartition(topic, 0), timeout=timeout_s)
        except KafkaException as exception:
            if is_missing_topic(exception.args[0]):
                # A topic that may not be described looks missing, too.
                error = client.list_topics(topic, timeout=timeout_s).topics[topic].error
                if error is not None:
                    raise KafkaException(error) from exception
            raise

    def close(self) -> None:
        """Close the consumer."""
        self._dismiss_scout()
        self._consumer.close()


def _record(message: Message) -> ControlRecord:
    headers: Any
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # A name is not UTF-8. Do not call `headers` again: it would return broken tuples.
        headers = []
    return ControlRecord(
        topic=message.topic() or "",
        key=message.key() or b"",
        value=message.value() or b"",
        headers=tuple((str(name), value or b"") for name, value in headers),
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
    )


def _produce(
    producer: Producer,
    record: ControlRecord,
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> None:
    producer.produce(
        record.topic, record.value, record.key, 0, on_delivery, headers=list(record.headers)
    )


class _ErrorLog:
    """Logs errors with control messages: each error of a topic at most once every 10 s."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._logged_s: dict[tuple[str, int], float] = {}

    def log(self, event: str, topic: str | None, error: KafkaError, needed: str) -> None:
        """Log an error; `needed` is the operation that must be allowed on the topic."""
        kind = (topic or "", error.code())
        now_s = time.monotonic()
        if now_s - self._logged_s.get(kind, float("-inf")) >= _LOG_INTERVAL_S:
            self._logged_s[kind] = now_s
            right = f"{needed} of topic {topic}" if topic else ""
            self._log.error(event, topic=topic, reason=explain(error, right))


class ReportWriter:
    """Writes heartbeats and other reports. Late ones are dropped: the next one replaces them."""

    def __init__(self, config: Config) -> None:
        self._errors = _ErrorLog()
        self._settings = client_config(
            config,
            "producer",
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            message_timeout_ms=_REPORT_TIMEOUT_MS,
        )
        follow_leaders(self._settings)
        self._confirmed: set[str] = set()
        self._producer, self._lifeline = connect_with_lifeline(Producer, self._settings)

    def _replace(self) -> None:
        if made := successor(Producer, self._settings, self._lifeline):
            self._producer, self._lifeline = made

    def write(self, records: Sequence[ControlRecord]) -> None:
        """Hand the records over; does not block.

        Records that cannot be sent within 5 s, or that Kafka refuses, are dropped and logged.
        """
        if self._lifeline.is_lost:
            lost = KafkaError(KafkaError._ALL_BROKERS_DOWN)
            self._errors.log("reports of the last seconds were not sent", None, lost, WRITE)
            self._replace()
        for record in records:
            try:
                _produce(self._producer, record, self._on_delivery)
            except BufferError:
                continue
            except KafkaException as exception:
                error = exception.args[0]
                self._errors.log("a report cannot be sent", record.topic, error, WRITE)
                if error.fatal() or error.code() == KafkaError._FATAL:
                    # This producer can never send again.
                    self._replace()
        self._poll()

    def poll(self) -> set[str]:
        """Log the errors of unsent reports; does not block. Call it often.

        Returns the topics in which Kafka has confirmed a report since the last call.
        """
        self._poll()
        confirmed, self._confirmed = self._confirmed, set()
        return confirmed

    def _poll(self) -> None:
        with self._lifeline.log.polling():
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.log("a report was not sent", message.topic(), error, WRITE)
        else:
            self._confirmed.add(message.topic() or "")

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` until everything is written."""
        self._producer.flush(timeout_s)


class _LastOffset:
    """Keeps the last record's offset, without a reference that would keep the producer alive."""

    def __init__(self) -> None:
        self.offset = -1

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.offset = message.offset() or 0


class CommandWriter:
    """Writes control messages in transactions: the commands of the leading JobManager.

    A new writer fences every older one with its id. After any error, make a new one.
    """

    def __init__(
        self, config: Config, transactional_id: str, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        """Fence older writers. Blocks until the brokers answer, at most 30 s; raises as `write`."""
        self._config = config
        self._id = transactional_id
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._last = _LastOffset()
        settings = client_config(
            config,
            "producer",
            transactional_id=transactional_id,
            transaction_timeout_ms=config.transaction_timeout_ms,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            message_max_bytes=max_record_bytes,
            retry_backoff_ms=5,
        )
        try:
            self._producer, self._lifeline = connect_with_lifeline(Producer, settings)
        except PipelineError as error:  # such as no token now
            raise TransactionFailedError(str(error)) from error
        retry(lambda left: self._producer.list_topics(timeout=left), _START_TIMEOUT_S)
        try:
            retry(self._producer.init_transactions, _START_TIMEOUT_S)
        except MissingRightError as error:
            raise named(error, config, transactional_id) from error

    def write(self, records: Sequence[ControlRecord]) -> int:
        """Write the records, all or none; return the offset of the last one.

        Raises `FencedError` if another JobManager took over, `TransactionFailedError` or
        `NonRetriableError` if Kafka does not accept them. Usually blocks for a few ms, at most for
        the transaction timeout.
        """
        self._require_brokers()
        try:
            self._write(records)
        except MissingRightError as error:
            raise named(error, self._config, self._id, {each.topic for each in records}) from error
        self._poll()
        return self._last.offset

    def _write(self, records: Sequence[ControlRecord]) -> None:
        try:
            self._producer.begin_transaction()
            for record in records:
                _produce(self._producer, record, self._last.note)
        except KafkaException as exception:
            raise translate(exception) from exception
        retry(self._producer.commit_transaction, self._timeout_s)

    def _require_brokers(self) -> None:
        """Raise if no broker can be reached, rather than wait for a whole transaction to fail."""
        self._poll()
        if self._lifeline.is_cut:
            try:
                self._producer.list_topics(timeout=_PROBE_S)
            except KafkaException as exception:
                raise TransactionFailedError("all brokers were lost") from exception
            self._lifeline.on_answer()

    def _poll(self) -> None:
        with self._lifeline.log.polling():
            self._producer.poll(0)
