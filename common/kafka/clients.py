"""The parts that all clients share: their configuration and the meaning of their errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.kafka_settings import OAUTH_CALLBACK, PREFIXES
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.oauth import TokenCallback
from kafka_pipeline.common.process.thread_limit import want_of_threads

T = TypeVar("T")
ClientKind = Literal["consumer", "producer", "admin"]
Partition = tuple[str, int]

GONE_AFTER_S = 10.0
"""How long a topic must be missing to count as deleted: brokers that are starting know less."""

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_MISSING_TOPIC = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_UNCLEAR = frozenset({KafkaError.UNKNOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
_ANSWER_MS = 10_000
_LEADERS_AGE_MS = 5000
_CONNECT_LOG_INTERVAL_S = 10.0
_PROMPT_S = 2.0
_ABOUT_CONNECTIONS = ("FAIL", "ERROR", "REQTMOUT")
_TLS_ALERT = "tls alert"
_KERBEROS = "No provider for SASL mechanism GSSAPI"
_NO_KERBEROS = (
    ". GSSAPI is Kerberos, and the default if security.protocol is SASL_SSL or SASL_PLAINTEXT and "
    "there is no sasl.mechanism; the wheels of confluent-kafka do not have it. Set sasl.mechanism "
    "to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. For Kerberos, install librdkafka with "
    "libsasl2, and then `pip install --no-binary confluent-kafka confluent-kafka`"
)
_RIGHT = (
    "a right is missing, {} (`pipeline acls` lists them): grant it, then start again "
    "(`pipeline restart` for a task)"
)
_RIGHT_ON = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "on a topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "on a consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write of a transactional id",
}
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_OFFSET = (
    "the offset to continue from is not in the topic: its record was deleted before it was "
    "processed, or the topic has lost its end"
)
# Hints for the user, where the error itself gives none.
_NON_RETRIABLE = {
    **dict.fromkeys(_OUT_OF_RANGE, _OFFSET),
    # A leader of a newer epoch has fewer records than were read (KIP-320), so it is certain.
    KafkaError._LOG_TRUNCATION: _OFFSET,
    KafkaError.INVALID_RECORD: (
        "the topic refuses a record: it is compacted, or the brokers check records against a "
        "schema, and that has changed since the task started. Start the task again with "
        "`pipeline restart`; a record without a key is then named, as on_error says"
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction_timeout_ms in config.yaml to transaction.max.timeout.ms of the brokers"
    ),
    KafkaError.POLICY_VIOLATION: (
        "a policy of the brokers forbids it: ask those who run them, then start the task again "
        "with `pipeline restart`"
    ),
}
# Hints for errors that a new attempt can cure, as it reads its topics' settings again.
_RETRIABLE = {
    KafkaError.INVALID_TIMESTAMP: (
        "the topic refuses the time of a record: time has gone on since it was checked, its "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms has changed, or the "
        "clocks of this host and of the broker differ"
    ),
}
_HINTS = _NON_RETRIABLE | _RETRIABLE


class FencedError(EngineError):
    """A newer producer has taken over this transactional id. The caller drops its producer."""


class NonRetriableError(EngineError):
    """A retry cannot help: a missing topic or right, a lost offset, a refused record.

    The caller reports the task as failed, with this message as the reason.
    """


class MissingRightError(NonRetriableError):
    """A right in Kafka is missing. A caller that knows the resource names it with `naming`."""

    def __init__(self, error: KafkaError, right: str = "") -> None:
        """`error` is Kafka's, which names no resource; `right` does, as in "Read of topic in"."""
        super().__init__(explain(error, right))
        self.error = error

    def naming(self, right: str) -> MissingRightError:
        """Return the same error with the name of the right that is missing."""
        return MissingRightError(self.error, right)

    @property
    def is_on_a_topic(self) -> bool:
        """Whether the right is on a topic."""
        return bool(self.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)

    @property
    def is_on_a_group(self) -> bool:
        """Whether the right is on a consumer group."""
        return bool(self.error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)

    @property
    def is_on_a_transactional_id(self) -> bool:
        """Whether the right is on a transactional id."""
        return bool(self.error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class TransactionFailedError(EngineError):
    """The transaction will not commit. The caller drops the producer and replays the input."""


def client_config(config: Config, kind: ClientKind, **settings: Any) -> dict[str, Any]:
    """Return librdkafka settings: `settings` override those of `kafka:` in config.yaml.

    A name in `kafka:` without a prefix applies to every client; with `consumer.`, `producer.` or
    `admin.`, to that kind of client. Raises `ConfigError` for a callback that cannot be imported.
    """
    merged: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap_servers,
        # With the default, a client may reconnect up to 10 s after the brokers are back.
        "reconnect.backoff.max.ms": 1000,
        # With the default, a client may wait up to 60 s for a broker that hangs.
        "socket.timeout.ms": _ANSWER_MS,
        # With the default, up to 30 s for a connection to a host that is silent; Java waits 10 s.
        "socket.connection.setup.timeout.ms": _ANSWER_MS,
    }
    for prefix in ("", f"{kind}."):
        for name, value in config.kafka.items():
            if prefix and name.startswith(prefix):
                merged[name.removeprefix(prefix)] = value
            elif not prefix and not name.startswith(PREFIXES):
                merged[name] = value
    merged.update({name.replace("_", "."): value for name, value in settings.items()})
    if transaction_ms := settings.get("transaction_timeout_ms"):
        # librdkafka refuses a longer timeout than the transaction's.
        lower(merged, "socket.timeout.ms", transaction_ms)
    merged["logger"] = _logger()
    if reference := merged.pop(OAUTH_CALLBACK, None):
        merged["oauth_cb"] = TokenCallback.of(config, reference)
    return merged


def _logger() -> logging.Logger:
    logger = logging.getLogger("librdkafka")
    logger.addFilter(_LOG_FILTER)
    return logger


class _LogFilter(logging.Filter):
    """Lets through the messages that are worth a line in the log.

    librdkafka's alarms about transactions are dropped: the caller gets them as exceptions. While a
    broker is away, only one failed connection attempt is logged every ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_s = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        message = record.getMessage()
        if "Connect to" not in message:
            return not message.startswith(("TXNERR", "FATAL", "GETPID"))
        is_due = time.monotonic() - self._logged_s >= _CONNECT_LOG_INTERVAL_S
        if is_due:
            self._logged_s = time.monotonic()
        return is_due


_LOG_FILTER = _LogFilter()


class PromptLog:
    """Drops outdated messages from a client's log.

    librdkafka keeps its messages until the client is polled. A client that is rarely polled would
    report lost connections long after it has connected again. So if a client was not polled for two
    seconds, its waiting messages about connections are dropped.
    """

    def __init__(self) -> None:
        self._polled_s = time.monotonic()
        self._is_late = False

    def logger(
        self, settings: dict[str, Any], *first: Callable[[logging.LogRecord], bool]
    ) -> logging.Logger:
        """Return a logger for one client; the filters `first` see everything."""
        logger = logging.Logger("librdkafka")
        logger.parent = settings["logger"]
        for each in (*first, self._is_news, *settings["logger"].filters):
            logger.addFilter(each)
        return logger

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Wrap each poll of the client in this context manager."""
        self._is_late = time.monotonic() - self._polled_s > _PROMPT_S
        try:
            yield
        finally:
            self._is_late = False
            self._polled_s = time.monotonic()

    def _is_news(self, record: logging.LogRecord) -> bool:
        return not (self._is_late and record.getMessage().startswith(_ABOUT_CONNECTIONS))


def lower(settings: dict[str, Any], name: str, most: int) -> None:
    """Set a number to `most`, unless `kafka:` in config.yaml has a smaller one."""
    with suppress(ValueError):  # librdkafka reports what is wrong with it
        settings[name] = min(int(settings.get(name, most)), most)


def forget_leaders(settings: dict[str, Any]) -> None:
    """Let a client that only asks for offsets look up leaders again every five seconds.

    librdkafka looks for a new leader of the topics that a client reads or writes. For any other
    topic, it keeps asking the leader that it knows, dead or not, until that is
    `metadata.max.age.ms` old: 15 minutes by default (librdkafka 2535; seen with 2.16.0).
    """
    lower(settings, "metadata.max.age.ms", _LEADERS_AGE_MS)


def follow_leaders(settings: dict[str, Any]) -> None:
    """Let a client look up the leaders of its topics again every five seconds.

    A leader that is cut off from the other brokers answers fetches with nothing, which looks like
    the end of the partition. By default, a client that gets answers asks again after five minutes.
    So does a producer about a topic that did not exist.
    """
    lower(settings, "topic.metadata.refresh.interval.ms", _LEADERS_AGE_MS)


def connect(client: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """Make a client. Raises ConfigError for a setting in `kafka:` that librdkafka refuses.

    With a callback for tokens, this takes a second longer, because of confluent-kafka. Raises
    `UnavailableError` if the callback gives no token, or one that librdkafka refuses, and if this
    process may not start the threads of a client.
    """
    callback = settings.get("oauth_cb")
    if callback is not None:
        callback.prepare(settings.get("sasl.oauthbearer.config", ""))
    if want := want_of_threads():
        raise UnavailableError(want)
    try:
        return client(settings)
    except KafkaException as exception:
        error = exception.args[0]
        if error.code() == KafkaError._CRIT_SYS_RESOURCE:
            raise UnavailableError(error.str()) from exception
        if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            raise UnavailableError(
                f"librdkafka refuses the token of {OAUTH_CALLBACK}: {error.str()}"
            ) from exception
        hint = _NO_KERBEROS if _KERBEROS in error.str() else ""
        raise ConfigError(f"kafka: in config.yaml: {error.str()}{hint}") from exception


def translate(exception: KafkaException) -> Exception:
    """Return the error whose class says what the caller does about `exception`."""
    error = exception.args[0]
    if error.code() in _FENCED:
        return FencedError(error.str())
    if error.code() in _RIGHT_ON:
        return MissingRightError(error)
    if error.code() in _NON_RETRIABLE:
        return NonRetriableError(explain(error))
    return TransactionFailedError(explain(error))


def explain(error: KafkaError, right: str = "") -> str:
    """Return the message of an error, with a hint for the user if there is one.

    `right` names the right in question, such as "Read of topic in", since Kafka does not.
    """
    on = _RIGHT_ON.get(error.code())
    hint = _RIGHT.format(right or on) if on else _HINTS.get(error.code())
    return f"{error.str()} ({hint})" if hint else error.str()


def is_passing(error: KafkaError) -> bool:
    """Whether a consumer's error about a partition may be gone at its next attempt.

    That includes a missing topic: brokers that are starting do not know all topics yet.
    `TopicIdWatch` reports when a topic is gone for good.
    """
    return error.retriable() or error.code() in _PASSING | _MISSING_TOPIC | _UNCLEAR


def is_out_of_range(error: KafkaError) -> bool:
    """Whether the broker that answered does not have the offset to read from."""
    return error.code() in _OUT_OF_RANGE


def is_refusal(error: KafkaError) -> bool:
    """Whether a connection failed because one side does not accept the login or the certificate."""
    code = error.code()
    if code == KafkaError._TRANSPORT:
        # With TLS 1.3, the broker's alert comes after the handshake.
        return _TLS_ALERT in error.str()
    return code in (KafkaError._AUTHENTICATION, KafkaError._SSL)


def explain_refusal(error: KafkaError) -> str:
    """Return what is wrong with a login or a certificate, and which setting to correct.

    librdkafka does not say why it rejects a broker's certificate.
    """
    if error.code() == KafkaError._AUTHENTICATION:
        what = (
            "correct sasl.mechanism, sasl.username or sasl.password (with OAUTHBEARER: the token)"
        )
    elif _TLS_ALERT in error.str():
        what = (
            "the broker does not accept the client's certificate: there is none, it has expired, "
            "or the broker does not know its authority; correct ssl.certificate.location and "
            "ssl.key.location"
        )
    else:
        what = (
            "the broker's certificate is not accepted: its authority is not in ssl.ca.location, "
            "it has expired, or it is for another host name than that of bootstrap.servers or "
            "server_ip (`openssl s_client -connect HOST:PORT -CAfile FILE -verify_hostname HOST` "
            "says which; with an address, -verify_ip)"
        )
    return f"{error.str()}. Under `kafka:` in config.yaml: {what}"


def is_missing_topic(error: KafkaError) -> bool:
    """Whether the broker that answered does not know the topic, its partition or its id."""
    return error.code() in _MISSING_TOPIC


def addresses(metadata: Any) -> list[str]:
    """Return the address of each broker in metadata, as `bootstrap.servers` has it."""
    found = metadata.brokers.values()
    hosts = (f"[{each.host}]" if ":" in each.host else each.host for each in found)
    return [f"{host}:{each.port}" for host, each in zip(hosts, found, strict=True)]


def named_brokers(client: AdminClient) -> list[str]:
    """Return the addresses of all brokers, as one that answers names them; none if none does.

    That one may be the only one in reach: clients use the addresses of `advertised.listeners`.
    """
    try:
        return addresses(client.list_topics(timeout=1))
    except KafkaException:
        return []


def offset_of(answer: Any) -> int:
    """Return the offset in a broker's answer to `AdminClient.list_offsets`.

    Raises `KafkaException` if the broker gave none: if its connection breaks, or if it does not
    answer in time, librdkafka 2.16 gives `OFFSET_INVALID` and no error.
    """
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the leader gave no answer"))
    return int(answer.offset)


def epoch_of(answer: Any) -> int | None:
    """Return the leader's epoch in a broker's answer; see `offset_of`."""
    offset_of(answer)
    epoch: int | None = answer.leader_epoch
    return epoch


def retry(call: Callable[[float], T], timeout_s: float, waits_for_topic: bool = False) -> T:
    """Make a call that takes a timeout; repeat it while librdkafka says that it may be repeated.

    A repeated call resumes the same operation, which goes on in the background meanwhile.
    With `waits_for_topic`, repeats it also while a broker does not know a newly created topic.
    Blocks up to `timeout_s`. Raises the final error as translated by `translate`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return call(max(left, 0.1))
        except KafkaException as exception:
            error = exception.args[0]
            may_pass = (
                error.retriable()
                or error.code() in _PASSING
                or (waits_for_topic and is_missing_topic(error))
            )
            if left <= 0 or not may_pass:
                raise translate(exception) from exception
            time.sleep(min(0.05, max(left, 0)))
