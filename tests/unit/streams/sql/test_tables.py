"""Lookup tables that cannot be read, without a Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.spec import QueryError, SparkLostError
from kafka_pipeline.streams.sql.tables import SharedTables, Tables

TABLE = {"format": "jdbc", "options": {"url": "jdbc:nowhere"}}
TIMEOUT_S = 30


class Database:
    """A Spark session whose tables all come from one place."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.given: list[dict[str, str]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self.conf = SimpleNamespace(set=lambda *_: None, get=lambda _: "UTC")
        self.schema = None
        self._jdf = SimpleNamespace(schema=lambda: SimpleNamespace(json=lambda: "{}"))

    @property
    def read(self) -> Database:
        return self

    def newSession(self) -> Database:
        return self

    def format(self, _: str) -> Database:
        return self

    def options(self, **options: str) -> Database:
        self.given.append(options)
        return self

    def load(self) -> Database:
        self.asked.set()
        assert self.answers.wait(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        return self

    def toArrow(self) -> None:
        pass

    def createDataFrame(self, *_: object) -> str:
        return "rows"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AnalysisException("Path does not exist"), QueryError),
        (IllegalArgumentException("the option numPartitions is not a number"), QueryError),
        (PySparkException("[MALFORMED_RECORD_IN_PARSING] … SQLSTATE: 22023"), QueryError),
        (PySparkException("java.lang.ClassNotFoundException: org.postgresql.Driver"), QueryError),
        (PySparkException("java.net.ConnectException: Connection refused"), SparkLostError),
        (PySparkException("Connection to localhost:5432 refused. Check that …"), SparkLostError),
        (PySparkException("FATAL: the database system is starting up"), SparkLostError),
        (PySparkException("java.net.SocketTimeoutException: Read timed out"), SparkLostError),
    ],
)
def test_table_that_cannot_be_read_ends_the_query_or_is_tried_again(
    error: Exception, expected: type[Exception]
) -> None:
    database: Any = Database()
    tables = SharedTables(database, dict)
    database.error = error
    with pytest.raises(expected, match='table "t" cannot be read'):
        tables.take({"t": TABLE})
    database.error = None
    assert list(tables.take({"t": TABLE}).rows.frames) == ["t"]


def test_queries_do_not_wait_for_the_tables_of_others() -> None:
    database: Any = Database()
    tables = SharedTables(database, dict)
    database.answers.clear()
    taken: list[object] = []
    threads = [
        threading.Thread(target=lambda: taken.append(tables.take({"t": TABLE}))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert database.asked.wait(TIMEOUT_S)
    without = tables.take({})
    tables.give_back(without)
    assert not taken
    database.answers.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(set(map(id, taken))) == 1, "read once for both"


def test_tables_are_closed_when_the_last_query_gives_them_back() -> None:
    database: Any = Database()
    tables = SharedTables(database, dict)
    first, second = tables.take({"t": TABLE}), tables.take({"t": TABLE})
    assert first is second
    tables.give_back(first)
    assert tables.take({"t": TABLE}) is first
    tables.give_back(first)
    tables.give_back(first)
    assert tables.take({"t": TABLE}) is not first


@pytest.fixture
def environment() -> dict[str, str]:
    return {"DB_USER": "ann_of_sales", "DB_PASSWORD": "hunter2"}


def taken(database: Any, environment: dict[str, str], **options: str) -> Tables:
    """Return a table of a database with references in its options."""
    references = HostReferences(SecretSettings(("DB_USER", "DB_PASSWORD")), "", environment)
    readable = Readable(TableSettings(jdbc_urls=("jdbc:x:y",)), references)
    shared = SharedTables(database, readable.opened)
    return shared.take({"t": {"format": "jdbc", "options": {"url": "jdbc:x:y", **options}}})


def test_values_of_references_are_those_of_the_moment_of_reading(
    environment: dict[str, str],
) -> None:
    database: Any = Database()
    tables = taken(database, environment, user="${DB_USER}", password="${DB_PASSWORD}")
    assert database.given[-1] == {"url": "jdbc:x:y", "user": "ann_of_sales", "password": "hunter2"}
    environment["DB_PASSWORD"] = "correct horse"
    tables.refresh("t")
    assert database.given[-1]["password"] == "correct horse"
    del environment["DB_PASSWORD"]
    with pytest.raises(QueryError, match="variable DB_PASSWORD is not set"):
        tables.refresh("t")
    assert tables.rows.version == 1


@pytest.mark.parametrize(
    ("user", "is_shown"), [("ann", True), ("$${ann}", True), ("${DB_USER}", False)]
)
def test_an_error_of_a_database_that_may_quote_values_is_left_out(
    environment: dict[str, str], user: str, is_shown: bool
) -> None:
    """Who writes commands could name another variable as the user, and see it in the reason."""
    database: Any = Database()
    tables = taken(database, environment, user=user, password="${DB_PASSWORD}")
    database.error = PySparkException("no user ann_of_sa")
    with pytest.raises(SparkLostError) as caught:
        tables.refresh("t")
    if is_shown:
        assert str(caught.value) == 'table "t" cannot be read: no user ann_of_sa'
    else:
        assert "ann_of" not in str(caught.value)
        assert 'table "t" cannot be read: PySparkException. The message is' in str(caught.value)
