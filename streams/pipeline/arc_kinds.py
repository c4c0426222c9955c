"""What the arcs of a pipeline carry: records, or results that replace former ones of their key.

A query with groups that sends a result with each change sends upserts. A query that aggregates
these is one over the newest result of each key: over a table, of which the arc is the changelog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import ArcKind, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    GROUPS_TOPIC,
    JOIN_TOPIC,
    CalendarSpec,
    CountSpec,
    ForwardSpec,
    GroupingSpec,
    JoinSide,
    ProcessorSpec,
    SessionSpec,
    SparkSpec,
    SqlSpec,
    TableSinkSpec,
    TopologySpec,
)
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.schema_uses import place_of_key

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.join_key import MadeKey
    from kafka_pipeline.streams.sql.result_key import SharedKey


@dataclass(frozen=True, slots=True)
class Arc:
    """What a processor or a source gives.

    `origin` is the entry, or the source, whose results these are, and `problem` says why they are
    not upserts, after the name of the one that `changed` them last. `query` is the query that gave
    them, if nothing in between has changed them, and none of them is a deletion.
    """

    kind: ArcKind = ArcKind.RECORDS
    origin: str = ""
    changed: str = ""
    problem: str = ""
    query: SqlSpec | None = None


_RECORDS = Arc()
_COUNTED = (
    "would count each of them as one more record. Group them in a query of type: sql, which takes "
    "former ones out"
)
_WRONGLY_DELETED = "The key of {} is deleted, and with it the result of another group that has it"
_GIVEN = "would give a result for each of them, which nothing takes back"


class ArcKinds:
    """The kinds of all arcs of a pipeline, and the queries that read one as a changelog.

    What classes, functions and topologies give is unknown, and taken for records; `changelog: true`
    of a source says that it is upserts.
    """

    def __init__(self, file: PipelineFile) -> None:
        self._file = file
        self._entries = {entry.id: entry for entry in file.entries}
        self._gives: dict[str, Arc] = {}
        self._assumed: dict[str, Arc] = {}

    def given(self, entry: Entry) -> Arc:
        """Return what an entry gives."""
        if entry.id not in self._gives and not self._assumed:
            for ahead in self._unknown_ahead(entry):
                self._find(ahead)
        return self._find(entry)

    def _unknown_ahead(self, entry: Entry) -> list[Entry]:
        """Return the entries ahead of one that are not known yet, senders first.

        To find these by recursion would be too deep for a line of hundreds of entries.
        """
        found: list[Entry] = []
        seen = {entry.id, *self._gives}
        path = [(entry, self._senders(entry, with_feedback=False))]
        while path:
            here, senders = path[-1]
            sender = next((each for each in senders if each.id not in seen), None)
            if sender is None:
                found.append(here)
                path.pop()
            else:
                seen.add(sender.id)
                path.append((sender, self._senders(sender, with_feedback=False)))
        return found[:-1]

    def _find(self, entry: Entry) -> Arc:
        if entry.id in self._gives:
            return self._gives[entry.id]
        if entry.id in self._assumed:
            return self._assumed[entry.id]
        # Arcs form no cycle, but topics may; what comes back by one is taken for records. That may
        # be wrong for the other entries of the cycle, so only the first answer is kept.
        is_first = not self._assumed
        self._assumed[entry.id] = _RECORDS
        found = self._assumed[entry.id] = self._given(entry)
        if is_first:
            self._gives[entry.id] = found
            self._assumed.clear()
        return found

    def processor(self, entry: Entry, processor: PipelineProcessor) -> PipelineProcessor:
        """Return a processor of an entry with the kinds of what it gives; see `gives` there."""
        spec, kind = processor.spec, self.given(entry).kind
        if kind is ArcKind.RECORDS:
            return processor
        late_to = None
        if isinstance(spec, SparkSpec) and spec.grouping is not None:
            late_to = spec.grouping.late_to
        elif isinstance(spec, SqlSpec) and (kept := spec.join or spec.over) is not None:
            late_to = kept.late_to
        internal: Collection[str] = (GROUPS_TOPIC, JOIN_TOPIC)
        if isinstance(spec, TopologySpec):
            internal = spec.serdes
        plain = {*internal, late_to}
        return replace(processor, gives={name: kind for name in processor.to if name not in plain})

    def read(self, entry: Entry) -> Arc:
        """Return what an entry reads; several inputs are upserts only if all are one arc."""
        return self._read(entry, self._file.inputs(entry))

    def sides(self, entry: Entry) -> dict[JoinSide, Arc]:
        """Return the sides of a regular join whose input does not have plain records."""
        spec = entry.spec
        if not isinstance(spec, SqlSpec) or spec.join is None or spec.join.regular is None:
            return {}
        inputs = {name.lower(): name for name in self._file.inputs(entry)}
        names: dict[JoinSide, str] = {"left": spec.join.left, "right": spec.join.right}
        found = {
            side: self._read(entry, [inputs[name]])
            for side, name in names.items()
            if name in inputs
        }
        return {side: arc for side, arc in found.items() if arc.kind is not ArcKind.RECORDS}

    def join_key_problem(self, entry: Entry) -> str:
        """Return what the key of a join over upserts lacks; "" if it tells its results apart."""
        spec = entry.spec
        assert isinstance(spec, SqlSpec), "it joins"
        assert spec.join is not None, "it joins"
        from kafka_pipeline.streams.sql.join_key import join_key_problem

        return join_key_problem(spec, self._identities(entry))

    def made_join_key(self, entry: Entry) -> MadeKey | None:
        """Return a key for a stage that joins, if it needs one and may get it.

        Those need one that take results back, and those whose rows are in the key of another.
        """
        if not self._needs_key(entry):
            return None
        from kafka_pipeline.streams.sql.join_key import made_key

        assert isinstance(entry.spec, SqlSpec), "it joins"
        return made_key(entry.spec, self._identities(entry))

    def _needs_key(self, entry: Entry) -> bool:
        spec = entry.spec
        if not isinstance(spec, SqlSpec) or spec.join is None or not spec.is_inner:
            return False
        if self._identities(entry) or _takes_back(spec):
            return True
        return any(
            isinstance(other.spec, SqlSpec)
            and entry.id in other.spec.stages
            and self._needs_key(other)
            for other in self._file.entries
        )

    def _identities(self, entry: Entry) -> dict[JoinSide, Collection[str] | None]:
        """Return the columns that tell the rows of each changing side of a join apart."""
        return {side: self._identity(arc) for side, arc in self.sides(entry).items()}

    def _identity(self, arc: Arc) -> Collection[str] | None:
        """Return the columns that tell the rows of upserts apart; see `identity_columns`."""
        spec = self._entries[arc.changed].spec if arc.changed in self._entries else None
        if not isinstance(spec, SqlSpec) or not spec.is_inner or spec.grouping is None:
            return ("key",)
        from kafka_pipeline.streams.sql.result_key import identity_columns

        return identity_columns(spec.query, _tables(spec))

    def _read(self, entry: Entry, names: Collection[str]) -> Arc:
        arcs = [arc for name in names for arc in self._of_input(name)]
        found = next((arc for arc in arcs if arc.kind is not ArcKind.RECORDS), _RECORDS)
        if found.kind is ArcKind.RECORDS or len(arcs) == 1:
            return found
        return replace(
            found,
            kind=ArcKind.UPDATES,
            changed=entry.id,
            problem="reads more than one input, and a key of one may be that of another",
        )

    def reads_changelog(self, entry: Entry) -> bool:
        """Whether an entry is a query with groups over upserts, which it reads as a table.

        Updates do no harm to a maximum of what only grows.
        """
        spec, arc = entry.spec, self.read(entry)
        if not isinstance(spec, SqlSpec) or spec.grouping is None or arc.kind is ArcKind.RECORDS:
            return False
        # sqlglot takes a quarter of a second to load.
        from kafka_pipeline.streams.sql.update_text import read_updates

        reader = read_updates(spec.query, _tables(spec))
        return arc.query is None or not reader.may_follow(
            read_updates(arc.query.query, _tables(arc.query))
        )

    def shared_key(self, entry: Entry, key: Collection[str] = ("key",)) -> SharedKey | None:
        """Return how a query may delete the result of one group with that of another one.

        `key` are the columns of its results by which these are replaced and deleted. Results that
        only another stage reads have no key in a topic or in a table.
        """
        spec = entry.spec
        if not isinstance(spec, SqlSpec) or spec.grouping is None or spec.is_inner:
            return None
        deletes = self.reads_changelog(entry)
        if spec.grouping.emit != "on_update" or not (deletes or _replaces(spec)):
            return None
        from kafka_pipeline.streams.sql.result_key import shared_key

        return shared_key(spec.query, _tables(spec), deletes=deletes, key=[*key])

    def passing(self, readers: Collection[Entry]) -> set[str]:
        """Return the ids of queries without groups that give upserts to one of some readers."""
        found = set[str]()
        waiting = [*readers]
        while waiting:
            for sender in self._senders(waiting.pop()):
                spec = sender.spec
                is_new = sender.id not in found and self.read(sender).kind is ArcKind.UPSERTS
                if is_new and isinstance(spec, ForwardSpec):
                    waiting.append(sender)
                elif is_new and isinstance(spec, SqlSpec) and _is_by_record(spec):
                    found.add(sender.id)
                    waiting.append(sender)
        return found

    def _given(self, entry: Entry) -> Arc:
        spec = entry.spec
        if isinstance(spec, ForwardSpec):
            return self.read(entry)
        if not isinstance(spec, SparkSpec):
            return _RECORDS
        if spec.grouping is not None:
            return self._of_groups(entry, spec)
        if isinstance(spec, SqlSpec) and (spec.join is not None or spec.over is not None):
            return self._of_join(entry, spec)
        read = self.read(entry)
        if read.kind is ArcKind.RECORDS:
            return _RECORDS
        if read.kind is ArcKind.UPDATES:
            return replace(read, query=None)
        problem = "is a function, whose keys are unknown"
        if isinstance(spec, SqlSpec):
            problem = _problem(spec, deletes=False)
        kind = ArcKind.UPDATES if problem else ArcKind.UPSERTS
        return replace(read, kind=kind, changed=entry.id, problem=problem, query=None)

    def _of_join(self, entry: Entry, spec: SqlSpec) -> Arc:
        """Return what a join gives: upserts if it takes results back.

        A key that two of its rows have would make them one row of a table. In a processor, the key
        is chosen to be that of a row; in a part of a query, all rows count. Where sides change, the
        key must tell rows apart, or an error says so.
        """
        changing = self.sides(entry)
        if not changing and not _takes_back(spec):
            return _RECORDS
        wrong = self.join_key_problem(entry) if spec.is_inner and not changing else ""
        if not wrong:
            return Arc(ArcKind.UPSERTS, entry.id, entry.id)
        problem = "takes back what a row without a partner gave, and two rows may have one key: it "
        problem += wrong
        return Arc(ArcKind.UPDATES, entry.id, entry.id, problem)

    def _of_groups(self, entry: Entry, spec: SparkSpec) -> Arc:
        if not isinstance(spec, SqlSpec) or spec.grouping is None:
            return _RECORDS
        deletes = self.reads_changelog(entry)
        if spec.grouping.emit != "on_update" or not (deletes or _replaces(spec)):
            return _RECORDS
        problem = _problem(spec, deletes=deletes)
        kind = ArcKind.UPDATES if problem else ArcKind.UPSERTS
        # A session that grows gets another key, and its former result is deleted.
        deletes |= isinstance(spec.grouping.window, SessionSpec)
        return Arc(kind, entry.id, entry.id, problem, None if deletes else spec)

    def _of_input(self, name: str) -> list[Arc]:
        """Return what comes by an input: one arc for each processor that writes it."""
        if name in self._entries:
            return [self.given(self._entries[name])]
        declared = self._file.source_specs.get(name)
        if declared is not None and declared.is_table:
            return [Arc(ArcKind.UPSERTS, name, name)]
        return [self.given(entry) for entry in self._writers(name)] or [_RECORDS]

    def _senders(self, entry: Entry, *, with_feedback: bool = True) -> Iterator[Entry]:
        """Yield the entries whose results an entry reads, also those that come by a topic."""
        for name in self._file.inputs(entry):
            source = self._file.source_specs.get(name)
            if name in self._entries:
                yield self._entries[name]
            elif with_feedback or source is None or not source.feedback:
                yield from self._writers(name)

    def _writers(self, source: str) -> list[Entry]:
        """Return the entries that write the topic of a source."""
        topic = self._file.sources.get(source)
        return [
            entry
            for entry in self._file.entries
            if topic
            and any(self._file.sinks.get(target.id, "") == topic for target in entry.targets)
        ]


def with_changelogs(file: PipelineFile, kinds: ArcKinds, problems: Problems) -> PipelineFile:
    """Return a pipeline whose queries say that they read a changelog; `kinds` are those of it.

    These are the queries with groups over upserts, the regular joins of them, and the queries
    without groups that lead to these. Reports each one that cannot, those that would take updates
    for rows of their own, and those whose key does not tell apart what is deleted.
    """
    for entry in file.entries:
        _check_updates(entry, kinds, problems)
    wrong_keys = _wrong_keys(file, kinds, problems)
    readers = []
    for entry in filter(kinds.reads_changelog, file.entries):
        arc = kinds.read(entry)
        if arc.kind is ArcKind.UPDATES and arc.origin in wrong_keys:
            continue  # what is wrong is said of the query that gives the key
        if wrong := _refusal(entry, arc):
            problems.add(entry.at, wrong)
        else:
            readers.append(entry)
    refused = set[str]()
    for entry in file.entries:
        if not (sides := kinds.sides(entry)) or any(
            arc.origin in refused or (arc.kind is ArcKind.UPDATES and arc.origin in wrong_keys)
            for arc in sides.values()
        ):
            continue
        if wrong := _join_refusal(entry, sides, kinds):
            refused.add(entry.id)
            problems.add(entry.at, f'"{entry.id}": {wrong}')
        else:
            readers.append(entry)
    changed = {entry.id for entry in readers} | kinds.passing(readers)
    return replace(
        file,
        entries=[
            replace(entry, spec=_over_changelog(entry.spec, kinds.sides(entry)))
            if entry.id in changed and isinstance(entry.spec, SqlSpec)
            else entry
            for entry in file.entries
        ],
    )


def _wrong_keys(file: PipelineFile, kinds: ArcKinds, problems: Problems) -> set[str]:
    """Report queries with a key that several groups may have, and tables by such columns.

    Returns the ids of the queries.
    """
    found = set[str]()
    for entry in file.entries:
        if (shared := kinds.shared_key(entry)) is not None:
            found.add(entry.id)
            problems.add(
                place_of_key(file, entry, ("query",)),
                f'"{entry.id}": the query groups by {" and ".join(shared.missing)}, which its '
                f"column key does not have. {_WRONGLY_DELETED.format(shared.deleted)}. Give a key "
                "that is made of all grouping columns, such as "
                f"concat_ws('|', {', '.join(shared.all_columns)}), or none",
            )
    entries = {entry.id: entry for entry in file.entries if entry.id not in found}
    for entry in file.entries:
        spec, arc = entry.spec, kinds.read(entry)
        if not isinstance(spec, TableSinkSpec) or spec.mode != "upsert":
            continue
        if arc.origin not in entries or arc.changed != arc.origin:
            continue
        of_record = spec.record_columns.get("key")
        key = ["key" if name == of_record else name.lower() for name in spec.key]
        if (shared := kinds.shared_key(entries[arc.origin], key)) is not None:
            problems.add(
                place_of_key(file, entry, ("key",)),
                f'"{entry.id}": "{arc.origin}" groups by {" and ".join(shared.missing)}, which '
                f"the key of the table does not have. {_WRONGLY_DELETED.format(shared.deleted)}. "
                "Add the columns to the key of the table, and to that of the records",
            )
    return found


def _over_changelog(spec: SqlSpec, sides: Collection[JoinSide]) -> SqlSpec:
    """Return a query over a changelog, where values for DISTINCT are kept as those for others.

    Of a join, `sides` are those that change.
    """
    grouping = spec.grouping
    if spec.join is not None:
        return structs.replace(spec, join=structs.replace(spec.join, changing=(*sides,)))
    if grouping is not None:
        from kafka_pipeline.streams.sql.update_text import read_updates

        keeps_values = read_updates(spec.query, _tables(spec)).keeps_values
        # A row can leave any window, so none of them closes: they are columns like others.
        grouping = structs.replace(
            grouping, window=None, grace_ms=0, keeps_distinct=False, keeps_values=keeps_values
        )
    return structs.replace(spec, changelog=True, grouping=grouping)


def _refusal(entry: Entry, arc: Arc) -> str:
    """Return why a query with groups cannot read an arc as a changelog; "" if it can."""
    spec = entry.spec
    assert isinstance(spec, SqlSpec), "it groups upserts"
    assert spec.grouping is not None, "it groups upserts"
    once = f'let "{arc.origin}" give each result once, by a window and emit: on_close'
    if arc.kind is ArcKind.UPDATES and arc.origin in spec.stages and arc.origin == arc.changed:
        reason = f': "{arc.changed}" {arc.problem}{_key_of_stage(arc)}'
    elif arc.kind is ArcKind.UPDATES:
        reason = (
            f', and nothing tells which former one each of them replaces: "{arc.changed}" '
            f'{arc.problem}. Let "{arc.origin}" give a key that is made of its grouping columns, '
            f"and pass it on as it is, or {once}"
        )
    elif wrong := _window_problem(spec.grouping):
        reason = f", which replace former ones at any time. {wrong}, or {once}"
    elif spec.tables or spec.topic_tables:
        reason = (
            ". A former one is taken out of its group again, and the rows of a table may be others "
            f'by then: join the table in a query without GROUP BY before "{entry.id}"'
        )
    else:
        return ""
    return f'"{entry.id}": its records are updates of "{arc.origin}"{reason}'


def _key_of_stage(arc: Arc) -> str:
    """Return which key a stage must give that is read within its query."""
    from kafka_pipeline.streams.sql.result_key import OWN_KEY

    if arc.problem == OWN_KEY:
        return ""
    return f". Let that part of the query give a key that identifies its rows{_key_columns(arc)}"


def _key_columns(arc: Arc) -> str:
    """Return what the key of an arc's rows may be made of, in words."""
    from kafka_pipeline.streams.sql.query_text import read_groups

    groups = None if arc.query is None else read_groups(arc.query.query, _tables(arc.query))
    if groups is None or not groups.is_numbered:
        return ", such as one of all grouping columns"
    return (
        ": one of all columns of PARTITION BY, and of the place, unless a condition in that part, "
        "such as place = 1, keeps one row of each"
    )


def _window_problem(grouping: GroupingSpec) -> str:
    """Return why windows cannot be grouping columns of a table's rows, and what to do."""
    if isinstance(grouping.window, SessionSpec):
        return "Rows cannot be taken out of sessions, which merge: group by window(…)"
    if isinstance(grouping.window, CalendarSpec):
        return (
            "Rows are not taken out of calendar_window(…): group by a day of the zone, such as "
            "date_trunc('DAY', from_utc_timestamp(timestamp, 'Europe/Berlin'))"
        )
    if grouping.window is not None and grouping.emit == "on_close":
        return "So no window of them is ever complete: write emit: on_update"
    if grouping.late_to is not None:
        return "So no record is too late for its window: leave late_to out"
    return ""


def _join_refusal(entry: Entry, sides: Mapping[JoinSide, Arc], kinds: ArcKinds) -> str:
    """Return why a join cannot read upserts, after its name; "" if it can."""
    spec = entry.spec
    assert isinstance(spec, SqlSpec), "it joins"
    for arc in sides.values():
        if arc.kind is ArcKind.UPDATES:
            return (
                f'it joins updates of "{arc.origin}", and nothing tells which former one each of '
                f'them replaces: "{arc.changed}" {arc.problem}. Let "{arc.origin}" give a key that '
                f"identifies its rows{_key_columns(arc)}, and pass it on as it is"
            )
    origins = " and ".join(dict.fromkeys(f'"{arc.origin}"' for arc in sides.values()))
    if spec.tables or spec.topic_tables:
        return (
            f"it joins updates of {origins}. A former row is taken out again, and the rows of a "
            "table may be others by then: join the table in a query before or after it"
        )
    wrong = kinds.join_key_problem(entry)
    if not wrong:
        return ""
    return (
        f"it joins updates of {origins}, and takes back what former rows gave, by its key. It "
        f"{wrong}"
    )


def _check_updates(entry: Entry, kinds: ArcKinds, problems: Problems) -> None:
    """Report a processor that would take each update as a row of its own, and never back."""
    if not (harm := _harm(entry.spec)):
        return
    arc = kinds.read(entry)
    if arc.kind is not ArcKind.RECORDS:
        problems.add(
            entry.at,
            f'"{entry.id}": it reads updates of "{arc.origin}", and {harm}, or let "{arc.origin}" '
            "give each result once, by a window and emit: on_close",
        )


def _harm(spec: ProcessorSpec) -> str:
    """Return what updates would do to a processor, and what to do about it; "" if nothing."""
    if isinstance(spec, CountSpec):
        return f"type: count {_COUNTED}"
    if isinstance(spec, SparkSpec) and spec.grouping is not None:
        if not isinstance(spec, SqlSpec):
            return f"group_by of a function {_COUNTED}"
    elif isinstance(spec, SqlSpec) and spec.join is not None and spec.join.regular is None:
        return (
            f"a join with bounds of time {_GIVEN}. Say how long rows are kept, with ttl: none or "
            "ttl: 7 d: then it does, and the bounds are conditions like others. Or read its topic "
            "as a table"
        )
    elif isinstance(spec, SqlSpec) and spec.over is not None:
        return f"OVER (…) {_GIVEN}. Read its topic as a table"
    return ""


def _replaces(spec: SqlSpec) -> bool:
    """Whether later results of groups of records replace former ones: not of SELECT DISTINCT."""
    from kafka_pipeline.streams.sql.update_text import read_updates

    return read_updates(spec.query, _tables(spec)).replaces


def _takes_back(spec: SqlSpec) -> bool:
    """Whether a join takes back what it gave to a row that had no partner."""
    join = spec.join
    if join is None or join.regular is None:
        return False
    return bool(join.keeps) or join.regular.only == "anti"


def _is_by_record(spec: SqlSpec) -> bool:
    return spec.grouping is None and spec.join is None


def _problem(spec: SqlSpec, *, deletes: bool) -> str:
    from kafka_pipeline.streams.sql.result_key import upsert_problem

    return upsert_problem(spec.query, _tables(spec), deletes=deletes, is_inner=spec.is_inner)


def _tables(spec: SqlSpec) -> list[str]:
    return [*spec.tables, *spec.topic_tables]
