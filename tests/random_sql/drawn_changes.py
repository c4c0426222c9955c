"""Draws joins of two or three inputs, some of which have rows that are replaced and deleted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.random_sql.aggregates import Aggregates, Records
from tests.random_sql.drawn_joins import BOUNDS
from tests.random_sql.expressions import Drawing, Expression, column, kind_of
from tests.random_sql.queries import SEPARATOR, Item, Query, Shape, Window
from tests.random_sql.sources import GROUPABLE, columns, conditions, grouping, key_of_groups
from tests.random_sql.values import COLUMNS

_KINDS = ("", "INNER ", "LEFT ", "RIGHT ", "FULL ", "LEFT SEMI ", "LEFT ANTI ")
_TAKING_BACK = ("LEFT ", "RIGHT ", "FULL ", "LEFT ANTI ")
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
    settings, above, key = _drawn(chance, has_key=True)
    return Query(
        Shape.JOIN,
        items=columns(chance, above),
        key=_plain(f"concat_ws('{SEPARATOR}', {', '.join(key)})", "STRING"),
        where=conditions(chance, above) if chance.random() < 0.3 else (),
        **settings,
    )


def grouped_changes(chance: random.Random) -> Query:
    """Draw a SELECT that groups or numbers the rows of such a join."""
    is_best = chance.random() < 0.35
    settings, above, key = _drawn(chance, has_key=is_best)
    groups = grouping(chance, above, None)
    settings |= {"joined": ("o", "p"), "groups": groups}
    settings["where"] = conditions(chance, above) if chance.random() < 0.3 else ()
    if is_best:
        return Query(
            Shape.BEST,
            items=columns(chance, above, 3),
            order=(f"({above.any(1, GROUPABLE).sql}) {chance.choice(('', 'DESC'))}",),
            function=chance.choice(("row_number", "rank", "dense_rank")),
            naming=f"concat_ws('{SEPARATOR}', {', '.join(key)})",
            limit=chance.choice(("place = 1", "place <= 2", "place IN (1, 3)", "")),
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
        having=aggregates.having(),
        **settings,
    )


def _drawn(chance: random.Random, *, has_key: bool) -> tuple[dict[str, Any], Drawing, list[str]]:
    """Return what is joined, what can be read of it, and the parts of a key.

    Unless the query `has_key`, the engine makes one.
    """
    is_alone = chance.random() < 0.2
    topics = {"o": "orders", "p": "orders" if is_alone else "payments"}
    if chance.random() < 0.3:
        topics["q"] = chance.choice([*topics.values()])
    last = [*topics][-1]
    upserts = tuple(topic for topic in dict.fromkeys(topics.values()) if chance.random() < 0.6)
    schemas = dict[str, dict[str, str]]()
    for topic in dict.fromkeys(topics.values()):
        # Not called as a table.
        known = [name for name in COLUMNS if name not in topics]
        names = [chance.choice("stnmdeb"), *chance.sample(known, chance.randint(1, 4))]
        schemas[topic] = {name: COLUMNS[name] for name in COLUMNS if name in names}
    # What a SEMI JOIN looks at has no columns for the next join.
    hows = {each: chance.choice(_KINDS if each == last else _KINDS[:5]) for each in [*topics][1:]}
    # Results of these change even if no side does.
    may_be_plain = {*hows.values()} & {*_TAKING_BACK} and chance.random() < 0.5
    sides = dict[str, _Side]()
    for alias, topic in topics.items():
        is_last = alias == last and not any(each.changes for each in sides.values())
        must_group = is_last and topic not in upserts and not may_be_plain
        draw = _groups if must_group or chance.random() < 0.4 else _rows
        sides[alias] = draw(chance, topic, schemas[topic], changes=topic in upserts)
    source, how, equal, seen = f"{sides['o'].sql} o", "", list[tuple[str, str]](), ["o"]
    for alias in [*topics][1:]:
        how, before = hows[alias], {each: sides[each] for each in (*seen, alias)}
        if has_key and how == "FULL " and all(e.identity[0] == "g0" for e in before.values()):
            # A group of nulls on one side could have the key of one on the other side.
            how = "LEFT "
        pairs, on = _condition(chance, before, alias, may_have_bounds=len(topics) == 2)
        source += f" {how}JOIN {sides[alias].sql} {alias} ON {' AND '.join(on)}"
        equal += pairs
        seen += [] if how in ("LEFT SEMI ", "LEFT ANTI ") else [alias]
    above = Drawing(
        chance,
        {f"{a}.{name}": kind for a in seen for name, kind in sides[a].columns.items()},
    )
    key = [f"{alias}.{name}" for alias in seen for name in sides[alias].identity]
    columns_of = [each for pair in equal for each in pair]
    stays = len(topics) == 2 and all(
        each.removeprefix(f"{alias}.") in sides[alias].identity
        for alias in topics
        if sides[alias].changes
        for each in columns_of
        if _alias_of(each) == alias
    )
    if not stays or chance.random() < 0.5:
        key += [each for each in columns_of if _alias_of(each) in seen]
    parts = [f"coalesce(CAST({each} AS STRING), '-')" for each in dict.fromkeys(key)]
    settings: dict[str, Any] = {
        "source": source,
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
    having = "".join(f" HAVING {each}" for each in aggregates.having())
    where = f" WHERE {drawing.condition().sql}" if chance.random() < 0.3 else ""
    columns_of_groups = ", ".join([*given, *(each.sql for each in items)])
    by = ", ".join(chosen)
    found = {f"g{place}": drawing.columns[name] for place, name in enumerate(chosen)}
    identity = tuple(found)
    found |= {each.name: kind_of(each.expression.kind) for each in items}
    sql = f"(SELECT {columns_of_groups} FROM {topic}{where} GROUP BY {by}{having})"
    return _Side(sql, found, identity, changes=True)


def _condition(
    chance: random.Random, sides: dict[str, _Side], right: str, *, may_have_bounds: bool
) -> tuple[list[tuple[str, str]], list[str]]:
    """Draw what is equal in a join of the last one of some sides, and all conditions."""
    left = chance.choice([alias for alias in sides if alias != right])
    pairs = [_equality(chance, sides, left, right) for _ in range(chance.choice((1, 1, 2)))]
    on = [" = ".join(pair) for pair in pairs]
    has_times = all("key" in side.columns for side in sides.values())
    has_bounds = may_have_bounds and has_times and any(each.changes for each in sides.values())
    if has_bounds and chance.random() < 0.2:
        pairs, on = [("o.key", "p.key")], ["o.key = p.key", chance.choice(BOUNDS)]
    if chance.random() < 0.3:
        columns_of = {f"{a}.{n}": kind for a, e in sides.items() for n, kind in e.columns.items()}
        on.append(f"({Drawing(chance, columns_of).condition().sql})")
    return pairs, on


def _equality(
    chance: random.Random, sides: dict[str, _Side], first: str, second: str
) -> tuple[str, str]:
    """Draw two columns that are equal for some pairs."""
    pairs = [
        (f"{first}.{left}", f"{second}.{right}")
        for left, kind in sides[first].columns.items()
        for right, other in sides[second].columns.items()
        if kind == other and kind in GROUPABLE
    ]
    if pairs:
        return chance.choice(pairs)
    left, right = (
        chance.choice(
            [f"{a}.{name}" for name, kind in sides[a].columns.items() if kind in GROUPABLE]
        )
        for a in (first, second)
    )
    return f"CAST({left} AS STRING)", f"CAST({right} AS STRING)"


def _alias_of(column: str) -> str:
    """Return the side of a column that rows meet by."""
    return column.removeprefix("CAST(")[0]


def _plain(text: str, kind: str) -> Expression:
    return column(text.replace("{", "{{").replace("}", "}}"), kind)
