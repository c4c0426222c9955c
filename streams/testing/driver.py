"""Runs a topology in one process, record by record, without Kafka or Spark: for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SOURCE, PipelineProcessor
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.common.topics import NO_LIMITS, TopicLimits
from kafka_pipeline.common.user_series import user_series
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.streams_builder import StreamsBuilder
from kafka_pipeline.streams.durations import Milliseconds, whole_ms, whole_ms_or_none
from kafka_pipeline.streams.engine.arguments import require_int
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.engine.recent import WINDOW_MS, RecentCount
from kafka_pipeline.streams.engine.record_queues import NEVER_WAIT
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError, UnknownTopicError
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from kafka_pipeline.streams.pipeline.units import group_of, settings_of, sharing_key, valued
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.testing.driver_groups import DriverGroup, FollowedStore, held_back
from kafka_pipeline.streams.testing.driver_topics import (
    Entry,
    Piped,
    TestInputTopic,
    TestOutputTopic,
    batch_of,
    entries_of,
    placed,
)
from kafka_pipeline.streams.testing.store_getters import StoreGetters
from kafka_pipeline.streams.type_variables import K, V


class TopologyTestDriver(StoreGetters):
    """Runs every node group of a topology as one task, synchronously.

    Records are processed, punctuations called and transactions committed one by one, in the
    order in which records are piped in; records of one `pipe_batch` stay one batch all the way.
    Records for a topic that the topology also reads are processed before `pipe_input` returns.
    Only `advance_wall_clock_time` moves the wall clock.

    `partitions` maps topics to their number of partitions, 1 by default. Partitioners use these
    numbers, and records that are read carry their partition; each group still has only one task,
    number 0. A source with a pattern finds only topics that `partitions` names. If no source has a
    pattern, naming a topic there that nothing reads or writes raises `UnknownTopicError`.

    A record for the topic of a global store updates the store at once, for all groups.

    As with Kafka, a task stops when its processor raises while `on_error` is `fail`; sending it
    anything afterwards raises `StreamsError`.

        with TopologyTestDriver(topology) as driver:
            lines = driver.create_input_topic("lines", value_serde=serdes.string)
            lines.pipe_input(b"k", "a b", timestamp=0)
    """

    def __init__(
        self,
        topology: Topology | TopologyBuilder | StreamsBuilder,
        *,
        partitions: Mapping[str, int] | None = None,
        initial_wall_clock_ms: int = 0,
        application_id: str = "test",
        max_task_idle_ms: Milliseconds = 0,
        max_timestamp_ahead_ms: Milliseconds | None = None,
        settings: Mapping[str, GroupSettings] | None = None,
    ) -> None:
        """Start; `settings` maps names of groups to settings, for groups that have their own.

        With `max_timestamp_ahead_ms`, records that are further ahead of the driver's clock are
        rejected, as config.yaml says on a cluster; give `initial_wall_clock_ms` with it.

        `max_task_idle_ms` is for all groups; with `settings`, give it there. A builder is built
        first. Raises `InvalidArgumentError` for invalid arguments, `StreamsError` for a name that
        no group has, and whatever processors raise in `init`.
        """
        if isinstance(topology, TopologyBuilder | StreamsBuilder):
            topology = topology.build()
        if not isinstance(topology, Topology):
            raise InvalidArgumentError(
                f"a TopologyTestDriver runs a Topology or a builder of one, not {topology!r}"
            )
        where = "a TopologyTestDriver"
        idle_ms = whole_ms(where, "max_task_idle_ms", max_task_idle_ms, NEVER_WAIT)
        if settings and idle_ms:
            raise InvalidArgumentError("with settings, give max_task_idle_ms in the GroupSettings")
        default = GroupSettings(max_task_idle_ms=idle_ms)
        groups = {group.name: group for group in topology.groups}
        for name, given in (settings or {}).items():
            if name not in groups:
                raise StreamsError(f'no node group is called "{name}"{did_you_mean(name, groups)}')
            if not isinstance(given, GroupSettings):
                raise InvalidArgumentError(
                    f'the settings of group "{name}" are a GroupSettings, not {given!r}'
                )
        self._start(
            [
                (name, group, (settings or {}).get(name, default), "")
                for name, group in groups.items()
            ],
            partitions or {},
            initial_wall_clock_ms,
            application_id,
            whole_ms_or_none(where, "max_timestamp_ahead_ms", max_timestamp_ahead_ms, 0),
        )

    @classmethod
    def of_pipeline(
        cls,
        config: Path | str,
        pipeline: Path | str,
        *,
        partitions: Mapping[str, int] | None = None,
        initial_wall_clock_ms: int = 0,
    ) -> TopologyTestDriver:
        """Run a pipeline.yaml with its config.yaml, including `on_error` and dead letters.

        Topics have the same names as in Kafka, including the topics of the job. Raises ConfigError
        if a file is invalid, and whatever processors raise in `init`. Processors of the types
        `sql` and `dataframe` start Spark in this process.
        """
        loaded = load_config(Path(config))
        # One task each, even if an internal topic sets its own number of partitions.
        found = replace(load_pipeline(Path(pipeline), loaded), partitions={}, parallelism=1)
        found = with_matching_topics(found, partitions or {})
        return cls._of_pipeline(found, loaded, partitions or {}, initial_wall_clock_ms)

    @classmethod
    def _of_pipeline(
        cls,
        pipeline: Pipeline,
        config: Config,
        partitions: Mapping[str, int] = {},
        initial_wall_clock_ms: int = 0,
    ) -> TopologyTestDriver:
        code = UserCode.of(config)
        code.require_own()
        here = HostReferences(config.secrets)
        units = replicas(pipeline)
        queries = None
        if any(kind_of(unit.spec).needs_spark for unit in units):
            # Imported late: Spark takes a while to import, and most pipelines do not need it.
            from kafka_pipeline.streams.sql.access import Readable
            from kafka_pipeline.streams.sql.local import LocalQueries

            queries = LocalQueries(code, Readable.of(config), config.spark.conf)
        driver = cls.__new__(cls)
        driver._start(
            [
                (
                    unit.name,
                    group_of(
                        valued(unit, here, config.tables), code, queries, config.schema_registry
                    ),
                    settings_of(unit),
                    sharing_key(unit),
                )
                for unit in units
            ],
            partitions,
            initial_wall_clock_ms,
            config.job_name or "",
        )
        return driver

    def _start(
        self,
        groups: Sequence[tuple[str, NodeGroup, GroupSettings, str]],
        partitions: Mapping[str, int],
        initial_wall_clock_ms: int,
        application_id: str,
        max_timestamp_ahead_ms: int | None = None,
    ) -> None:
        require_int("initial_wall_clock_ms", initial_wall_clock_ms, 0)
        if not isinstance(partitions, Mapping):
            raise InvalidArgumentError(
                f"partitions is a mapping of topics and numbers, not a {type(partitions).__name__}"
            )
        for topic, count in partitions.items():
            require_int(f'partitions: the number for topic "{topic}"', count, 1)
        self.now_ms = initial_wall_clock_ms
        """The driver's wall clock."""
        self.max_timestamp_ahead_ms = max_timestamp_ahead_ms
        """How far records may be ahead of it; `None` without a limit."""
        self.partitions: Mapping[str, int] = dict(partitions)
        """The number of partitions by topic; a topic that is not in here has 1."""
        self._logs: dict[str, list[Entry]] = {}
        StoreGetters.__init__(self)
        self._figures = TaskFigures()
        self._enforced = RecentCount()
        self._pending: deque[tuple[DriverGroup | FollowedStore, RecordBatch]] = deque()
        self._groups: list[DriverGroup] = []
        self._globals: dict[tuple[str, str], FollowedStore] = {}
        self._closed = False
        try:
            for name, group, settings, key in groups:
                followers = [
                    self._follow(key, store, application_id) for store in group.global_stores
                ]
                self._groups.append(
                    DriverGroup(name, group, settings, self, application_id, followers)
                )
                self._show(name, self._groups[-1].task)
            self._check_topics(partitions)
            # What `init` has forwarded may be for groups that were made later.
            logs, self._logs, self._pending = self._logs, {}, deque()
            for topic, entries in logs.items():
                self._append(topic, entries)
            self._each(lambda group: None)
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    def _check_topics(self, partitions: Mapping[str, int]) -> None:
        """Refuse topics that nothing reads or writes, if no source has a pattern.

        With a pattern, a test may name topics that the pattern should not match."""
        if any(group.has_patterns for group in self._groups):
            return
        known = [topic for reader in self._readers for topic in reader.topics]
        known += [topic for group in self._groups for topic in group.out_topics]
        for topic in partitions:
            if not self._knows(topic):
                raise UnknownTopicError(
                    f"partitions: nothing in the topology reads or writes topic {topic}"
                    f"{did_you_mean(topic, known)}",
                    topic,
                )

    def _follow(self, key: str, store: GlobalStore, application_id: str) -> FollowedStore:
        """Return the one copy of a global store that groups with this key share."""
        name = store.store.name
        if (key, name) not in self._globals:
            follower = self._globals[key, name] = FollowedStore(store, self, application_id)
            self._show(store.source.name, follower.task.nodes)
        return self._globals[key, name]

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all processors and stores. Raises the first error that one of them raised."""
        self._closed = True
        self._pending.clear()  # what Ctrl-C has left there
        try:
            self._each(DriverGroup.close)
        finally:
            for follower in self._globals.values():
                follower.task.close()

    @overload
    def create_input_topic(
        self,
        name: str,
        *,
        start_timestamp: int | None = None,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic[bytes, bytes]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key_serde: Serde[K],
        *,
        start_timestamp: int | None = None,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic[K, bytes]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        *,
        value_serde: Serde[V],
        start_timestamp: int | None = None,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic[bytes, V]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp: int | None = None,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic[K, V]: ...
    def create_input_topic(
        self,
        name: str,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        start_timestamp: int | None = None,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return a writer. Raises `UnknownTopicError` for a topic that no source reads."""
        if not any(name in reader.topics for reader in self._readers):
            if any(group.matches(name) for group in self._groups):
                raise StreamsError(
                    f"topic {name} matches the pattern of a source, but did not exist when the "
                    "driver started: name it in `partitions`"
                )
            raise UnknownTopicError(f"no source of the topology reads topic {name}", name)
        advance_ms = whole_ms(f'input topic "{name}"', "auto_advance_ms", auto_advance_ms, 0)
        if start_timestamp is not None:
            require_int("start_timestamp", start_timestamp, 0)
        return TestInputTopic(self, name, key_serde, value_serde, start_timestamp, advance_ms)

    @overload
    def create_output_topic(self, name: str) -> TestOutputTopic[bytes | None, bytes]: ...
    @overload
    def create_output_topic(self, name: str, key_serde: Serde[K]) -> TestOutputTopic[K, bytes]: ...
    @overload
    def create_output_topic(
        self, name: str, *, value_serde: Serde[V]
    ) -> TestOutputTopic[bytes, V]: ...
    @overload
    def create_output_topic(
        self, name: str, key_serde: Serde[K], value_serde: Serde[V]
    ) -> TestOutputTopic[K, V]: ...
    def create_output_topic(
        self,
        name: str,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
    ) -> TestOutputTopic[Any, Any]:
        """Return a reader; a topic that nothing was written to yet is empty.

        Raises `UnknownTopicError` for a topic that nothing in the topology writes or reads.
        """
        if not self._knows(name):
            written = dict.fromkeys(topic for group in self._groups for topic in group.out_topics)
            hint = did_you_mean(name, written) or (
                f": it writes {', '.join(written)}" if written else ": it has no sinks"
            )
            raise UnknownTopicError(f"nothing in the topology writes topic {name}{hint}", name)
        return TestOutputTopic(self, name, key_serde, value_serde)

    def get_former_store(self, name: str, version: int, group: str | None = None) -> Any:
        """Return a store as code had it when its values were of a former format, 1 or more.

        What a test puts there is upgraded when the processor reads it. Raises what
        `get_state_store` raises.
        """
        owner, _ = self._found(name, group)
        (found,) = (each for each in self._groups if each.name == owner)
        return found.former_store(name, version)

    def advance_wall_clock_time(self, advance_ms: Milliseconds) -> None:
        """Advance the wall clock: call what is due, and process what waited long enough."""
        advance = whole_ms("advance_wall_clock_time", "advance_ms", advance_ms, 0)
        self._require_open()
        self.now_ms += advance
        self._each(DriverGroup.turn)

    @property
    def dropped_records(self) -> Mapping[str, int]:
        """How many records were dropped so far, by reason; `metrics` has the total."""
        return self._figures.dropped_by_reason

    def counted(self, name: str, /, **labels: str) -> float:
        """Return what `context.count` has counted so far. Raises ValueError for invalid names."""
        return self._figures.counted.get(user_series(name, tuple(labels.items())), 0.0)

    def gauge(self, name: str, /, **labels: str) -> float | None:
        """Return what `context.gauge` was set to last; `None` if it was not. Raises ValueError."""
        return self._figures.gauges.get(user_series(name, tuple(labels.items())))

    @property
    def key_warnings(self) -> Sequence[str]:
        """Warnings of topics with keys that may not meet those of other topics, as in the log.

        In Kafka, keys with other bytes than the serde would write may be in other partitions. Here,
        all records of a group meet, whatever their partition.
        """
        return [each.text for group in self._groups for each in group.key_warnings]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Totals over all groups so far, and rates over the last minute.

        A rate is per second of the driver's wall clock.
        """
        figures = self._figures
        return {
            "records_in_total": figures.records_in,
            "records_out_total": figures.records_out,
            "skipped_records_total": figures.skipped,
            "dead_letters_total": figures.dead_letters,
            "dropped_records_total": figures.dropped.total(),
            "enforced_processing_total": figures.enforced,
            "enforced_processing_rate": self._enforced.in_window(self.now_ms) * 1000 / WINDOW_MS,
        }

    # Used by the topics and the groups

    @property
    def _readers(self) -> Sequence[DriverGroup | FollowedStore]:
        return (*self._globals.values(), *self._groups)

    def _knows(self, topic: str) -> bool:
        return any(topic in reader.topics for reader in self._readers) or any(
            topic in group.out_topics or group.chooses_topics or group.matches(topic)
            for group in self._groups
        )

    def log(self, topic: str) -> list[Entry]:
        """Return all records that were written to a topic."""
        return self._logs.setdefault(topic, [])

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self.partitions.get(topic, 1)

    def limits(self, topic: str) -> TopicLimits:
        """Return that a topic accepts all records."""
        return NO_LIMITS

    def recheck_limits(self, topic: str) -> None:
        """Confirm the limits of a topic: they never change."""

    def held_back(self, topic: str) -> str:
        """Return which records wait that may lead to records of a topic, and for what; or ""."""
        return held_back(topic, self._groups, self.now_ms)

    def write(self, topic: str, records: Sequence[Piped]) -> None:
        """Write a run of records to a topic from outside, and process all that follows from it."""
        self._require_open()
        partitions = self.num_partitions(topic)
        self._append(topic, [placed(record, partitions) for record in records])
        self._each(lambda group: None)

    def send(self, outputs: Sequence[OutputRecord | OutputColumns], figures: TaskFigures) -> None:
        """Write the outputs of a group to their topics."""
        self.count(figures)
        for output in outputs:
            topic = output.topic if isinstance(output, OutputColumns) else output[0]
            self._append(topic, entries_of(output, self.num_partitions(topic)))

    def count(self, figures: TaskFigures) -> None:
        """Add to the metrics."""
        self._figures += figures
        self._enforced.add(figures.enforced, self.now_ms)

    def _append(self, topic: str, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        log = self.log(topic)
        batch = batch_of(topic, len(log), entries)
        self._pending += [(reader, batch) for reader in self._readers if topic in reader.topics]
        log += entries

    def _each(self, action: Callable[[DriverGroup], None]) -> None:
        """Call `action` for each group, then process all pending batches.

        A group that fails does not hold up the others; the first error is raised at the end.
        """
        first: Exception | None = None
        todo = deque(partial(action, group) for group in self._groups)
        while todo or self._pending:
            try:
                if todo:
                    todo.popleft()()
                else:
                    reader, batch = self._pending.popleft()
                    reader.take(batch)
            except BaseException as raised:
                error = as_exception(raised)
                first = error if first is None else first
        if first is not None:
            raise first

    def _require_open(self) -> None:
        if self._closed:
            raise StreamsError("the driver is closed")


def start_problem(processor: PipelineProcessor, config: Config) -> str:
    """Make a processor of pipeline.yaml as its tasks would, and run `init` and `close`.

    Its stores are empty and in memory. Returns what is wrong and where in user code, or "".
    """
    # The topics that a pattern will match are not known here, and `init` does not see them.
    known = processor if processor.from_ else replace(processor, from_=(SOURCE,))
    try:
        pipeline = Pipeline((known,), config.topic_names, parallelism=1)
        TopologyTestDriver._of_pipeline(pipeline, config).close()
    except ConfigError as error:
        return str(error)
    except BaseException as error:
        return reason(as_exception(error), with_values=True)
    return ""
