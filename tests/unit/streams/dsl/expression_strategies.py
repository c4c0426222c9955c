"""Random column expressions and random records, with types that mostly fit."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from kafka_pipeline import Expression, coalesce, col, key, lit, struct, timestamp, value, when

Strategy = st.SearchStrategy[Any]

TEXT = st.text(
    st.sampled_from("aBz ß\u0130é\u1e9e\u2003\x1c\n\"\\\U0001f600'0"), max_size=5
) | st.text(max_size=5)
SMALL = st.integers(-3, 3)
INT = SMALL | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -(2**63)])
HUGE = st.integers(-(2**70), 2**70)
FLOAT = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 2.5, float(2**53), float("nan")])
TIME = st.integers(-(10**13), 10**13) | st.integers(-(10**15), 10**15)
ANY = st.none() | st.booleans() | INT | FLOAT | TEXT | st.lists(SMALL, max_size=2)

COLUMNS: dict[str, list[Strategy]] = {
    "i": [SMALL, INT, HUGE],
    "j": [SMALL, INT],
    "x": [FLOAT, st.floats(-100, 100), FLOAT | SMALL],
    "s": [st.text("abAB", max_size=4), TEXT],
    "b": [st.booleans()],
    "t": [TIME],
    "m": [ANY, st.none(), st.integers(0, 2)],
}
"""For each field, what it may hold within a batch; null and missing in any case."""


@st.composite
def records(draw: st.DrawFn) -> list[tuple[Any, Any, int]]:
    """Draw the key, the value and the timestamp of some records."""
    fields = {name: draw(st.sampled_from(choices)) for name, choices in COLUMNS.items()}
    nulls = draw(st.booleans())
    optional = {
        name: (each | st.none() if nulls else each)
        for name, each in {**fields, "n": st.fixed_dictionaries({}, optional=fields)}.items()
    }
    whole = (
        st.fixed_dictionaries({}, optional=optional) if nulls else st.fixed_dictionaries(optional)
    )
    values = whole | st.none() if nulls else whole
    row = st.tuples(st.text("ab", max_size=2), values, st.integers(0, 10**13))
    return draw(st.lists(row, min_size=1, max_size=6))


@st.composite
def expressions(draw: st.DrawFn, kind: str = "any", depth: int = 3) -> Expression:
    """Draw an expression that usually gives a number, a string or a bool."""
    if draw(st.integers(0, 30)) == 0:
        kind = "any"
    if kind == "any":
        kind = draw(st.sampled_from(["number", "string", "bool", "other"]))
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        kind_of: Strategy = _leaf(kind)
    else:
        kind_of = _MAKERS[kind](depth - 1)
    found: Expression = draw(kind_of)
    return found


@cache
def _leaf(kind: str) -> Strategy:
    leaves = {
        "number": ["i", "j", "x", "t", "n.i", "n.x", "m"],
        "string": ["s", "n.s"],
        "bool": ["b", "n.b"],
        "other": ["m", "n", "gone", "s.t"],
    }
    literals = {
        "number": SMALL | FLOAT | INT,
        "string": TEXT,
        "bool": st.booleans(),
        "other": st.none(),
    }
    more: dict[str, list[Expression]] = {
        "number": [timestamp()],
        "string": [key()],
        "bool": [value().is_null()],
        "other": [value(), value()["a.b"]],
    }
    return st.one_of(
        st.sampled_from(leaves[kind]).map(col),
        st.sampled_from(leaves[kind]).map(col),
        literals[kind].map(lit),
        st.sampled_from(more[kind]),
    )


@cache
def _number(depth: int) -> Strategy:
    number, text = expressions("number", depth), expressions("string", depth)
    pair = st.tuples(number, number)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: p[0] / p[1]),
        pair.map(lambda p: p[0] // p[1]),
        pair.map(lambda p: p[0] % p[1]),
        number.map(lambda e: -e),
        number.map(abs),
        text.map(lambda e: e.str.len_chars()),
        st.tuples(number, SMALL).map(lambda p: p[0].round(p[1])),
        number.map(lambda e: e.cast(int)),
        number.map(lambda e: e.cast(float)),
        text.map(lambda e: e.cast(int)),
        text.map(lambda e: e.str.to_datetime()),
        st.tuples(
            st.sampled_from([col("t"), timestamp(), col("i")]),
            st.sampled_from(["year", "month", "day", "weekday", "hour", "minute", "second"]),
        ).map(lambda p: getattr(p[0].dt, p[1])()),
        st.sampled_from([col("t"), col("i")]).map(lambda e: e.dt.truncate(3_600_000)),
        _of_any("number", depth),
    )


@cache
def _string(depth: int) -> Strategy:
    text, number = expressions("string", depth), expressions("number", depth)
    return st.one_of(
        st.tuples(text, text).map(lambda p: p[0] + p[1]),
        text.map(lambda e: e.str.to_uppercase()),
        text.map(lambda e: e.str.to_lowercase()),
        text.map(lambda e: e.str.strip_chars()),
        st.tuples(text, st.text("aB ß", min_size=1, max_size=2), TEXT).map(
            lambda p: p[0].str.replace_all(p[1], p[2], literal=True)
        ),
        st.tuples(text, st.text("aB ß", max_size=2), st.text("aB", max_size=2)).map(
            lambda p: p[0].str.replace_all(p[1], p[2])
        ),
        st.tuples(text, SMALL, st.integers(0, 3) | st.none()).map(
            lambda p: p[0].str.slice(p[1], p[2])
        ),
        number.map(lambda e: e.cast(str)),
        st.just(col("t").dt.to_string()),
        _of_any("string", depth),
    )


@cache
def _bool(depth: int) -> Strategy:
    number, text, boolean, any_ = (
        expressions(kind, depth) for kind in ("number", "string", "bool", "any")
    )
    same = st.one_of(st.tuples(number, number), st.tuples(text, text))
    return st.one_of(
        same.map(lambda p: p[0] < p[1]),
        same.map(lambda p: p[0] <= p[1]),
        same.map(lambda p: p[0] > p[1]),
        same.map(lambda p: p[0] >= p[1]),
        st.one_of(same, st.tuples(any_, any_)).map(lambda p: p[0] == p[1]),
        st.one_of(same, st.tuples(any_, any_)).map(lambda p: p[0] != p[1]),
        st.tuples(boolean, boolean).map(lambda p: p[0] & p[1]),
        st.tuples(boolean, boolean).map(lambda p: p[0] | p[1]),
        boolean.map(lambda e: ~e),
        any_.map(lambda e: e.is_null()),
        any_.map(lambda e: e.is_not_null()),
        st.tuples(number, st.lists(SMALL | HUGE, max_size=3)).map(lambda p: p[0].is_in(p[1])),
        st.tuples(text, st.lists(TEXT, max_size=3)).map(lambda p: p[0].is_in(p[1])),
        st.tuples(any_, st.lists(SMALL | TEXT | st.booleans(), max_size=2)).map(
            lambda p: p[0].is_in(p[1])
        ),
        st.tuples(text, TEXT).map(lambda p: p[0].str.starts_with(p[1])),
        st.tuples(text, TEXT).map(lambda p: p[0].str.ends_with(p[1])),
        st.tuples(text, TEXT).map(lambda p: p[0].str.contains(p[1], literal=True)),
        st.tuples(text, st.sampled_from(["^a|[bß]$", "a", "ß", ""])).map(
            lambda p: p[0].str.contains(p[1])
        ),
        _of_any("bool", depth),
    )


@cache
def _other(depth: int) -> Strategy:
    any_ = expressions("any", depth)
    return st.one_of(
        st.dictionaries(st.sampled_from("pqr"), any_, min_size=1).map(lambda d: struct(**d)),
        st.dictionaries(st.sampled_from("pqr"), any_, min_size=1).map(lambda d: struct(**d)["p"]),
    )


@cache
def _of_any(kind: str, depth: int) -> Strategy:
    """Draw what chooses among expressions of a kind."""
    same, boolean = expressions(kind, depth), expressions("bool", depth)
    return st.one_of(
        st.lists(same, min_size=1, max_size=3).map(lambda each: coalesce(*each)),
        st.tuples(boolean, same).map(lambda p: when(p[0]).then(p[1])),
        st.tuples(boolean, same, boolean, same, same).map(
            lambda p: when(p[0]).then(p[1]).when(p[2]).then(p[3]).otherwise(p[4])
        ),
    )


_MAKERS = {"number": _number, "string": _string, "bool": _bool, "other": _other}
