"""`pipeline test`: runs a pipeline.yaml without Kafka and checks it against a YAML suite."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.config.config import load_config, refuse_other_file
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Free, Number, Schema, Section, Text
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    checked_plain,
    describe,
    read_yaml,
)
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.engine.user_errors import Explanation
from kafka_pipeline.streams.errors import SerializationError, StreamsError, UnknownTopicError
from kafka_pipeline.streams.pipeline.file import read_pipeline
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    VersionedRecord,
    WindowStore,
)
from kafka_pipeline.streams.stores.formats import MOST_FORMATS
from kafka_pipeline.streams.stores.layout import MAX_TIME
from kafka_pipeline.streams.testing.differences import difference, is_same
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from kafka_pipeline.streams.testing.driver_topics import ReadRecord, TestOutputTopic
from kafka_pipeline.streams.testing.suite_serdes import Made, made, read_serdes

_SUITE_KEYS = ("config", "pipeline", "serdes", "partitions", "tests")
_OF_STORE = ("name", "processor", "key", "value")
_RECORD_KEYS = ("key", "value", "timestamp_ms", "headers", "partition")
_STEPS = ("produce", "assert", "advance", "store", "former")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of a test: `problem` says where and why it failed, and is empty if it passed."""

    __test__ = False  # for pytest, which would take it for a test

    name: str
    problem: str = ""


_LIST: Schema = {"type": "array"}
_CONFIG = Text(name="config", doc="the path of config.yaml", default="config.yaml")
_PIPELINE = Text(name="pipeline", doc="the path of pipeline.yaml", default="pipeline.yaml")
_SERDES = Section(name="serdes", doc="how keys and values are written, by topic", keys=())
_PARTITIONS = Section(name="partitions", doc="partition counts, by topic", keys=())
_TESTS = Free(
    name="tests",
    doc="the tests",
    about="a list of tests, with name and steps each",
    required=True,
    of=_LIST,
    says="list",
)
_NAME = Text(name="name", doc="the test's name", about="what the test shows", required=True)
_TEST_STEPS = Free(
    name="steps",
    doc="the steps",
    about=f"a list of {', '.join(_STEPS)}",
    required=True,
    of=_LIST,
    says="list",
)
_TOPIC = Text(name="topic", doc="the topic, or the name of a source or sink")
_TIMESTAMP = Number(name="timestamp_ms", doc="the record's time in ms since 1970", low=0)
_ADVANCE = Number(name="advance", doc="how many ms pass", low=0, required=True)
_RECORDS = Free(
    name="records",
    doc="the records",
    about="the records that must have come, all of them",
    required=True,
    of=_LIST,
    says="list",
)
_STORE = Text(name="name", doc="the store's name", about="the store", required=True)
_PROCESSOR = Text(name="processor", doc="the store's processor", default="")
_FORMAT = Number(
    name="format", doc="the former format of the value", low=1, high=MOST_FORMATS, default=1
)


class _MismatchError(Exception):
    """The records or the store's content differ from the expected ones."""


def run_suite(path: Path) -> list[TestResult]:
    """Run all tests of a suite, each on its own driver.

    Raises ConfigError if the suite, config.yaml or pipeline.yaml has mistakes, and UnavailableError
    if something that the pipeline needs is missing, such as Java.
    """
    problems = Problems(path)
    root = read_yaml(path, problems)
    refuse_other_file(root, "a suite of tests", problems)
    if not isinstance(root, Map):
        problems.add(root, f"must be a map with pipeline and tests, got {describe(root)}")
    problems.raise_if_any()
    assert isinstance(root, Map)
    suite = _Suite(path, Fields(root.pairs, problems, at=root, known=_SUITE_KEYS), problems)
    problems.raise_if_any()
    return [suite.run(name, steps) for name, steps in suite.tests]


class _Suite:
    def __init__(self, path: Path, fields: Fields, problems: Problems) -> None:
        self._path = path
        self._config = path.parent / fields.text(_CONFIG)
        self._pipeline = path.parent / fields.text(_PIPELINE)
        self._named = (*fields.pairs(_SERDES), *fields.pairs(_PARTITIONS))
        self._serdes = {
            pair.key: read_serdes(_fields(pair, ("key", "value"), problems), problems)
            for pair in fields.pairs(_SERDES)
        }
        self._partitions = {
            pair.key: Fields([pair], problems, at=pair.at, known=(pair.key,)).number(
                Number(name=pair.key, doc="how many partitions the topic has", low=1, required=True)
            )
            for pair in fields.pairs(_PARTITIONS)
        }
        self.tests = _tests(fields, problems)

    def run(self, name: str, steps: list[Pair]) -> TestResult:
        """Run a test. Raises the same errors as `run_suite`."""
        problem = ""
        try:
            # First, as a registry in memory gets the schemas that the pipeline may need.
            of_topics = made(self._by_topic(self._serdes), load_config(self._config))
            with self._driver() as driver:
                self._check_topics(driver)
                problem = self._problem(driver, steps, of_topics)
        except (ConfigError, UnavailableError):
            raise
        except BaseException as raised:
            error = as_exception(raised)
            # From a processor's constructor, `init` or `close`; the problem of a step comes first.
            problem = problem or f"{self._path}: {_told(error)}"
        return TestResult(name, problem)

    def _driver(self) -> TopologyTestDriver:
        partitions = self._by_topic(self._partitions)
        try:
            return TopologyTestDriver.of_pipeline(
                self._config, self._pipeline, partitions=partitions
            )
        except UnknownTopicError as error:
            self._refuse([error.topic])
            raise

    def _by_topic(self, by_name: Mapping[str, T]) -> dict[str, T]:
        return {self._topics.get(name, name): each for name, each in by_name.items()}

    def _check_topics(self, driver: TopologyTestDriver) -> None:
        unknown = []
        for pair in self._named:
            try:
                driver.create_output_topic(self._topics.get(pair.key, pair.key))
            except UnknownTopicError as error:
                unknown.append(error.topic)
        self._refuse(unknown)

    def _refuse(self, topics: Sequence[str]) -> None:
        """Report topics named under serdes or partitions that the pipeline does not have."""
        problems = Problems(self._path)
        for pair in self._named:
            if self._topics.get(pair.key, pair.key) in topics:
                hint = did_you_mean(pair.key, (*self._topics, *self._topics.values()))
                problems.add(pair.at, f'the pipeline has no topic "{pair.key}"{hint}')
        problems.raise_if_any()

    def _problem(
        self, driver: TopologyTestDriver, steps: list[Pair], serdes: Mapping[str, Made]
    ) -> str:
        """Return where and why the first failing step fails; "" if all pass."""
        run = _Run(driver, self._topics, serdes)
        for step in steps:
            problems = Problems(self._path)
            try:
                run.step(step, problems)
                problems.raise_if_any()
            except (ConfigError, UnavailableError):
                raise
            except BaseException as raised:
                error = as_exception(raised)
                return f"{self._path}:{step.at.line}: {step.key}: {_told(error)}"
        return ""

    @cached_property
    def _topics(self) -> Mapping[str, str]:
        """Return the topics by their names in the files: sources and sinks."""
        config = load_config(self._config)
        problems = Problems(self._pipeline)
        pipeline = read_pipeline(read_yaml(self._pipeline, problems), problems)
        return {SOURCE: config.source_topic, SINK: config.sink_topic, **pipeline.topics}


class _Run:
    """One run of a test."""

    def __init__(
        self,
        driver: TopologyTestDriver,
        topics: Mapping[str, str],
        serdes_of: Mapping[str, Made],
    ) -> None:
        self._driver = driver
        self._topics = topics
        self._serdes = serdes_of
        self._outputs: dict[str, TestOutputTopic] = {}

    def step(self, step: Pair, problems: Problems) -> None:
        match step.key:
            case "produce":
                self._produce(_fields(step, ("topic", *_RECORD_KEYS[:-1]), problems), problems)
            case "assert":
                self._assert(_fields(step, ("topic", "records"), problems), problems)
            case "advance":
                fields = Fields([step], problems, at=step.at, known=("advance",))
                self._driver.advance_wall_clock_time(fields.number(_ADVANCE))
            case "former":
                self._put_former(_fields(step, (*_OF_STORE, "format"), problems), problems)
            case _:
                self._check_store(_fields(step, _OF_STORE, problems), problems)

    def _produce(self, fields: Fields, problems: Problems) -> None:
        name = fields.text(replace(_TOPIC, default=SOURCE))
        topic = self._topics.get(name, name)
        key_serde, value_serde = self._serdes.get(topic, (None, None))
        headers = _headers(fields.get("headers"), problems)
        key, value = _key_and_value(fields, problems)
        self._driver.create_input_topic(topic).pipe_input(
            to_bytes(key, key_serde),
            to_bytes(value, value_serde),
            fields.number_or_none(_TIMESTAMP),
            [(name, to_bytes(value, None)) for name, value in headers],
        )

    def _assert(self, fields: Fields, problems: Problems) -> None:
        name = fields.text(replace(_TOPIC, default=SINK))
        topic = self._topics.get(name, name)
        listed = fields.items(_RECORDS)
        problems.raise_if_any()
        assert listed is not None
        output = self._outputs.get(topic)
        if output is None:
            output = self._driver.create_output_topic(topic)
            self._outputs[topic] = output
        found = output.read_records()
        wanted = [_wanted(item, problems) for item in listed.items]
        problems.raise_if_any()
        key_serde, value_serde = self._serdes.get(topic, (None, None))
        shown = [
            shown_as(record, wanted[index] if index < len(wanted) else {}, key_serde, value_serde)
            for index, record in enumerate(found)
        ]
        if not is_same(shown, wanted):
            why = f" yet, as {output.held_back}" if not found and output.held_back else ""
            raise _MismatchError(f"{name} has {difference(shown, wanted, why)}")

    def _put_former(self, fields: Fields, problems: Problems) -> None:
        """Put a value as code has written it when values had a former format."""
        name, processor = fields.text(_STORE), fields.text(_PROCESSOR) or None
        version = fields.number(_FORMAT)
        key, value = _key_and_value(fields, problems)
        store = self._driver.get_former_store(name, version, processor)
        match store:
            case TimestampedKeyValueStore():
                store.put_value(key, value, 0)
            case KeyValueStore():
                store.put(key, value)
            case _:
                raise StreamsError(
                    f'the step former has values of key-value stores, and "{name}" is a '
                    f"{type(store).__name__}: put them by TopologyTestDriver.get_former_store"
                )

    def _check_store(self, fields: Fields, problems: Problems) -> None:
        name = fields.text(_STORE)
        processor = fields.text(_PROCESSOR) or None
        key, wanted = _key_and_value(fields, problems)
        store = self._driver.get_state_store(name, processor)
        try:
            found = _content(store, key)
        except SerializationError:
            # The keys of built-in types, and of classes without serdes, are bytes.
            found = _content(store, to_bytes(key, None))
        if not is_same(found, wanted):
            raise _MismatchError(f"{name} has {found!r} for {key!r}, expected {wanted!r}")


# Any, because the kinds of stores have no common type.
def _content(store: Any, key: Any) -> Any:
    """Return the value of a key; for windows and sessions, the list of their values."""
    if isinstance(store, WindowStore):
        with store.fetch(key, 0, MAX_TIME) as windows:
            return [value for _, value in windows]
    if isinstance(store, SessionStore):
        with store.fetch(key) as sessions:
            return [value for _, value in sessions]
    value = store.get(key)
    return value.value if isinstance(value, ValueAndTimestamp | VersionedRecord) else value


def _tests(fields: Fields, problems: Problems) -> list[tuple[str, list[Pair]]]:
    listed = fields.items(_TESTS)
    tests = []
    if listed is not None and not listed.items:
        problems.add(listed, "tests is empty: write a test, with name and steps")
    for item in listed.items if listed else ():
        if not isinstance(item, Map):
            problems.add(item, f"a test must be a map with name and steps, got {describe(item)}")
            continue
        test = Fields(item.pairs, problems, at=item, known=("name", "steps"))
        name = test.text(_NAME)
        steps = test.items(_TEST_STEPS)
        if steps is not None and not steps.items:
            problems.add(steps, f"steps is empty: write {_TEST_STEPS.about}")
        tests.append((name, [_step(step, problems) for step in (steps.items if steps else ())]))
    return tests


def _step(item: Value, problems: Problems) -> Pair:
    if isinstance(item, Map) and len(item.pairs) == 1 and item.pairs[0].key in _STEPS:
        return item.pairs[0]
    problems.add(item, f"a step must be one of {', '.join(_STEPS)}, got {describe(item)}")
    return Pair("", Scalar(item.line, item.column, None, ""), item)


def _fields(step: Pair, known: tuple[str, ...], problems: Problems) -> Fields:
    if not isinstance(step.value, Map):
        problems.add(step.value, f"{step.key} must be a map, got {describe(step.value)}")
        problems.raise_if_any()
    assert isinstance(step.value, Map)
    fields = Fields(step.value.pairs, problems, at=step.value, known=known)
    problems.raise_if_any()
    return fields


def _wanted(item: Value, problems: Problems) -> dict[str, Any]:
    if not isinstance(item, Map):
        problems.add(item, f"a record must be a map, got {describe(item)}")
        return {}
    Fields(item.pairs, problems, at=item, known=_RECORD_KEYS)
    if not item.pairs:
        problems.add(
            item,
            f"a record must say what to compare: write one or more of {', '.join(_RECORD_KEYS)}",
        )
    return {
        pair.key: _headers(pair.value, problems)
        if pair.key == "headers"
        else checked_plain(pair.value, problems)
        for pair in item.pairs
    }


def _key_and_value(fields: Fields, problems: Problems) -> tuple[Any, Any]:
    """Return the key and the value of a step. Raises ConfigError with all mistakes found so far."""
    found = [checked_plain(fields.get(name), problems) for name in ("key", "value")]
    problems.raise_if_any()
    return found[0], found[1]


def _headers(value: Value | None, problems: Problems) -> list[tuple[str, Any]]:
    """Return names and values, from a map, or from a list of maps if a name occurs repeatedly."""
    maps = value.items if isinstance(value, Items) else (value,) if value is not None else ()
    found: list[tuple[str, Any]] = []
    for item in maps:
        if isinstance(item, Map):
            found += [(pair.key, checked_plain(pair.value, problems)) for pair in item.pairs]
        else:
            problems.add(item, f"headers must be a map, or a list of maps, got {describe(item)}")
    return found


def _told(error: Exception) -> str:
    """Return the description of an error."""
    if isinstance(error, _MismatchError):
        return str(error)
    return f"{described(error, with_values=True)}{Explanation(error).where}"


def shown_as(
    record: ReadRecord,
    wanted: Mapping[str, Any],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> dict[str, Any]:
    """Return the wanted fields of a record; key and value if the record was not expected."""
    names = list(wanted) or ["key", "value"]
    shown: dict[str, Any] = {}
    for name in names:
        match name:
            case "key":
                shown[name] = _from_bytes(record.key, wanted.get(name), key_serde)
            case "value":
                shown[name] = _from_bytes(record.value, wanted.get(name), value_serde)
            case "headers":
                shown[name] = _shown_headers(record.headers, wanted["headers"])
            case "timestamp_ms":
                shown[name] = record.timestamp
            case _:
                shown[name] = getattr(record, name)
    return shown


def _shown_headers(
    headers: Iterable[tuple[str, bytes | None]], wanted: list[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Return headers, each in the form of the wanted header at the same position."""
    likes = chain((like for _, like in wanted), repeat(None))
    return [
        (name, _from_bytes(data, like, None))
        for (name, data), like in zip(headers, likes, strict=False)
    ]


def to_bytes(value: Any, serde: Serde[Any] | None) -> bytes | None:
    """Return a value of the suite as it is in a topic: text, decimal text, or JSON."""
    if value is None:
        return None
    if serde is not None:
        return serde.serialize(value)
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _from_bytes(data: bytes | None, wanted: Any, serde: Serde[Any] | None) -> Any:
    """Return the content of a topic in the form of the value that it is compared with."""
    if data is None:
        return None
    if serde is not None:
        return serde.deserialize(data)
    read: Callable[[bytes], Any] = bytes.decode if isinstance(wanted, str | None) else json.loads
    try:
        return read(data)
    except ValueError:
        return data
