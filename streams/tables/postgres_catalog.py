"""What PostgreSQL's catalog says about a table, compared with the columns of a processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.tables.columns import Columns
from kafka_pipeline.streams.tables.postgres_values import described_columns, quoted, type_of

_KINDS = {"r": "a table", "p": "a table", "v": "a view", "m": "a materialized view"}
_WRITABLE = ("r", "p")
_SAME = {"character varying": "text"}
"""Types that have the same values as another one."""

_TABLE = """
SELECT c.oid, c.relkind::text, c.relpersistence = 'u', c.relhasrules, row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, atthasdef OR attidentity <> '',
  attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# A row that is upserted is found by one of these: a partial index, one of expressions or one that
# is checked at the end of a transaction does not say which row it is.
_KEYS = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid
  AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A relation of the catalog: its number, and its kind as `pg_class.relkind` has it."""

    oid: int
    kind: str
    is_unlogged: bool
    has_rules: bool
    hides_rows: bool


def found_table(cursor: Any, schema: str, name: str) -> FoundTable | None:
    """Return the relation with this name; `None` if there is none."""
    cursor.execute(_TABLE, (schema, name))
    found = cursor.fetchone()
    return None if found is None else FoundTable(*found)


def create(cursor: Any, place: str, columns: Columns) -> None:
    """Create the table; `place` is its quoted name."""
    parts = [*described_columns(columns.schema)]
    if columns.key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, columns.key))})")
    cursor.execute(f"CREATE TABLE {place} ({', '.join(parts)})")


def add_columns(cursor: Any, place: str, table: FoundTable, columns: Columns) -> None:
    """Add the columns that the table lacks, as far as they may be null."""
    cursor.execute(_COLUMNS, (table.oid,))
    found = {name for name, *_ in cursor.fetchall()}
    lacking = [field for field in columns.schema if field.nullable and field.name not in found]
    if lacking:
        # Another task may be first.
        added = (f"ADD COLUMN IF NOT EXISTS {each}" for each in described_columns(lacking))
        cursor.execute(f"ALTER TABLE {place} {', '.join(added)}")


def problems_of(cursor: Any, table: FoundTable, columns: Columns) -> Iterator[str]:
    """Yield the parts of a sentence for what does not fit the columns of a processor."""
    if table.kind not in _WRITABLE:
        yield f"it is {_KINDS.get(table.kind, 'not a table')}, into which no rows are copied"
        return
    if table.is_unlogged:
        yield "it is UNLOGGED, so a crash of the server empties it"
    if table.has_rules and columns.key:
        yield "it has rules, which may leave upserts out"
    if table.hides_rows:
        yield "it has row-level security, which may hide rows from this user: it needs BYPASSRLS"
    cursor.execute(_COLUMNS, (table.oid,))
    found = {name: rest for name, *rest in cursor.fetchall()}
    for field in columns.schema:
        wanted = type_of(field.type)
        if field.name not in found:
            way_out = ", which `evolve: add` adds" if field.nullable else ""
            yield f'it lacks column "{field.name}", {wanted}{way_out}'
            continue
        type_, is_required, _, is_generated = found.pop(field.name)
        if _SAME.get(type_, type_) != wanted:
            yield f'column "{field.name}" is {type_}, but by the schema it is {wanted}'
        if is_required and field.nullable:
            yield f'column "{field.name}" is NOT NULL, but by the schema it may be null'
        if is_generated:
            yield f'column "{field.name}" is generated: leave it out of the schema'
    for name, (type_, is_required, has_default, _) in found.items():
        if is_required and not has_default:
            yield f'column "{name}", {type_}, is NOT NULL without a default, and not in the schema'
    if columns.key:
        cursor.execute(_KEYS, (table.oid,))
        if not any({*names} == {*columns.key} for (names,) in cursor.fetchall()):
            yield f"it has no PRIMARY KEY or UNIQUE constraint of ({', '.join(columns.key)})"


def lacking_rights(cursor: Any, table: FoundTable, *, upserts: bool) -> Iterator[str]:
    """Yield the parts of a sentence for the rights that the user lacks."""
    for right in ("INSERT", "SELECT", "UPDATE", "DELETE") if upserts else ("INSERT",):
        cursor.execute("SELECT has_table_privilege(%s::oid, %s)", (table.oid, right))
        if cursor.fetchone() != (True,):
            yield f"the user lacks the right {right}"
