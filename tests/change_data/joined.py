"""Two tables of a PostgreSQL, what a connector gives of their changes, and how they end.

`python -m tests.change_data.joined` records it for tests without a database.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tests.change_data.connector import Connector, Given, compile_connector, of_postgres
from tests.postgres import installed, running

RECORDED = Path(__file__).with_name("joined.json.gz")

_SETTINGS = {
    "table.include.list": "public.orders,public.customers",
    "provide.transaction.metadata": "false",
    "converter.schemas.enable": "false",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
}
_TABLES = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, item text, "
    "price numeric(10, 2), placed timestamptz)",
    "INSERT INTO customers VALUES (7, 'Ann'), (8, 'Bob')",
    "INSERT INTO orders VALUES (1, 7, 'pen', 1.10, '2026-03-01 10:00:00.123456+02'), "
    "(2, 8, 'ink', 12345678.90, NULL)",
)
_CHANGES = (
    "INSERT INTO orders VALUES (3, 9, 'of nobody yet', NULL, now()), (4, NULL, 'ä\"', 0, now())",
    "UPDATE customers SET name = 'Anna' WHERE id = 7",
    "INSERT INTO customers VALUES (9, 'Carl'), (10, NULL)",
    "UPDATE orders SET customer = 7, price = price + 0.01 WHERE id = 2",
    "DELETE FROM customers WHERE id = 8",
    "UPDATE orders SET customer = 10 WHERE id = 1",
    "INSERT INTO orders VALUES (5, 9, 'soon gone', 1, now())",
    "DELETE FROM orders WHERE id = 5",
    "UPDATE orders SET id = 30 WHERE id = 3",
    "DELETE FROM customers WHERE id = 7",
    "INSERT INTO customers VALUES (7, 'Ann again')",
)
_SIZE = 4 + 2 + 1 + 2 + 1 + 2 + 1 + 1 + 2 + 3 + 2 + 1
"""How many records that makes: a deletion has a tombstone, and another primary key is three."""
_JOINED = (
    "SELECT o.id, customer, item, price::text, extract(epoch FROM placed)::text AS placed, name "
    "FROM orders o LEFT JOIN customers c ON customer = c.id ORDER BY o.id"
)


class Joined(NamedTuple):
    """The records of a connector, in their order, and the join of the tables at the end."""

    given: list[Given]
    rows: list[list[Any]]


def recorded() -> Joined:
    """Return what was recorded."""
    found = json.loads(gzip.decompress(RECORDED.read_bytes()))
    given = [
        Given(topic, *(None if part is None else part.encode() for part in parts))
        for topic, *parts in found["given"]
    ]
    return Joined(given, found["rows"])


def _main() -> None:
    binaries = installed()
    assert binaries is not None, "PostgreSQL is not installed"
    with tempfile.TemporaryDirectory() as name, running(binaries) as server:
        database = server.new_database()
        program = compile_connector(Path(name))
        for statement in _TABLES:
            database.run(statement)
        connector = Connector(program, Path(name, "kept"), of_postgres(database), _SETTINGS)
        try:
            given = [*islice(connector.records(120), 4)]
            for statement in _CHANGES:
                database.run(statement)
            given += islice(connector.records(120), _SIZE - 4)
        finally:
            connector.kill()
        rows = database.run(_JOINED)
    found = {
        "given": [
            [each.topic, *(None if part is None else part.decode() for part in each[1:])]
            for each in given
        ],
        "rows": [[*row] for row in rows],
    }
    RECORDED.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))


if __name__ == "__main__":
    _main()
