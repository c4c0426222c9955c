"""What becomes of the state of a query with GROUP BY when the query changes: compares contents."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from kafka_pipeline.common.pipelines.specs import GroupingSpec, WindowSpec
from kafka_pipeline.streams.sql.spec import StateChange
from kafka_pipeline.streams.sql.state_shape import ROUTES, limit_of, window_content

_MEANINGS = {
    "groups": "the types of the grouping columns",
    "window": "the window (size, slide and first start, or the gap of sessions, in µs; or the "
    "period of a calendar)",
    "functions": "the aggregate functions",
    "best": "the rows of row_number() (the types and directions of ORDER BY)",
    "ranked": "the rows of rank() or dense_rank() (their limit, the types and directions of ORDER "
    "BY)",
    "spark": "the version of Spark",
    "route": "how records of a group meet",
    "changelog": "the newest record of each key, as the query reads it",
}
_PLURALS = ("groups", "functions", "best", "ranked")
_TIMES = ("max(timestamp) ", "first(timestamp) ")
"""How the functions begin that the engine adds for the time of a group."""

DISTINCT = "DISTINCT "
"""How the arguments of a function begin whose values a store keeps."""

HAD_DISTINCT = "had_distinct"
"""In a content: the state has values of functions with DISTINCT that the query no longer has."""

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBER = re.compile(rf"decimal\((\d+),(\d+)\)|\b(?:{'|'.join(_WHOLE)})\b(?!:)")
"""A type that can become a wider one; the name of a field comes with a colon."""

Form = Literal["cast", "row", "object"]
"""How values are kept: in columns that are cast, in the bytes of `RowCodec`, or in Spark's own."""

_MOST_DIGITS = {"cast": 38, "row": 38, "object": 18}
"""The digits up to which decimals of one scale have the same bytes, or can be cast."""


def state_change(kept: str, wanted: str) -> StateChange:
    """Compare the content of a state with that of a query.

    The limit of best rows may change: those that are kept are the first ones of any limit. A type
    may become wider, and aggregate functions may come and go next to others.
    """
    before, now = json.loads(kept), json.loads(wanted)
    sources = _sources(before, now)
    changed = [name for name in _MEANINGS if name != "functions" and _differs(name, before, now)]
    if changed or sources is None:
        names = changed if sources is not None else [*changed, "functions"]
        return StateChange(
            "; ".join(_difference(name, before, now) for name in _MEANINGS if name in names)
        )
    if wrong := _of_distinct(before, now, sources):
        return StateChange(wrong)
    found, labels = _functions(now), _functions(before)
    return StateChange(
        converted=[
            *_of_functions(before, now, sources),
            *_of_types(before, now, sources),
            *_of_limits(limit_of(kept), limit_of(wanted)),
        ],
        remarks=[
            f"{found[at]} goes on with what was kept for {labels[source]}"
            for at, source in enumerate(sources)
            if source is not None
            and {"expressions"} <= before.keys() & now.keys()
            and not now.get("best")
            and found[at] != labels[source]
        ],
        sources=sources,
    )


def declared_difference(kept: str, grouping: GroupingSpec) -> str:
    """Return what pipeline.yaml alone shows to differ from a content that was kept; "" if nothing.

    The rest, such as the types of groups, only Spark knows.
    """
    before = json.loads(kept)
    if "keeps" in before:
        return "it was kept for a join of two inputs, and not for groups"
    if "over" in before:
        return "it was kept for OVER (…), and not for groups"
    now = {"window": window_content(grouping.window), "route": ROUTES[grouping.stage]}
    former = {name: before.get(name) for name in now}
    match former["window"], grouping.window:
        # Spark may count the first start otherwise.
        case [int(), int() as slide, int() as start], WindowSpec():
            former["window"] = [*former["window"][:2], start % slide]
            now["window"] = [*now["window"][:2], now["window"][2] % slide]
    return state_change(json.dumps(former), json.dumps(now)).different


def is_wider(before: str, now: str, form: Form) -> bool:
    """Whether all values of a type are values of another, in the form in which they are kept.

    Types are equal or wider in the names that Spark gives them, such as `struct<a:int>`.
    """
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", now):
        return False
    pairs = zip(_NUMBER.finditer(before), _NUMBER.finditer(now), strict=True)
    return all(_holds(old, new, form) for old, new in pairs)


def is_wider_function(before: str, now: str) -> bool:
    """Whether the buffers of a function can be those of the same one with wider types."""
    is_object = " in (binary" in before or before.startswith("approx_count_distinct(")
    if is_object and not is_wider(before, now, "object"):
        return False
    # The values that a function with DISTINCT has seen are found by their bytes.
    arguments = [each.partition(") in (")[0] for each in (before, now)]
    is_found = f"({DISTINCT}" not in before or is_wider(arguments[0], arguments[1], "row")
    return is_found and is_wider(before, now, "cast")


def widened(pairs: Collection[tuple[str, str]]) -> list[str]:
    """Return sentences about types that have become wider, of those before and now."""
    return [
        f"{old} becomes {new}: values stay as they are"
        for old, new in dict.fromkeys(pairs)
        if old != new
    ]


def _holds(before: re.Match[str], now: re.Match[str], form: Form) -> bool:
    if before[0] == now[0]:
        return True
    if before[1] is None or now[1] is None:
        both_whole = before[1] is None and now[1] is None
        return form == "cast" and both_whole and _WHOLE.index(before[0]) < _WHOLE.index(now[0])
    return before[2] == now[2] and int(before[1]) <= int(now[1]) <= _MOST_DIGITS[form]


def _differs(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    kept, wanted = before.get(name), now.get(name)
    if name == "best" and kept and wanted:
        kept, wanted = kept[1:], wanted[1:]
    if name not in ("groups", "best") or kept is None or wanted is None:
        return bool(kept != wanted)
    form: Form = "row" if name == "groups" else "object"
    return len(kept) != len(wanted) or not all(
        is_wider(*types, form) for types in zip(kept, wanted, strict=True)
    )


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    kept, wanted = before.get(name), now.get(name)
    if name == "best":
        # Not the limit, which may change.
        kept, wanted = (each and (each[1:] or ["no ORDER BY"]) for each in (kept, wanted))
    if name == "changelog":
        return _of_changelog(kept is not None, wanted is not None)
    return (
        f"{_MEANINGS[name]} {'were' if name in _PLURALS else 'was'} {_said(kept)}, now "
        f"{_said(wanted)}"
    )


def _of_changelog(was_one: bool, is_one: bool) -> str:
    """Say what is another where a query reads a changelog, or has read one."""
    if was_one and is_one:
        return (
            "over updates, the text of the query, the schema, the types of a stage and the time "
            "zone must stay: rows that were counted under the former ones could not be taken out "
            "again"
        )
    forms = ("each record as one more row", "the newest record of each key")
    return f"it was kept for a query that read {forms[was_one]}, which now reads {forms[is_one]}"


def _said(part: Any) -> str:
    match part:
        case None | []:
            return "none"
        case list():
            return ", ".join(map(str, part))
    return str(part)


# Aggregate functions


def _sources(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[int | None] | None:
    """Return for each function of a query the index of the one that was kept, if there is one.

    Returns `None` if the state cannot be used, or if it is not clear which function is which.
    """
    kept, wanted = before.get("functions") or [], now.get("functions") or []
    names, new_names = before.get("expressions", []), now.get("expressions", [])
    found = {at: names.index(name) for at, name in enumerate(new_names) if name in names}
    if kept == wanted:
        is_same = all(at == source for at, source in found.items())
        every = [*range(len(kept))]
        return every if is_same and _have_units({at: at for at in every}, before, now) else None
    old = [at for at in range(len(kept)) if at not in found.values()]
    new = [at for at in range(len(wanted)) if at not in found]
    for type_ in dict.fromkeys(kept[at] for at in old):
        of_old = [at for at in old if kept[at] == type_]
        of_new = [at for at in new if wanted[at] == type_]
        if of_new and len(of_old) != len(of_new):
            return None
        found |= zip(of_new, of_old, strict=False)
    stay = [(kept[source], wanted[at]) for at, source in found.items()]
    added = [at for at in range(len(wanted)) if at not in found]
    removed = len(kept) > len(found)
    if not all(is_wider_function(*types) for types in stay) or not _have_units(found, before, now):
        return None
    if removed and ("buffers" not in before or (added and not _keeps_more_than_time(stay))):
        return None
    if not _can_start(added, before, now):
        return None
    return [found.get(at) for at in range(len(wanted))]


def _of_distinct(
    before: Mapping[str, Any], now: Mapping[str, Any], sources: Sequence[int | None]
) -> str:
    """Say why functions with DISTINCT cannot go on with the values that were seen; "" if they can.

    They share the values, so either all of them stay, or all come or go.
    """
    kept, wanted = (
        [at for at, type_ in enumerate(each.get("functions") or []) if f"({DISTINCT}" in type_]
        for each in (before, now)
    )
    names, new_names = (
        ", ".join(_functions(content)[at] for at in found) or "none"
        for content, found in ((before, kept), (now, wanted))
    )
    if not wanted:
        return ""
    if HAD_DISTINCT in before:
        return (
            f"{new_names} cannot begin again: the state still has the values that functions with "
            "DISTINCT of a former query have seen"
        )
    is_same = before.get("distinct") == now.get("distinct")
    if kept and not (is_same and [sources[at] for at in wanted] == kept):
        return (
            f"the functions with DISTINCT were {names}, now {new_names}: they share the values "
            "that they have seen, so none of them can come, go or change places"
        )
    return ""


def _have_units(
    found: Mapping[int, int], before: Mapping[str, Any], now: Mapping[str, Any]
) -> bool:
    """Whether functions that take decimals as whole numbers have the same unit."""
    former, wanted = before.get("unscaled"), now.get("unscaled")
    return (
        former is None
        or wanted is None
        or all(is_wider(former[source], wanted[at], "row") for at, source in found.items())
    )


def _keeps_more_than_time(stay: Collection[tuple[str, str]]) -> bool:
    return any(not type_.startswith(_TIMES) for type_, _ in stay)


def _can_start(added: Collection[int], before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether functions can start in groups that are kept.

    The time of a session that gets no more records would be missing. A function that is called as
    another one was before would be taken for it.
    """
    types, names = now.get("functions", []), now.get("expressions")
    labels = before.get("labels") or ()
    has_sessions = (now.get("window") or [""])[0] == "sessions"
    return not any(
        (has_sessions and types[at].startswith(_TIMES))
        or (names is not None and names[at] in labels)
        for at in added
    )


def _functions(content: Mapping[str, Any]) -> list[str]:
    """Return the functions of a content in words."""
    found: list[str] = content.get("expressions") or content.get("functions") or []
    return found


def _of_functions(
    before: Mapping[str, Any], now: Mapping[str, Any], sources: Sequence[int | None]
) -> list[str]:
    """Return sentences about functions that start now, and about those that are not kept."""
    kept, wanted = _functions(before), _functions(now)
    starts = [
        f"{wanted[at]} starts now in groups that are kept: there, it covers only later records"
        for at, source in enumerate(sources)
        if source is None
    ]
    ends = [
        f"{name} is no longer kept: a group loses it when it changes next"
        for at, name in enumerate(kept)
        if at not in sources
    ]
    return [*starts, *ends]


def _of_types(
    before: Mapping[str, Any], now: Mapping[str, Any], sources: Sequence[int | None]
) -> list[str]:
    """Return sentences about types that have become wider."""
    former, wanted = before.get("unscaled"), now.get("unscaled")
    both = [(at, source) for at, source in enumerate(sources) if source is not None]
    pairs = [
        *zip(before.get("groups") or (), now.get("groups") or (), strict=True),
        *zip((before.get("best") or ())[1:], (now.get("best") or ())[1:], strict=True),
        *((before["functions"][source], now["functions"][at]) for at, source in both),
        *((former[source], wanted[at]) for at, source in both if former and wanted),
    ]
    return widened(pairs)


def _of_limits(before: int, now: int) -> list[str]:
    if before == now:
        return []
    words = f"{before} best rows of a group were kept, and {now} will be: "
    if now > before:
        return [
            f"{words}rows that were left out do not come back, so the new places fill with those "
            "of later records"
        ]
    return [f"{words}a group is cut when it changes next"]
