"""Processors that are users' classes: `type: package.module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec.structs import asdict

from kafka_pipeline.common.code.user_code import CODE_PATTERN, UserCode, form_problem, is_dotted
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Free, Number, Section
from kafka_pipeline.common.config.yaml_positions import Problems, Scalar, describe
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import (
    AsyncSpec,
    ClassSpec,
    FieldTime,
    Serdes,
    SourceSpec,
)
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.kind import (
    ARGUMENTS,
    BUFFERED_RECORDS,
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    NO_LIMIT,
    TYPE,
    Kind,
    Means,
    Unit,
    read_arguments,
    require_allowed,
)
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import SerdeKey, has_fields, read_serde
from kafka_pipeline.streams.pipeline.kinds.sources import NEEDS_JSON
from kafka_pipeline.streams.pipeline.kinds.stores import (
    STORES,
    loaded,
    read_stores,
    store_of,
)
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.stores import StoreBuilder

_KEY = SerdeKey(name="key", doc="of keys that come in", default=BYTES)
_VALUE = SerdeKey(name="value", doc="of values that come in", default=BYTES)
_OUT_KEY = SerdeKey(name="out_key", doc="of keys that go out; default: `key`")
_OUT_VALUE = SerdeKey(name="out_value", doc="of values that go out; default: `value`")
_SERDES = Section(
    name="serdes",
    doc="how keys and values are written in bytes",
    keys=(_KEY, _VALUE, _OUT_KEY, _OUT_VALUE),
)
_MAX_IN_FLIGHT = Number(
    name="max_in_flight",
    doc="how many calls an `AsyncProcessor` makes at a time; default: what the class says",
    low=1,
    high=NO_LIMIT,
)
_TIMEOUT = Number(
    name="timeout_ms",
    doc="how long a call of an `AsyncProcessor` may take; default: what the class says",
    low=1,
    high=NO_LIMIT,
)
_ORDERED = Free(
    name="ordered",
    doc="the order of an `AsyncProcessor`'s results: that of its input, or that of each key; "
    "default: what the class says",
    of={"enum": [True, "key"]},
    says="`true` or `key`",
)


class UserClass(Kind[ClassSpec]):
    """`type: package.module:Class`."""

    spec = ClassSpec
    doc = "a class of yours"
    type_pattern = CODE_PATTERN
    type_form = "package.module:Class"
    runs_user_processors = True
    config = ARGUMENTS
    own_keys = (
        STORES,
        _SERDES,
        _MAX_IN_FLIGHT,
        _TIMEOUT,
        _ORDERED,
        MAX_TASK_IDLE,
        BUFFERED_RECORDS,
        MAX_PROCESS_TIME,
    )

    def is_named(self, text: str) -> bool:
        return ":" in text or is_dotted(text)

    def read(self, fields: Fields, problems: Problems) -> ClassSpec:
        code = fields.text(TYPE)
        wrong = form_problem(code)
        if wrong:
            problems.add(fields.at(TYPE.name), wrong)
        return ClassSpec(
            code="" if wrong else code,
            config=read_arguments(fields.pairs(ARGUMENTS), problems),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            buffered_records=fields.number(BUFFERED_RECORDS),
            asynchronous=_read_async(fields, problems),
            stores=read_stores(fields.get(STORES.name), problems),
            serdes=_read_serdes(fields, problems),
        )

    def check(self, entry: Entry, spec: ClassSpec, file: PipelineFile, problems: Problems) -> None:
        """Report sources whose time is in a field, if the class reads values without fields."""
        for source in entry.sources:
            found = file.source_specs.get(source.id, SourceSpec())
            in_field = isinstance(found.timestamp, FieldTime)
            if in_field and found.value is None and not has_fields(spec.serdes.value):
                problems.add(
                    source.at, f'source "{source.id}": {NEEDS_JSON}, not {spec.serdes.value}'
                )

    def check_code(
        self,
        entry: Entry,
        spec: ClassSpec,
        file: PipelineFile,
        means: Means,
        problems: Problems,
    ) -> None:
        if not spec.code:
            return
        if not means.imports_classes:
            for reference in (spec.code, *(store.upgrade for store in spec.stores)):
                if reference:
                    require_allowed(reference, entry, means.config, problems)
            return
        try:
            class_supplier(UserCode.of(means.config), spec)
            self.loaded_stores(spec, UserCode.of(means.config))
        except ConfigError as error:
            problems.add(entry.at, f'"{entry.id}": {error}')

    def stores(self, spec: ClassSpec) -> Sequence[StoreBuilder[Any, Any]]:
        return [store_of(store) for store in spec.stores]

    def loaded_stores(self, spec: ClassSpec, code: UserCode) -> Sequence[StoreBuilder[Any, Any]]:
        return [loaded(store, code) for store in self.stores(spec)]

    def serdes(self, spec: ClassSpec) -> Serdes:
        return spec.serdes

    def supplier(
        self, unit: Unit, spec: ClassSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        return class_supplier(code, spec)


def class_supplier(code: UserCode, spec: ClassSpec) -> Supplier:
    """Return a supplier of a class's processors; the class takes the config as keyword arguments.

    Raises ConfigError if the class is not found, is not a processor, does not accept the config, or
    is not an `AsyncProcessor` but has settings for one.
    """
    found = code.load(spec.code)
    kinds = Processor | BatchProcessor | AsyncProcessor
    if not (isinstance(found, type) and issubclass(found, kinds)):
        raise ConfigError(
            f"{spec.code} is not a subclass of Processor, BatchProcessor or AsyncProcessor"
        )
    given = _given(spec.asynchronous)
    if given and not issubclass(found, AsyncProcessor):
        keys = ", ".join(given)
        raise ConfigError(f"{spec.code} is no AsyncProcessor, and only one can have {keys}")
    _check_config(found, spec.code, spec.config)
    return partial(_make, found, spec.config, spec.asynchronous)


def _given(settings: AsyncSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if value is not None}


def _read_serdes(fields: Fields, problems: Problems) -> Serdes:
    given = fields.submap(_SERDES)
    key = read_serde(given, _KEY, problems) or BYTES
    value = read_serde(given, _VALUE, problems) or BYTES
    return Serdes(
        key=key,
        value=value,
        out_key=read_serde(given, _OUT_KEY, problems) or key,
        out_value=read_serde(given, _OUT_VALUE, problems) or value,
    )


def _read_async(fields: Fields, problems: Problems) -> AsyncSpec:
    ordered: Literal[True, "key"] | None = None
    given = fields.get(_ORDERED.name)
    if given is not None:
        value = given.value if isinstance(given, Scalar) else None
        if value is True:
            ordered = True
        elif value == "key":
            ordered = "key"
        else:
            problems.add(given, f"ordered must be true or key, got {describe(given)}")
    return AsyncSpec(
        max_in_flight=fields.number_or_none(_MAX_IN_FLIGHT),
        timeout_ms=fields.number_or_none(_TIMEOUT),
        ordered=ordered,
    )


def _make(
    made: type[Processor | BatchProcessor | AsyncProcessor],
    config: Mapping[str, Any],
    settings: AsyncSpec,
) -> Processor | BatchProcessor | AsyncProcessor:
    processor = made(**config)
    for name, value in _given(settings).items():
        setattr(processor, name, value)
    return processor


def _check_config(found: type, reference: str, config: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(found)
    except ValueError:
        return  # it inherits from a class in C, whose arguments are unknown
    try:
        signature.bind(**config)
    except TypeError as error:
        raise ConfigError(f"{reference} does not take this config: {error}") from None
