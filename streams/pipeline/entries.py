"""The entries of pipeline.yaml, one by one; how they fit together is checked elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.fields import Fields
from common.names import name_problem
from common.processors import BUILT_IN, ON_SPARK, SINK, SOURCE, OnError, ProcessorType
from common.suggest import one_of
from common.yaml_positions import (
    Items,
    Located,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    describe,
    plain,
)
from streams.engine.user_code import form_problem
from streams.pipeline.spark import KEYS as SPARK_KEYS
from streams.pipeline.spark import read_function, read_spark
from streams.pipeline.stores import SERDES, read_stores
from streams.pipeline.user_class import ASYNC_KEYS, read_async

_KEYS = ("id", "type", "from", "to", "on_error", "config")
_RUN_KEYS = ("max_task_idle_ms", "buffered_records_per_partition", "max_process_time_ms")
_CLASS_KEYS = ("stores", "serdes", *ASYNC_KEYS, *_RUN_KEYS)
_TOPOLOGY_KEYS = ("id", "type", "builder", "on_error", "config", *_RUN_KEYS)
_SERDE_KEYS = ("key", "value", "out_key", "out_value")
_NO_LIMIT = 2**31 - 1
_OR_A_CLASS = ", or package.module:Class"
_SUM_DEFAULT = 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Target:
    """One id in a `to`, and its place."""

    id: str
    at: Located


@dataclass(frozen=True, slots=True)
class Entry:
    """One processor as the file defines it; its targets might not exist.

    `targets` is empty if the entry has no readable `to`. `sources` has the names in `from`.
    """

    id: str
    at: Located
    type: ProcessorType
    targets: tuple[Target, ...]
    on_error: OnError
    config: Mapping[str, Any]
    sources: tuple[Target, ...] = ()
    code: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def read_entries(root: Value, problems: Problems) -> list[Entry]:
    """Return the entries that have an id, each id once, in file order."""
    if not isinstance(root, Items):
        problems.add(root, f"must be a list of processors (`- id: …`), got {describe(root)}")
        return []
    if not root.items:
        problems.add(root, "the pipeline is empty: it needs at least one processor")
    entries: dict[str, Entry] = {}
    for item in root.items:
        entry = _entry(item, problems)
        if entry is None:
            continue
        first = entries.setdefault(entry.id, entry)
        if first is not entry:
            problems.add(
                entry.at, f'id "{entry.id}" is given twice (first at line {first.at.line})'
            )
    return list(entries.values())


def _entry(item: Value, problems: Problems) -> Entry | None:
    if not isinstance(item, Map):
        problems.add(item, f"a processor must be a map with id, type and to, got {describe(item)}")
        return None
    type_, code = _type_and_code(item, problems)
    fields = Fields(item.pairs, problems, at=item, known=_known(type_))
    id_ = fields.text("id", about="the processor's name")
    _check_id(id_, fields.at("id"), problems)
    on_error = fields.choice("on_error", tuple(OnError), default=OnError.FAIL)
    targets: tuple[Target, ...] = ()
    sources: tuple[Target, ...] = ()
    if type_ is ProcessorType.TOPOLOGY:
        code = fields.text("builder", about="package.module:function")
        wrong = form_problem(code) if code else None
        if wrong:
            problems.add(fields.at("builder"), wrong)
            code = ""
    else:
        targets = _targets(fields, "to", problems)
        if fields.get("from") is not None:
            sources = _targets(fields, "from", problems)
    # If the type is wrong, it is unknown which parameters are right.
    known_type = fields.get("type") is not None and not problems.found_at(fields.at("type"))
    config = _parameters(type_, fields, problems) if known_type else {}
    if type_ is ProcessorType.DATAFRAME:
        code = read_function(fields, problems)
    options = {} if type_ in BUILT_IN else _options(type_, fields, problems)
    if not id_ or id_ in (SOURCE, SINK):
        return None
    return Entry(id_, fields.at("id"), type_, targets, on_error, config, sources, code, options)


def _known(type_: ProcessorType) -> tuple[str, ...]:
    """Return the keys that a processor may have."""
    if type_ in BUILT_IN:
        return _KEYS
    if type_ in ON_SPARK:
        return (*_KEYS, *SPARK_KEYS[type_], "max_process_time_ms")
    return _TOPOLOGY_KEYS if type_ is ProcessorType.TOPOLOGY else (*_KEYS, *_CLASS_KEYS)


def _type_and_code(item: Map, problems: Problems) -> tuple[ProcessorType, str]:
    """Return the type; for a user's class, with the reference to it."""
    for pair in item.pairs:
        value = pair.value
        if pair.key == "type" and isinstance(value, Scalar) and isinstance(value.value, str):
            if ":" in value.value:
                wrong = form_problem(value.value)
                if wrong:
                    problems.add(value, wrong)
                return ProcessorType.CLASS, value.value
            if value.value == ProcessorType.TOPOLOGY:
                return ProcessorType.TOPOLOGY, ""
    names = (*BUILT_IN, *ON_SPARK, ProcessorType.TOPOLOGY)
    types = Fields([p for p in item.pairs if p.key == "type"], problems, at=item, known=("type",))
    about = f"{one_of(names)}{_OR_A_CLASS}"
    return types.choice("type", names, default=None, about=about, or_=_OR_A_CLASS), ""


def _options(type_: ProcessorType, fields: Fields, problems: Problems) -> dict[str, Any]:
    """Return the options for running user code, as JSON values."""
    limit: dict[str, Any] = {}
    if fields.get("max_process_time_ms") is not None:
        limit["max_process_time_ms"] = fields.number("max_process_time_ms", low=1, high=_NO_LIMIT)
    if type_ in ON_SPARK:
        return read_spark(type_, fields, problems) | limit
    options: dict[str, Any] = {
        **limit,
        "max_task_idle_ms": fields.number("max_task_idle_ms", low=-1, high=_NO_LIMIT, default=0),
        "buffered_records": fields.number(
            "buffered_records_per_partition", low=1, high=_NO_LIMIT, default=1000
        ),
    }
    if type_ is ProcessorType.TOPOLOGY:
        return options
    if asynchronous := read_async(fields, problems):
        options["async"] = asynchronous
    options["stores"] = read_stores(fields.get("stores"), problems)
    serdes = fields.submap("serdes", known=_SERDE_KEYS)
    for name in ("key", "value"):
        options[name] = serdes.choice(name, SERDES, default="bytes")
        options[f"out_{name}"] = serdes.choice(f"out_{name}", SERDES, default=options[name])
    return options


def _check_id(id_: str, at: Located, problems: Problems) -> None:
    if id_ in (SOURCE, SINK):
        problems.add(at, f'id "{id_}" is reserved for the {id_} topic: choose another one')
    elif id_ and (wrong := name_problem(id_)):
        problems.add(at, f'id "{id_}" {wrong}')


def _targets(fields: Fields, key: str, problems: Problems) -> tuple[Target, ...]:
    what, end = ("processor", SINK) if key == "to" else ("source", SOURCE)
    names = "processor ids" if key == "to" else "names of sources"
    listed = fields.items(key, about=f'a list of {names}, or of "{end}"')
    if listed is None:
        return ()
    if not listed.items:
        problems.add(listed, f'{key} is empty: name at least one {what}, or "{end}"')
    targets: dict[str, Target] = {}
    for item in listed.items:
        if problems.found_at(item):
            continue
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            problems.add(item, f"{key} must hold {names}, got {describe(item)}")
        elif item.value in targets:
            one = "target" if key == "to" else "source"
            problems.add(item, f'{one} "{item.value}" is given twice')
        else:
            targets[item.value] = Target(item.value, item)
    return tuple(targets.values())


def _parameters(type_: ProcessorType, fields: Fields, problems: Problems) -> dict[str, Any]:
    if type_ is ProcessorType.SUM:
        config = fields.submap("config", known=("constant",))
        constant = config.number("constant", low=_INT64_MIN, high=_INT64_MAX, default=_SUM_DEFAULT)
        return {"constant": constant}
    if type_ not in (*BUILT_IN, ProcessorType.SQL):
        return _free_config(fields.pairs("config"), problems)
    if fields.pairs("config"):
        problems.add(fields.at("config"), f"{type_} takes no config")
    return {}


def _free_config(pairs: Iterable[Pair], problems: Problems) -> dict[str, Any]:
    """Return the keyword arguments for user code."""
    config = {}
    for pair in pairs:
        if not pair.key.isidentifier():
            problems.add(pair.at, f'config: "{pair.key}" cannot be the name of an argument')
        config[pair.key] = plain(pair.value)
    return config
