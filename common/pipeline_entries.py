"""The entries of pipeline.yaml, one by one; how they fit together is checked elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.fields import Fields
from common.nodes import SINK, SOURCE, OnError, ProcessorType
from common.suggest import one_of
from common.topics import name_problem
from common.yaml_positions import (
    Items,
    Located,
    Map,
    Problems,
    Scalar,
    Value,
    describe,
)

_KEYS = ("id", "type", "to", "on_error", "config")
_SUM_DEFAULT = 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Target:
    """One id in a `to`, and its place."""

    id: str
    at: Located


@dataclass(frozen=True, slots=True)
class Entry:
    """One processor as the file gives it; its targets may not exist.

    `targets` is empty if the entry has no readable `to`.
    """

    id: str
    at: Located
    type: ProcessorType
    targets: tuple[Target, ...]
    on_error: OnError
    config: Mapping[str, Any]


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
    fields = Fields(item.pairs, problems, at=item, known=_KEYS)
    id_ = fields.text("id", about="the processor's name")
    _check_id(id_, fields.at("id"), problems)
    types = tuple(ProcessorType)
    type_ = fields.choice("type", types, default=None, about=one_of(types))
    targets = _targets(fields, problems)
    on_error = fields.choice("on_error", tuple(OnError), default=OnError.FAIL)
    # A wrong type says nothing about which parameters it would take.
    known_type = fields.get("type") is not None and not problems.found_at(fields.at("type"))
    config = _parameters(type_, fields, problems) if known_type else {}
    if not id_ or id_ in (SOURCE, SINK):
        return None
    return Entry(id_, fields.at("id"), type_, targets, on_error, config)


def _check_id(id_: str, at: Located, problems: Problems) -> None:
    if id_ in (SOURCE, SINK):
        problems.add(at, f'id "{id_}" is reserved for the {id_} topic: choose another one')
    elif id_ and (wrong := name_problem(id_)):
        problems.add(at, f'id "{id_}" {wrong}')


def _targets(fields: Fields, problems: Problems) -> tuple[Target, ...]:
    to = fields.items("to", about='a list of processor ids, or of "sink"')
    if to is None:
        return ()
    if not to.items:
        problems.add(to, 'to is empty: name at least one processor, or "sink"')
    targets: dict[str, Target] = {}
    for item in to.items:
        if problems.found_at(item):
            continue
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            problems.add(item, f"to must hold processor ids, got {describe(item)}")
        elif item.value in targets:
            problems.add(item, f'target "{item.value}" is given twice')
        else:
            targets[item.value] = Target(item.value, item)
    return tuple(targets.values())


def _parameters(type_: ProcessorType, fields: Fields, problems: Problems) -> dict[str, Any]:
    if type_ is ProcessorType.SUM:
        config = fields.submap("config", known=("constant",))
        constant = config.number("constant", low=_INT64_MIN, high=_INT64_MAX, default=_SUM_DEFAULT)
        return {"constant": constant}
    if fields.pairs("config"):
        problems.add(fields.at("config"), f"{type_} takes no config")
    return {}
