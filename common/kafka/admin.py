"""Creates and inspects topics, and reads facts about the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.clients import (
    GONE_AFTER_S,
    MissingRightError,
    NonRetriableError,
    Partition,
    TransactionFailedError,
    addresses,
    client_config,
    epoch_of,
    explain_refusal,
    forget_leaders,
    is_missing_topic,
    is_passing,
    named_brokers,
    offset_of,
    retry,
    translate,
)
from kafka_pipeline.common.kafka.lifeline import connect_with_lifeline, successor
from kafka_pipeline.common.topics import ExistingTopic, TopicLimits, TopicSpec, allowed, misfits

REQUEST_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 8.0
"""How long a command looks for a broker: a person waits for it.

A connection with TLS and a login takes less than two seconds, and librdkafka tries again at least
every second (`reconnect.backoff.max.ms`). Daemons wait for longer: brokers may start with them.
"""
_ATTEMPT_S = 3
_RETRY_S = 0.1
_POLL_S = 0.05
_MISSING_POLL_S = 0.5
_YOUNG_S = 10.0
_KEPT_S = 2.0 * REQUEST_TIMEOUT_S
_TOO_FEW_BROKERS = "Start the brokers that are missing, or lower replication_factor in config.yaml."

READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS = "Read", "Write", "Describe", "DescribeConfigs"
_OPERATIONS = {
    READ: AclOperation.READ,
    WRITE: AclOperation.WRITE,
    DESCRIBE: AclOperation.DESCRIBE,
    DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

T = TypeVar("T")


class Admin:
    """Creates and inspects topics, and their offsets.

    Every call blocks up to 30 s and raises Kafka's errors as translated by `clients.translate`,
    except for `check_broker` and what makes or changes topics, whose errors are for the user.
    """

    def __init__(self, config: Config) -> None:
        self._bootstrap_servers = config.bootstrap_servers
        is_passed_on = "bootstrap.servers" in config.kafka
        self._where = "bootstrap.servers" if is_passed_on else "server_ip and server_port"
        self._most_bytes = config.max_message_bytes
        self._settings = client_config(config, "admin")
        forget_leaders(self._settings)
        self._changing = threading.Lock()
        self._former: list[tuple[AdminClient, float]] = []
        self._latest, self._lifeline = connect_with_lifeline(AdminClient, self._settings)
        self._connected_s = time.monotonic()
        self._asked: list[Future[Any]] = []
        """The latest requests whose answers nobody waited for."""

    @property
    def _client(self) -> AdminClient:
        """The client; replaced if it lost all brokers or if a recent request got no answer."""
        with self._changing:
            with self._lifeline.log.polling():
                self._latest.poll(0)
            # Replaced at once: nobody else polls this client, so the loss may have been long ago.
            if self._lifeline.is_cut or any(map(is_unanswered, self._asked)):
                self._replace()
            if self._former and time.monotonic() - self._former[0][1] > _KEPT_S:
                # In a thread of its own, as closing a client takes a while.
                gone = [self._former.pop(0)]
                threading.Thread(target=gone.clear, name="close", daemon=True).start()
            return self._latest

    def _replace(self) -> None:
        """Replace the client, unless it is new, or none could be made a short time ago.

        The former client is kept for a while: a caller may be waiting for its answers, which never
        come once the client is freed.
        """
        now_s = time.monotonic()
        if now_s - self._connected_s <= _YOUNG_S:
            return
        if made := successor(AdminClient, self._settings, self._lifeline):
            self._former.append((self._latest, now_s))
            self._latest, self._lifeline = made
            self._asked = []
        self._connected_s = time.monotonic()

    def check_broker(self, timeout_s: float = 20) -> str:
        """Return the cluster's id once a broker has answered.

        Raises `UnavailableError` if none does within `timeout_s`, or if logins or certificates are
        refused for three seconds; the operator starts Kafka or corrects `server_ip`, `server_port`
        or `kafka:`.
        """
        client, lifeline = self._client, self._lifeline
        future = client.describe_cluster(request_timeout=timeout_s)
        deadline_s = time.monotonic() + timeout_s + 1
        while not future.done() and not lifeline.is_refused and time.monotonic() < deadline_s:
            with lifeline.log.polling():
                client.poll(_POLL_S)
        if lifeline.refusal is not None and (not future.done() or future.exception()):
            raise UnavailableError(
                f"Kafka cannot be used at {self._bootstrap_servers}: "
                f"{explain_refusal(lifeline.refusal)}"
            )
        try:
            return str(future.result(0).cluster_id)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer"
            if named := named_brokers(client):
                raise UnavailableError(
                    f"Kafka answers at {self._bootstrap_servers}, but one of its brokers does not "
                    f"({reason}). Their addresses, by advertised.listeners, are {', '.join(named)}:"
                    " can this host resolve and reach all of them?"
                ) from error
            raise UnavailableError(
                f"no Kafka broker answers at {self._bootstrap_servers} ({reason}). Start one "
                f"(`pipeline broker start` for a local one) or correct {self._where} in "
                "config.yaml; a broker that wants TLS or SASL needs more under `kafka:`."
            ) from error

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> list[str]:
        """Create the missing topics; return their names.

        Raises `ConfigError` if an existing topic has the wrong number of partitions or settings, or
        if the cluster refuses a topic, and `UnavailableError` if it refuses one only for now.
        Nothing is created if an existing topic is wrong.
        """
        existing = self.partition_counts(spec.name for spec in specs)
        needy = [spec.name for spec in specs if spec.needs and spec.name in existing]
        try:
            settings = self.topic_settings(needy)
        except NonRetriableError as error:
            raise ConfigError(f"the settings of topics cannot be checked: {error}") from error
        except TransactionFailedError as error:
            raise UnavailableError(f"the settings of topics cannot be checked: {error}") from error
        if found := misfits(specs, existing, settings):
            raise ConfigError("\n".join(found))
        missing = [spec for spec in specs if spec.name not in existing]
        if not missing:
            return []
        futures = self._client.create_topics(
            [
                NewTopic(
                    spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=spec.replication_factor,
                    config=allowed(spec.made_with, self._most_bytes),
                )
                for spec in missing
            ],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        created = []
        for name, future in futures.items():
            try:
                future.result()
                created.append(name)
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    self._require_described(name)
                    continue
                text = f"Kafka refuses to create topic {name}: {cause.str()}"
                if cause.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    raise UnavailableError(f"{text}. {_TOO_FEW_BROKERS}") from error
                if cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    text = (
                        f"topic {name} is missing, or Describe of it is not allowed; it cannot be "
                        f"made, as Create is not allowed: {cause.str()} `pipeline acls` lists the "
                        "rights of each role. The JobManager makes topics: start it first"
                    )
                if "max.message.bytes" in cause.str():
                    text = f"{text.rstrip('.')}. Lower max_message_bytes in config.yaml to that"
                if is_passing(cause):
                    raise UnavailableError(text) from error
                raise ConfigError(text) from error
        return created

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions, `count` in all.

        Raises `ConfigError` if the cluster refuses it, and `UnavailableError` if only for now.
        """
        new = [NewPartitions(topic, count)]
        asked = self._client.create_partitions(new, request_timeout=REQUEST_TIMEOUT_S)
        _require_changed(asked[topic], topic, "Alter")

    def alter_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Set settings of a topic; `None` takes one back to the brokers' default.

        Raises `ConfigError` if the cluster refuses it, and `UnavailableError` if only for now.
        """
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE
                if value is None
                else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        asked = self._client.incremental_alter_configs(
            [resource], request_timeout=REQUEST_TIMEOUT_S
        )
        _require_changed(asked[resource], topic, "AlterConfigs")

    def short_of_copies(self, settings: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Return the partitions, such as "in[0]", that refuse records because replicas are missing.

        They have fewer replicas in sync than `min.insync.replicas` of their topic; `settings` are
        the `topic_settings` of the topics to look at.
        """
        found = []
        for topic, described in self._described([*settings]).items():
            least = int(settings[topic]["min.insync.replicas"])
            found += [
                f"{topic}[{partition.id}]"
                for partition in described.partitions
                if len(partition.isr) < min(least, len(partition.replicas))
            ]
        return found

    def _require_described(self, name: str) -> None:
        """Raise `ConfigError` if a topic seemed missing only because it may not be described.

        Its partitions are then unknown, and nothing may be assumed about them.
        """
        for right in self.missing_rights({name: [DESCRIBE]}):
            raise ConfigError(
                f"topic {name} exists, but a right is missing, {right} (`pipeline acls` lists them)"
            )

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of those topics that exist. Raises as `topics`."""
        wanted = set(names)
        return {name: count for name, count in self.topics().items() if name in wanted}

    def finds(self, topic: str) -> bool:
        """Whether a topic to be read exists.

        Raises `UnavailableError` if no broker answers, or if the topic may seem missing only
        because a right to it is.
        """
        if self.partition_counts([topic]):
            return True
        for right in self.missing_rights({topic: [READ]}):
            raise UnavailableError(
                f"topic {topic} cannot be read: a right is missing, {right} (`pipeline acls` lists "
                "them)"
            )
        return False

    def topics(self) -> dict[str, int]:
        """Return how many partitions each topic has; raise `UnavailableError` without an answer."""
        topics = self._metadata().topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def brokers(self) -> list[str]:
        """Return the address of each broker, as `bootstrap.servers` has it. Raises as `topics`."""
        return addresses(self._metadata())

    def _metadata(self) -> Any:
        try:
            return self._client.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(
                f"cannot list the topics at {self._bootstrap_servers}: {error.args[0].str()}"
            ) from error

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the id that each topic got when it was created (KIP-516).

        Raises `NonRetriableError` if one stays missing for ten seconds.
        """
        return {name: found.id for name, found in self.existing_topics(names).items()}

    def existing_topics(self, names: Sequence[str]) -> dict[str, ExistingTopic]:
        """Return the id of each topic, and how many partitions it has. Raises as `topic_ids`."""
        found = self._described(names)
        return {n: ExistingTopic(str(t.topic_id), len(t.partitions)) for n, t in found.items()}

    def _described(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the `TopicDescription` of each topic."""

        def describe(timeout_s: float) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, future in self.request_topics(names, timeout_s).items():
                try:
                    found[name] = answer(future, f"Describe of topic {name}")
                except KafkaException as exception:
                    if not is_missing_topic(exception.args[0]):
                        raise
            return found

        deadline_s = time.monotonic() + GONE_AFTER_S
        while True:
            found = self._ask(describe)
            if not (missing := set(names) - found.keys()):
                return found
            if time.monotonic() > deadline_s:
                raise NonRetriableError(
                    f"topic {min(missing)} does not exist (any more): the JobManager makes "
                    "missing topics, empty ones, when it starts"
                )
            time.sleep(_MISSING_POLL_S)

    def request_topics(
        self,
        names: Collection[str],
        timeout_s: float = REQUEST_TIMEOUT_S,
        *,
        with_rights: bool = False,
    ) -> dict[str, Future[Any]]:
        """Ask for the `TopicDescription` of topics; does not wait for the answers.

        `names` may contain a topic twice: a task may read an internal topic that it writes.
        """
        answers: dict[str, Future[Any]] = self._client.describe_topics(
            TopicCollection(list(dict.fromkeys(names))),
            request_timeout=timeout_s,
            include_authorized_operations=with_rights,
        )
        self._asked = list(answers.values())
        return answers

    def topic_limits(self, names: Sequence[str]) -> dict[str, TopicLimits]:
        """Return the limits that topics set for their records."""
        found = self.topic_settings(names)
        return {name: TopicLimits.of(settings) for name, settings in found.items()}

    def size_limits(self, names: Sequence[str]) -> dict[str, int]:
        """Return `max.message.bytes` of topics: the largest batch of records that each takes."""
        return {name: limits.size_bytes for name, limits in self.topic_limits(names).items()}

    def topic_settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return all settings of topics, defaults included, by Kafka's names."""

        def describe(timeout_s: float) -> dict[str, dict[str, str]]:
            futures = self._client.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in names],
                request_timeout=timeout_s,
            )
            found = {
                resource.name: answer(future, f"DescribeConfigs of topic {resource.name}")
                for resource, future in futures.items()
            }
            return {
                topic: {name: entry.value for name, entry in entries.items()}
                for topic, entries in found.items()
            }

        return self._ask(describe) if names else {}

    def missing_rights(self, needed: Mapping[str, Collection[str]]) -> list[str]:
        """Return the missing rights among the needed ones, such as "Read of topic in".

        Topics that do not exist, or for which no answer comes in time, are left out. If a topic may
        not be described, all needed operations count as missing, except DescribeConfigs: Kafka does
        not tell whether that is allowed.
        """
        found: list[str] = []
        for topic, asked in self.request_topics(needed, _ATTEMPT_S, with_rights=True).items():
            operations = list(dict.fromkeys(needed[topic]))
            try:
                allowed = asked.result(2 * _ATTEMPT_S).authorized_operations
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    continue
                missing = [o for o in operations if o != DESCRIBE_CONFIGS] or operations
            except TimeoutError:
                continue
            else:
                missing = [o for o in operations if _OPERATIONS[o] not in allowed]
            found += [f"{operation} of topic {topic}" for operation in missing]
        return found

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the end offset of each partition, including open transactions."""
        return self._offsets(partitions, _LATEST)

    def stable_ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition: the end for `read_committed`."""
        return self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)

    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """Return the epoch of each partition's leader; `None` if it does not say."""
        return self._offsets(partitions, _LATEST, of=epoch_of)

    def request_stable_ends(
        self, partitions: Collection[Partition]
    ) -> dict[Partition, Future[Any]]:
        """Ask for the last stable offset of each partition; does not wait for the answers.

        `clients.offset_of` reads them.
        """
        level = IsolationLevel.READ_COMMITTED
        answers = self._request_offsets(partitions, _LATEST, level, _ATTEMPT_S)
        self._asked = list(answers.values())
        return answers

    def request_watermarks(
        self, partitions: Collection[Partition], timeout_s: float, *, is_high: bool
    ) -> dict[Partition, Future[Any]]:
        """Ask each leader for the high watermarks of its partitions, or for the oldest offsets.

        Does not wait for the answers, each of which comes or fails within `timeout_s`.
        `clients.offset_of` reads them.
        """
        spec = _LATEST if is_high else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._request_offsets(partitions, spec, IsolationLevel.READ_UNCOMMITTED, timeout_s)

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offset of the oldest record in each partition, or its end if it is empty.

        A consumer's `get_watermark_offsets` is no substitute: it makes two requests, and if the
        first fails, as may happen while a leader starts, librdkafka 2.16 returns the end for both.
        """
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        """Return the offset of the first record of that time or later; `None` if there is none."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(partitions, spec)
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def _offsets(
        self,
        partitions: Sequence[Partition],
        spec: Any,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        of: Callable[[Any], Any] = offset_of,
    ) -> dict[Partition, Any]:
        def list_offsets(timeout_s: float) -> dict[Partition, Any]:
            futures = self._request_offsets(partitions, spec, level, timeout_s)
            return {
                place: of(answer(future, f"Describe of topic {place[0]}"))
                for place, future in futures.items()
            }

        return self._ask(list_offsets)

    def _request_offsets(
        self,
        partitions: Collection[Partition],
        spec: Any,
        level: IsolationLevel,
        timeout_s: float,
    ) -> dict[Partition, Future[Any]]:
        futures = self._client.list_offsets(
            {TopicPartition(*partition): spec for partition in partitions},
            isolation_level=level,
            request_timeout=timeout_s,
        )
        return {(tp.topic, tp.partition): future for tp, future in futures.items()}

    def delete_before(self, offsets: Mapping[Partition, int]) -> None:
        """Delete the records of each partition that come before its offset."""
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]

        def delete(timeout_s: float) -> None:
            futures = self._client.delete_records(wanted, request_timeout=timeout_s)
            for place, future in futures.items():
                answer(future, f"Delete of topic {place.topic}")

        self._ask(delete)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; missing ones are ignored."""
        self._delete(
            "topic",
            names,
            lambda left: self._client.delete_topics(list(names), request_timeout=left),
        )

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete the committed offsets of groups; missing groups are ignored."""
        self._delete(
            "group",
            groups,
            lambda left: self._client.delete_consumer_groups(list(groups), request_timeout=left),
        )

    def _delete(
        self, kind: str, names: Sequence[str], request: Callable[[float], Mapping[str, Future[Any]]]
    ) -> None:
        def delete(timeout_s: float) -> None:
            for name, future in request(timeout_s).items():
                try:
                    answer(future, f"Delete of {kind} {name}")
                except KafkaException as exception:
                    error = exception.args[0]
                    is_gone = error.code() == KafkaError.GROUP_ID_NOT_FOUND
                    if not is_gone and not is_missing_topic(error):
                        raise

        if names:
            self._ask(delete)

    def _ask(self, request: Callable[[float], T]) -> T:
        """Make a request that takes a timeout; repeat it with new metadata if there is no answer.

        librdkafka alone would keep waiting for the controller or leader that it knows, even if that
        is gone. A client that gets no metadata either may have lost all brokers for good (see
        `Lifeline`).
        """
        deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            client = self._client
            try:
                return retry(lambda left: request(min(left, _ATTEMPT_S)), REQUEST_TIMEOUT_S)
            except TransactionFailedError:
                if time.monotonic() > deadline_s:
                    raise
            try:
                client.list_topics(timeout=_ATTEMPT_S)
            except KafkaException:
                with self._changing:
                    if self._latest is client:
                        self._replace()
            time.sleep(_RETRY_S)


_NO_ANSWER = frozenset((KafkaError._TIMED_OUT, KafkaError._TRANSPORT))


def is_unanswered(answer: Future[Any]) -> bool:
    error = answer.exception() if answer.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_ANSWER


def _require_changed(asked: Future[Any], topic: str, operation: str) -> None:
    try:
        answer(asked, f"{operation} of topic {topic}")
    except MissingRightError as error:
        raise ConfigError(f"topic {topic} cannot be changed: {error}") from error
    except KafkaException as exception:
        cause = exception.args[0]
        text = f"Kafka refuses to change topic {topic}: {cause.str()}"
        raise (UnavailableError if is_passing(cause) else ConfigError)(text) from exception


def answer(future: Future[Any], right: str) -> Any:
    """Return an answer. Raises the error that names `right` if that right is missing."""
    try:
        return future.result()
    except KafkaException as exception:
        error = translate(exception)
        if isinstance(error, MissingRightError):
            raise error.naming(right) from exception
        raise
