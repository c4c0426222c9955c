"""Draws joins of two inputs of which one or both have rows that are replaced and deleted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.random_sql.aggregates import Aggregates, Records
from tests.random_sql.expressions import Drawing, Expression, column, kind_of
from tests.random_sql.queries import SEPARATOR, Item, Query, Shape, Window
from tests.random_sql.sources import GROUPABLE, columns, conditions, grouping, key_of_groups
from tests.random_sql.values import COLUMNS

_KINDS = ("", "INNER ", "LEFT ", "RIGHT ", "FULL ", "LEFT SEMI ", "LEFT ANTI ")
_SIZES = ("'1 hour'", "'3 hours', '1 hour'", "'10 minutes'")
_RECORD = ("partition", "offset")
"""What tells records apart that replace nothing."""


@dataclass(frozen=True)
class _Side:
    """A side of a join: what is in FROM, its columns, and those that tell its rows apart."""

    sql: str
    columns: dict[str, str]
    identity: tuple[str, ...]
    changes: bool


def joined_changes(chance: random.Random) -> Query:
    """Draw a join of upserts, of groups that change, and of records."""
    settings, above, key = _drawn(chance)
    return Query(
        Shape.JOIN,
        items=columns(chance, above),
        key=_plain(f"concat_ws('{SEPARATOR}', {', '.join(key)})", "STRING"),
        where=conditions(chance, above) if chance.random() < 0.3 else (),
        **settings,
    )


def grouped_changes(chance: random.Random) -> Query:
    """Draw a SELECT that groups or numbers the rows of such a join."""
    settings, above, _ = _drawn(chance)
    groups = grouping(chance, above, None)
    settings |= {"joined": ("o", "p"), "groups": groups}
    settings["where"] = conditions(chance, above) if chance.random() < 0.3 else ()
    if chance.random() < 0.25:
        return Query(
            Shape.BEST,
            items=columns(chance, above, 3),
            order=(f"({above.any(1, GROUPABLE).sql}) {chance.choice(('', 'DESC'))}",),
            limit=chance.choice(("place = 1", "place <= 2", "place IN (1, 3)")),
            **settings,
        )
    window = None
    # Groups have no time.
    timed = [name for name in above.columns if name in ("o.key", "p.key")]
    if timed and chance.random() < 0.3:
        time = timed[0].replace("key", "timestamp")
        window = Window(f"window({time}, {chance.choice(_SIZES)})")
    aggregates = Aggregates(chance, above, records=Records.JOINED_CHANGES)
    return Query(
        Shape.GROUPS,
        items=tuple(Item(f"v{place}", aggregates.one()) for place in range(chance.randint(1, 3))),
        key=key_of_groups(groups, window),
        window=window,
        having=chance.choice(((), (), ("count(*) > 1",), ("count(*) % 2 = 1",))),
        **settings,
    )


def _drawn(chance: random.Random) -> tuple[dict[str, Any], Drawing, list[str]]:
    """Return what is joined, what can be read of it, and the parts of a key."""
    is_alone = chance.random() < 0.2
    topics = {"o": "orders", "p": "orders" if is_alone else "payments"}
    upserts = tuple(topic for topic in dict.fromkeys(topics.values()) if chance.random() < 0.6)
    schemas = dict[str, dict[str, str]]()
    for topic in dict.fromkeys(topics.values()):
        names = [chance.choice("stnmdeb"), *chance.sample([*COLUMNS], chance.randint(1, 4))]
        schemas[topic] = {name: COLUMNS[name] for name in COLUMNS if name in names}
    sides = dict[str, _Side]()
    for alias, topic in topics.items():
        is_last = alias == "p" and not any(each.changes for each in sides.values())
        must_group = is_last and topic not in upserts
        if must_group or chance.random() < 0.4:
            sides[alias] = _groups(chance, topic, schemas[topic], changes=topic in upserts)
        else:
            sides[alias] = _rows(chance, topic, schemas[topic], changes=topic in upserts)
    how = chance.choice(_KINDS)
    if how == "FULL " and all(each.identity[0] == "g0" for each in sides.values()):
        # A group of nulls on one side could have the key of one on the other side.
        how = "LEFT "
    equal = [_equality(chance, sides) for _ in range(chance.choice((1, 1, 2)))]
    on = [f"{left} = {right}" for left, right in equal]
    both = {f"{a}.{name}": kind for a, side in sides.items() for name, kind in side.columns.items()}
    if chance.random() < 0.3:
        on.append(f"({Drawing(chance, both).condition().sql})")
    seen = ("o",) if how in ("LEFT SEMI ", "LEFT ANTI ") else ("o", "p")
    above = Drawing(chance, {name: kind for name, kind in both.items() if name[0] in seen})
    key = [f"{alias}.{name}" for alias in seen for name in sides[alias].identity]
    stays = all(
        pair[at].removeprefix(f"{alias}.") in sides[alias].identity
        for at, alias in enumerate(topics)
        if sides[alias].changes
        for pair in equal
    )
    if not stays or chance.random() < 0.5:
        key += [pair["op".index(alias)] for alias in seen for pair in equal]
    parts = [f"coalesce(CAST({each} AS STRING), '-')" for each in dict.fromkeys(key)]
    settings: dict[str, Any] = {
        "source": f"{sides['o'].sql} o {how}JOIN {sides['p'].sql} p ON {' AND '.join(on)}",
        "inputs": schemas,
        "how": how,
        "ttl": chance.choice(("none", "20000 d")),
        "upserts": upserts,
        "changes": True,
    }
    return settings, above, parts


def _rows(chance: random.Random, topic: str, schema: dict[str, str], *, changes: bool) -> _Side:
    """Draw the records of an input, some of which a condition may leave out."""
    found = {name: kind_of(type_) for name, type_ in schema.items()}
    sql = topic
    if chance.random() < 0.3:
        condition = Drawing(chance, found).condition().sql
        sql = f"(SELECT * FROM {topic} WHERE {condition})"
    return _Side(sql, {**found, "key": "STRING"}, ("key",) if changes else _RECORD, changes)


def _groups(chance: random.Random, topic: str, schema: dict[str, str], *, changes: bool) -> _Side:
    """Draw groups of an input, which change as records come."""
    drawing = Drawing(chance, {**{n: kind_of(t) for n, t in schema.items()}, "key": "STRING"})
    # A record without a key is in no group of keys, unlike for the judge.
    names = [
        name
        for name, kind in drawing.columns.items()
        if kind in GROUPABLE and (changes or name != "key")
    ]
    chosen = chance.sample(names, min(len(names), chance.choice((1, 1, 2))))
    aggregates = Aggregates(chance, drawing, records=Records.CHANGES)
    items = [Item(f"a{place}", aggregates.one()) for place in range(chance.randint(1, 2))]
    given = [f"{name} AS g{place}" for place, name in enumerate(chosen)]
    having = chance.choice(("", "", " HAVING count(*) > 1", " HAVING count(*) % 2 = 1"))
    where = f" WHERE {drawing.condition().sql}" if chance.random() < 0.3 else ""
    columns_of_groups = ", ".join([*given, *(each.sql for each in items)])
    by = ", ".join(chosen)
    found = {f"g{place}": drawing.columns[name] for place, name in enumerate(chosen)}
    identity = tuple(found)
    found |= {each.name: kind_of(each.expression.kind) for each in items}
    sql = f"(SELECT {columns_of_groups} FROM {topic}{where} GROUP BY {by}{having})"
    return _Side(sql, found, identity, changes=True)


def _equality(chance: random.Random, sides: dict[str, _Side]) -> tuple[str, str]:
    """Draw two columns that are equal for some pairs."""
    pairs = [
        (f"o.{left}", f"p.{right}")
        for left, kind in sides["o"].columns.items()
        for right, other in sides["p"].columns.items()
        if kind == other and kind in GROUPABLE
    ]
    if pairs:
        return chance.choice(pairs)
    left, right = (
        chance.choice([name for name, kind in side.columns.items() if kind in GROUPABLE])
        for side in sides.values()
    )
    return f"CAST(o.{left} AS STRING)", f"CAST(p.{right} AS STRING)"


def _plain(text: str, kind: str) -> Expression:
    return column(text.replace("{", "{{").replace("}", "}}"), kind)
