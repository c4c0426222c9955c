"""A descriptor of a type of processors: its keys, checks and needs, and how its tasks run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from kafka_pipeline.common.code.user_code import UserCode, form_problem
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Free,
    Number,
    Schema,
    Text,
    map_schema,
)
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.config.yaml_positions import Pair, Problems, checked_plain
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.names import NAME_PATTERN
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.serde_specs import AnySerde
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_BUFFERED_RECORDS,
    DEFAULT_MAX_PROCESS_TIME_MS,
    ProcessorSpec,
    Serdes,
    SourceSpec,
)
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.global_table import GlobalFiller
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from kafka_pipeline.streams.pipeline.kinds.references import check_value
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import Rows, in_shadow, serde_of
from kafka_pipeline.streams.pipeline.kinds.sources import extractor_of
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.sql.change_rows import GlobalChanges
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.sql.stage import Stage
from kafka_pipeline.streams.stores import StoreBuilder, timestamped_key_value

S = TypeVar("S", bound=ProcessorSpec)

NO_LIMIT = 2**31 - 1

_NAMES_OF: Schema = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "string"},
}


ID = Text(
    name="id",
    doc="the processor's name: letters, digits, `.`, `_` and `-`; not `source` or `sink`",
    about="the processor's name",
    required=True,
    pattern=rf"^(?!({SOURCE}|{SINK})$){NAME_PATTERN.removeprefix('^')}",
)
WAS = Text(
    name="was",
    doc="the former id of a processor that is renamed: with `pipeline apply`, it keeps its state "
    "and its position in its inputs; afterwards, this key has no effect",
    pattern=ID.pattern,
)
TYPE = Text(name="type", doc="what the processor does", required=True)
FROM = Free(
    name="from",
    doc=f"names of `sources:`, or `{SOURCE}`; without it, and if nothing sends to it, a processor "
    "reads the source topic",
    about=f'a list of names of sources, or of "{SOURCE}"',
    of=_NAMES_OF,
    says="list of strings",
)
TO = Free(
    name="to",
    doc=f"ids of processors, names of `sinks:`, or `{SINK}`",
    about=f'a list of processor ids, or of "{SINK}"',
    required=True,
    of=_NAMES_OF,
    says="list of strings",
)
ON_ERROR = Choice(
    name="on_error",
    doc="what happens to a record that the processor rejects: its task stops, the record is "
    "dropped, or it goes to the topic `<id>_dead_letter`; with `all`, also if the error is a "
    "mistake in the code",
    choices=tuple(OnError),
    default=OnError.FAIL,
)
MAX_DEAD_LETTERS = Number(
    name="max_dead_letters_per_minute",
    doc="how many dead letters a task may write within a minute; with one more, the task FAILS",
    low=1,
    high=NO_LIMIT,
)
_DEAD_LETTER = replace(
    ON_ERROR, choices=tuple(each for each in OnError if each.writes_dead_letters), default=None
)
LETTER_RULE: Schema = {
    "if": {"required": [MAX_DEAD_LETTERS.name]},
    "then": {
        "properties": {ON_ERROR.name: _DEAD_LETTER.schema()},
        "required": [ON_ERROR.name],
    },
}
"""Only dead letters can be too many."""
NO_CONFIG = Free(
    name="config",
    doc="nothing: the type takes no config",
    of={"type": "object", "maxProperties": 0},
    says="map",
)
ARGUMENTS = Free(
    name="config",
    doc="keyword arguments of the code; `${NAME}` and `${file:PATH}` in texts are replaced where "
    "its tasks run",
    of={
        "type": "object",
        "propertyNames": {
            "pattern": r"^[^0-9\s!-/:-@\[-^`{-~][^\s!-/:-@\[-^`{-~]*$",
        },
    },
    says="map",
)
MAX_PROCESS_TIME = Number(
    name="max_process_time_ms",
    doc="how long one call of the code may take",
    low=1,
    high=NO_LIMIT,
    default=DEFAULT_MAX_PROCESS_TIME_MS,
)
MAX_TASK_IDLE = Number(
    name="max_task_idle_ms",
    doc="how long a task waits for new records of an input that has none, to process records in "
    "timestamp order; -1: it does not even wait for records that Kafka already has",
    low=-1,
    high=NO_LIMIT,
    default=0,
)
BUFFERED_RECORDS = Number(
    name="buffered_records_per_partition",
    doc="how many records of a partition wait in a task before no more are read",
    low=1,
    high=NO_LIMIT,
    default=DEFAULT_BUFFERED_RECORDS,
)


class Unit(Protocol):
    """A processor of pipeline.yaml with its topics, such as a `ProcessorReplica`."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> ProcessorSpec: ...
    @property
    def from_(self) -> tuple[str, ...]: ...
    @property
    def to(self) -> tuple[str, ...]: ...
    @property
    def in_topics(self) -> tuple[str, ...]: ...
    @property
    def out_topics(self) -> tuple[str, ...]: ...
    @property
    def on_error(self) -> OnError: ...
    @property
    def max_dead_letters_per_minute(self) -> int | None: ...
    @property
    def dead_letter_topic(self) -> str | None: ...
    @property
    def sources(self) -> Mapping[str, SourceSpec]: ...


@dataclass(frozen=True, slots=True)
class Means:
    """The means of a check: Spark with `queries`, users' classes with `imports_classes`."""

    config: Config
    queries: Queries | None = None
    imports_classes: bool = False


@dataclass(frozen=True, slots=True)
class TableInput:
    """An input that a task keeps as a table, and what makes the processor that fills the store.

    The processor also uses the store `of_changes`, if that is not "". One that `has_history` has
    the time of its rows: these must not be too old for it because other inputs are ahead.
    """

    store: str
    supplier: Supplier
    of_changes: str = ""
    has_history: bool = False


class Kind(Generic[S]):
    """A type of processors, that of one spec. Subclasses say how it is read, checked and run."""

    spec: ClassVar[type[ProcessorSpec]]
    doc: ClassVar[str]
    own_keys: ClassVar[Sequence[ConfigKey]] = ()
    """The keys that it has in addition to those of all processors."""
    config: ClassVar[ConfigKey] = NO_CONFIG
    """The key `config`."""
    rules: ClassVar[Sequence[Schema]] = ()
    """Conditions between its keys, as JSON Schema."""
    type_pattern: ClassVar[str | None] = None
    """The pattern of its `type:`, unless that is the spec's type."""
    type_form: ClassVar[str] = ""
    """The form of its `type:` in that case, for messages."""
    is_inline: ClassVar[bool] = False
    """Whether its turns run no user code and take little of the loop's time."""
    needs_spark: ClassVar[bool] = False
    runs_user_processors: ClassVar[bool] = False
    """Whether its tasks run processors that users wrote, with `init` and `close`."""
    takes_records_as_they_are: ClassVar[bool] = False
    """Whether it takes keys and values as bytes."""
    refused_settings: ClassVar[Sequence[str]] = ("key", "value", "timestamp")
    """The settings that a source must not have, if it takes records as they are."""
    has_columns: ClassVar[bool] = False
    """Whether it expects values with certain columns; see `misfits`."""
    names_topics: ClassVar[bool] = False
    """Whether its code says what it reads and writes, instead of `from` and `to`."""

    @property
    def keys(self) -> Sequence[ConfigKey]:
        """All keys of an entry of this type."""
        return (
            *(ID, WAS, TYPE, FROM, TO, ON_ERROR, MAX_DEAD_LETTERS),
            *(self.config, *self.own_keys),
        )

    @property
    def schema(self) -> Schema:
        """The JSON Schema of an entry of this type."""
        return {**map_schema(self.keys), "allOf": [LETTER_RULE, *self.rules]}

    def is_named(self, text: str) -> bool:
        """Return whether this is what `type: text` means."""
        return text == self.spec.type

    def read(self, fields: Fields, problems: Problems) -> S:
        """Return the spec of an entry; each mistake goes to `problems`."""
        raise NotImplementedError

    def within(self, views: Mapping[str, str], schemas: Mapping[str, str]) -> Kind[S]:
        """Return a kind whose entries may read views, and know the schemas of sources.

        Views are queries by name, in small letters.
        """
        return self

    def stages(self, fields: Fields, problems: Problems) -> tuple[Stage, ...]:
        """Return the stages that an entry is cut into; none if it makes what its spec says."""
        return ()

    def check(self, entry: Entry, spec: S, file: PipelineFile, problems: Problems) -> None:
        """Report what is wrong in this file, without looking at anything else."""
        if self.takes_records_as_they_are:
            refuse_settings(entry, entry.sources, file, problems, self.refused_settings)

    def check_code(
        self, entry: Entry, spec: S, file: PipelineFile, means: Means, problems: Problems
    ) -> None:
        """Report what is wrong with what it names outside of the file."""

    def misfits(self, spec: S, columns: Mapping[str, Any]) -> Sequence[str]:
        """Return what does not fit of values with these columns, see `columns_of_result`."""
        return ()

    def processors(
        self, entry: Entry, spec: S, file: PipelineFile, config: Config, problems: Problems
    ) -> list[PipelineProcessor]:
        """Return the processors that an entry makes; mistakes go to `problems`."""
        # At equal times, what comes first here is processed first.
        tables = self.table_inputs(spec)
        from_ = (*tables, *file.inputs(entry))
        to = tuple(target.id for target in entry.targets)
        return [
            PipelineProcessor(
                id=entry.id,
                spec=spec,
                to=to,
                from_=from_,
                on_error=entry.on_error,
                max_dead_letters_per_minute=entry.max_dead_letters_per_minute,
                topics={name: file.topics[name] for name in (*from_, *to) if name in file.topics},
                stores=logged(self.stores(spec)),
                sources={
                    name: file.source_specs[name] for name in from_ if name in file.source_specs
                },
                looked_up=tuple(name for name, each in tables.items() if not each.has_history),
            )
        ]

    def takes_inputs_as_they_come(self, spec: S) -> bool:
        """Return whether the order of records of different inputs does not matter."""
        return self.takes_records_as_they_are

    def table_inputs(self, spec: S) -> Mapping[str, TableInput]:
        """Return the inputs, by their names in `from_`, that its tasks keep as tables.

        The processor reads their stores; it does not get their records.
        """
        return {}

    def stores(self, spec: S) -> Sequence[StoreBuilder[Any, Any]]:
        """Return the stores of its tasks."""
        return ()

    def loaded_stores(self, spec: S, code: UserCode) -> Sequence[StoreBuilder[Any, Any]]:
        """Return the stores with their user code. Raises ConfigError if that is not found."""
        return self.stores(spec)

    def keeps(self, spec: S) -> Sequence[str]:
        """Return what its tasks keep, in words, if it can be said better than by store names."""
        return ()

    def holds_ms(self, spec: S) -> int:
        """Return how much later than a record a result may be sent, in event time."""
        return 0

    def serdes(self, spec: S) -> Serdes:
        """Return the serdes of its records."""
        return Serdes()

    def out_value(self, spec: S, target: str) -> AnySerde:
        """Return the serde of values that go to a target."""
        return self.serdes(spec).out_value

    def located(self, spec: S, settings: TableSettings) -> S:
        """Return the spec with the places on this host that it names. Raises ConfigError."""
        return spec

    def supplier(self, unit: Unit, spec: S, code: UserCode, queries: Queries | None) -> Supplier:
        """Return what makes its processors. Raises ConfigError if user code is not found."""
        raise NotImplementedError

    def follower(self, unit: Unit, spec: S, queries: Queries | None) -> Supplier | None:
        """Return what makes a second processor of its tasks, which gets what the first one sends.

        `None` if there is no second one.
        """
        return None

    def group(
        self,
        unit: Unit,
        spec: S,
        code: UserCode,
        queries: Queries | None,
        registry: RegistrySettings | None,
    ) -> NodeGroup:
        """Return its nodes: one processor between a source for each input and a sink for each `to`.

        It may have a `follower` ahead of the sinks. An input that is kept as a table has a
        processor of its own, which fills its store. Global stores hold the last record of each key.
        Raises ConfigError if user code is not found or fails, and TopologyError if it builds an
        invalid topology.
        """
        builder = TopologyBuilder()

        def made(serde: AnySerde, topic: str, part: Literal["key", "value"]) -> Serde[Any]:
            rows: Rows = part if self.takes_records_as_they_are else ""
            serde, subject = in_shadow(serde, topic, part, spec.job_topics)
            return serde_of(serde, subject, registry=registry, code=code, rows=rows)

        of_unit = self.serdes(spec)
        sources = []
        tables = self.table_inputs(spec)
        users: dict[str, list[str]] = {}
        for from_, topic in zip(unit.from_, unit.in_topics, strict=True):
            source = unit.sources.get(from_, SourceSpec())
            builder.add_source(
                f"{from_} of {unit.name}",
                topic,
                key_serde=made(source.key or of_unit.key, topic, "key"),
                value_serde=made(source.value or of_unit.value, topic, "value"),
                timestamp_extractor=extractor_of(source, from_bytes=self.takes_records_as_they_are),
                auto_offset_reset=source.auto_offset_reset,
                feedback=source.feedback,
            )
            if from_ not in tables:
                sources.append(f"{from_} of {unit.name}")
                continue
            filler = f"table of {from_} of {unit.name}"
            builder.add_processor(filler, tables[from_].supplier, f"{from_} of {unit.name}")
            for store_name in (tables[from_].store, tables[from_].of_changes):
                users[store_name] = [filler]
        supplier = self.supplier(unit, spec, code, queries)
        builder.add_processor(
            unit.name, supplier, sources, holds_ms=self.holds_ms(spec), looks_up=bool(tables)
        )
        last = unit.name
        if (follower := self.follower(unit, spec, queries)) is not None:
            last = f"follower of {unit.name}"
            builder.add_processor(last, follower, [unit.name])
        for store in self.loaded_stores(spec, code):
            builder.add_state_store(store, [*users.get(store.name, []), unit.name])
        for target, topic in zip(unit.to, unit.out_topics, strict=True):
            builder.add_sink(
                target,
                topic,
                [last],
                key_serde=made(of_unit.out_key, topic, "key"),
                value_serde=made(self.out_value(spec, target), topic, "value"),
            )
        _add_global_stores(builder, spec, made)
        (group,) = builder.build().groups
        return group


def _add_global_stores(
    builder: TopologyBuilder,
    spec: ProcessorSpec,
    made: Callable[[AnySerde, str, Literal["key", "value"]], Serde[Any]],
) -> None:
    """Add the stores of tables that every task has as a whole; `made` makes the serdes."""
    for name, topic in spec.global_stores.items():
        store = timestamped_key_value(name, serdes.bytes, serdes.bytes)
        supplier = partial(GlobalChanges if name in spec.change_stores else GlobalFiller, name)
        key, value = spec.global_serdes.get(name, (BYTES, BYTES))
        builder.add_global_store(
            store,
            f"{name}-source",
            topic,
            name,
            supplier,
            key_serde=made(key, topic, "key"),
            value_serde=made(value, topic, "value"),
        )


def logged(stores: Sequence[StoreBuilder[Any, Any]]) -> tuple[LoggedStore, ...]:
    """Return the stores that have state topics."""
    return tuple(
        LoggedStore(
            store.name, store.topic_config(), store.persistent, store.spreading, store.content
        )
        for store in stores
        if store.logged
    )


def read_arguments(pairs: Sequence[Pair], problems: Problems) -> dict[str, Any]:
    """Return the keyword arguments for user code."""
    arguments = {}
    for pair in pairs:
        if not pair.key.isidentifier():
            problems.add(pair.at, f'config: "{pair.key}" cannot be the name of an argument')
        check_value(pair.key, pair.value, problems)
        arguments[pair.key] = checked_plain(pair.value, problems)
    return arguments


def read_reference(fields: Fields, key: Text, problems: Problems) -> str:
    """Return a reference such as `package.module:name`, or "" if it is wrong."""
    reference = fields.text(key)
    wrong = form_problem(reference) if reference else None
    if wrong:
        problems.add(fields.at(key.name), wrong)
        return ""
    return reference


def refuse_config(type_: str, fields: Fields, problems: Problems) -> None:
    """Report a config of a type that takes none."""
    if fields.pairs(NO_CONFIG):
        problems.add(fields.at(NO_CONFIG.name), f"{type_} takes no config")


def require_allowed(code: str, entry: Entry, config: Config, problems: Problems) -> None:
    """Report code that config.yaml does not allow."""
    try:
        UserCode.of(config).require_allowed(code)
    except ConfigError as error:
        problems.add(entry.at, f'"{entry.id}": {error}')


def refuse_settings(
    entry: Entry,
    sources: Sequence[Target],
    file: PipelineFile,
    problems: Problems,
    names: Sequence[str],
) -> None:
    """Report sources with settings, of these names, that need more than bytes."""
    for source in sources:
        found = file.source_specs.get(source.id, SourceSpec())
        for name in names:
            if getattr(found, name) is not None:
                problems.add(
                    source.at,
                    f'{entry.spec.type} takes records as they are: source "{source.id}" must not '
                    f"say {name}",
                )
