"""A task that writes a table in PostgreSQL, on brokers in memory: what only a database does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.streams.tables import postgres
from tests.memory.table_jobs import INPUT, PostgresJob
from tests.postgres import PASSWORD, USER, Database

CUSTOMERS = "id INT NOT NULL, name STRING"


@pytest.fixture
def job(tmp_path: Path, database: Database) -> PostgresJob:
    return PostgresJob(tmp_path, database)


@pytest.fixture
def upserts(tmp_path: Path, database: Database) -> PostgresJob:
    return PostgresJob(tmp_path, database, CUSTOMERS, mode="upsert", key=("id",))


def change(job: PostgresJob, key: int, name: str | None) -> None:
    """Write an upsert, or the deletion of a key."""
    value = None if name is None else b'{"id": %d, "name": "%s"}' % (key, name.encode())
    job.broker.write(INPUT, b"%d" % key, value, 1)


def customers(job: PostgresJob) -> list[Any]:
    return job.database.run("SELECT id, name FROM orders ORDER BY id")


def connected(job: PostgresJob) -> psycopg.Connection:
    return psycopg.connect(job.database.url, user=USER, password=PASSWORD)


def in_background(function: Callable[[], object]) -> Callable[[], object]:
    """Start a function on another thread; return what waits for its end, and raises its error."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> object:
        thread.join(60)
        assert not thread.is_alive()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    return result


def wait_until_waiting(job: PostgresJob) -> None:
    """Wait until a session of a task waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'kafka-pipeline' AND wait_event_type = 'Lock'"
    )
    while job.database.run(waiting) == [(0,)]:
        pass


def test_a_server_that_is_away_is_waited_for(job: PostgresJob) -> None:
    server = job.database.server
    job.write(1, 2)
    owner = job.started()
    server.stop(signal.SIGQUIT)
    try:
        with pytest.raises(TransactionFailedError, match="table orders: connection failed"):
            owner.commit()
        owner.drop()
        with pytest.raises(TransactionFailedError, match="table orders: connection failed"):
            job.owner().start()
    finally:
        server.start()
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_server_that_was_started_again_before_a_commit_is_not_noticed(job: PostgresJob) -> None:
    job.write(1)
    owner = job.started()
    job.database.server.stop()
    job.database.server.start()
    owner.commit()
    owner.drop()
    assert job.rows() == [(0, 1)]


def test_an_owner_waits_for_a_commit_that_is_under_way_and_is_refused(job: PostgresJob) -> None:
    job.write(1)
    owner = job.started()
    with connected(job) as other:
        other.execute(
            "INSERT INTO kafka_pipeline_offsets VALUES ('orders', %s, 1)", [job.application]
        )
        result = in_background(owner.commit)
        wait_until_waiting(job)
    with pytest.raises(FencedError, match="its position is 1, not None"):
        result()
    owner.drop()
    assert job.rows() == []


def test_a_table_that_somebody_locks_is_waited_for(
    job: PostgresJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(1)
    owner = job.started()
    short = postgres._TRANSACTION.replace("10s", "50ms")
    with connected(job) as other, monkeypatch.context() as patch:
        other.execute("LOCK TABLE orders")
        patch.setattr(postgres, "_TRANSACTION", short)
        with pytest.raises(TransactionFailedError, match="lock timeout"):
            owner.commit()
    owner.drop()
    job.run()
    assert job.rows() == [(0, 1)]


def test_a_deadlock_with_somebody_else_is_resolved(upserts: PostgresJob) -> None:
    for key in (1, 2):
        change(upserts, key, "new")
    upserts.run()
    for key in (1, 2):
        change(upserts, key, "newer")
    owner = upserts.started()
    with connected(upserts) as other:
        # So the server ends the task's transaction.
        other.execute("SET deadlock_timeout = '60s'")
        other.execute("UPDATE orders SET name = 'theirs' WHERE id = 2")
        result = in_background(owner.commit)
        wait_until_waiting(upserts)
        other.execute("UPDATE orders SET name = 'theirs' WHERE id = 1")
    result()
    owner.drop()
    assert customers(upserts) == [(1, "newer"), (2, "newer")]


def test_what_postgresql_cannot_keep_is_a_dead_letter(tmp_path: Path, database: Database) -> None:
    schema = "k STRING NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, x FLOAT"
    job = PostgresJob(tmp_path, database, schema, mode="upsert", key=("k",))
    job.replica = job.changed(record_columns={})
    good = [
        b'{"k": "a", "at": "0001-01-01T00:00:00Z", "local": "0001-01-01T00:00:00"}',
        b'{"k": "%s", "at": "9999-12-31T23:59:59.999999Z", "x": -3.4028234e38}' % (b"b" * 2_500),
        b'{"k": "c\\\\u0000", "local": "9999-12-31T23:59:59.999999"}',
    ]
    bad = [
        b'{"k": "d\\u0000"}',
        b'{"k": "%s"}' % (b"e" * 2_501),
        b'{"k": "f", "at": "0001-01-01T00:00:00+02:00"}',
        b'{"k": "g", "at": "9999-12-31T23:00:00-02:00"}',
        b'{"k": "h", "x": 1e39}',
        b'{"k": "i", "x": NaN}',
    ]
    for number, value in enumerate([*bad[:3], *good, *bad[3:]]):
        job.broker.write(INPUT, b"%d" % number, value, 1)
    job.run()
    assert job.letters == bad
    found = database.run("SELECT k, at::text, local::text, x FROM orders ORDER BY k")
    assert [k for k, *_ in found] == ["a", "b" * 2_500, "c\\u0000"]
    assert found[0][2] == "0001-01-01 00:00:00"
    assert found[1][3] == pytest.approx(-3.4028234e38, rel=1e-7)
    assert found[2][2] == "9999-12-31 23:59:59.999999"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("n int, at bigint NOT NULL", 'column "n" is integer, but by the schema it is bigint'),
        ("n varchar(3), at bigint", 'column "n" is character varying(3), but by the schema'),
        ("at bigint", 'it lacks column "n", bigint'),
        ("n bigint NOT NULL, at bigint", 'column "n" is NOT NULL, but by the schema it may be'),
        (
            "n bigint, at bigint, x int NOT NULL",
            'column "x", integer, is NOT NULL without a default, and not in the schema',
        ),
        ("at bigint, n bigint GENERATED ALWAYS AS (at) STORED", 'column "n" is generated'),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    job: PostgresJob, statement: str, reason: str
) -> None:
    job.database.run(f"CREATE TABLE orders ({statement})")
    assert f"table orders: {reason}" in job.refusal()


def test_a_view_is_refused(job: PostgresJob) -> None:
    job.database.run("CREATE VIEW orders AS SELECT 1::bigint AS n, 2::bigint AS at")
    assert "table orders: it is a view" in job.refusal()


def test_a_table_that_a_crash_empties_is_refused(job: PostgresJob) -> None:
    job.database.run("CREATE UNLOGGED TABLE orders (n bigint, at bigint)")
    assert "it is UNLOGGED, so a crash of the server empties it" in job.refusal()


def test_rules_that_may_leave_upserts_out_are_refused(upserts: PostgresJob) -> None:
    upserts.database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, name text, at bigint NOT NULL); "
        "CREATE RULE kept AS ON DELETE TO orders DO INSTEAD NOTHING"
    )
    assert "it has rules, which may leave upserts out" in upserts.refusal()


def test_rows_that_the_user_may_not_see_are_not_left_in_silence(upserts: PostgresJob) -> None:
    change(upserts, 1, "ann")
    upserts.run()
    upserts.database.run(
        "CREATE ROLE bob LOGIN PASSWORD 'x'; GRANT ALL ON orders, kafka_pipeline_offsets TO bob; "
        "CREATE POLICY everything ON orders USING (true) WITH CHECK (true); "
        "CREATE POLICY kept ON orders AS RESTRICTIVE FOR DELETE USING (false); "
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY"
    )
    try:
        reason = upserts.refusal(upserts.changed(user="bob", password="x"))
        assert "it has row-level security, which may hide rows from this user" in reason
    finally:
        upserts.database.run("DROP OWNED BY bob; DROP ROLE bob")
    # Its owner sees all rows.
    change(upserts, 1, None)
    upserts.run()
    assert customers(upserts) == []


@pytest.mark.parametrize("code", ["25P03", "25P04", "40001", "57014"])
def test_a_transaction_that_the_server_ends_is_begun_again(job: PostgresJob, code: str) -> None:
    job.write(1)
    owner = job.started()
    job.database.run(
        "CREATE FUNCTION ended() RETURNS trigger LANGUAGE plpgsql AS "
        f"'BEGIN RAISE EXCEPTION USING ERRCODE = ''{code}''; END'; "
        "CREATE TRIGGER ends BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION ended()"
    )
    with pytest.raises(TransactionFailedError, match=code):
        owner.commit()
    owner.drop()
    job.database.run("DROP TRIGGER ends ON orders")
    job.run()
    assert job.rows() == [(0, 1)]


def test_a_commit_waits_for_the_disk_whatever_the_role_has_set(job: PostgresJob) -> None:
    job.database.run(
        "CREATE TABLE orders (n bigint, at bigint NOT NULL, "
        "waits text DEFAULT current_setting('synchronous_commit'))"
    )
    for setting in ("off", "remote_apply"):
        job.database.run(
            f"ALTER ROLE {USER} IN DATABASE {job.database.name} SET synchronous_commit = {setting}"
        )
        job.write(1)
        job.run()
    assert job.database.run("SELECT waits FROM orders ORDER BY at") == [
        ("local",),
        ("remote_apply",),
    ]


@pytest.mark.parametrize(
    "more",
    [
        "",
        "; CREATE UNIQUE INDEX ON orders (id) WHERE name IS NULL",
        "; CREATE UNIQUE INDEX ON orders (id, name)",
        "; CREATE UNIQUE INDEX ON orders (abs(id))",
        "; ALTER TABLE orders ADD UNIQUE (id) DEFERRABLE",
    ],
)
def test_upserts_need_a_unique_constraint(upserts: PostgresJob, more: str) -> None:
    table = "CREATE TABLE orders (id int NOT NULL, name text, at bigint NOT NULL)"
    upserts.database.run(table + more)
    assert "it has no PRIMARY KEY or UNIQUE constraint of (id)" in upserts.refusal()


def test_a_table_may_have_more_columns_and_constraints(upserts: PostgresJob) -> None:
    upserts.database.run(
        'CREATE TABLE orders ("%s" int DEFAULT 7, at bigint, name varchar, id int NOT NULL, '
        "added serial); CREATE UNIQUE INDEX ON orders (id) INCLUDE (name)"
    )
    change(upserts, 1, "ann")
    upserts.run()
    assert upserts.database.run("SELECT * FROM orders") == [(7, 0, "ann", 1, 1)]


def test_a_table_in_a_schema_with_difficult_names(job: PostgresJob) -> None:
    job.database.run('CREATE SCHEMA "Shop%s"')
    job.run(job.changed(table='Shop%s.Or"ders', schema='"%n" BIGINT'.replace('"', "`")))
    job.write(b'{"%n": 1}')
    job.run(job.changed(table='Shop%s.Or"ders', schema='"%n" BIGINT'.replace('"', "`")))
    assert job.database.run('SELECT "%n", at FROM "Shop%s"."Or""ders"') == [(1, 0)]


def test_another_table_has_an_offset_of_its_own(job: PostgresJob) -> None:
    job.write(1)
    job.run()
    other = job.changed(table="others")
    assert "of the records of in[0], the table has none" in job.refusal(other)


def test_a_table_that_was_dropped_is_not_begun_again(job: PostgresJob) -> None:
    job.write(1)
    job.run()
    job.database.run("DROP TABLE orders")
    assert "it has the records before offset 1" in job.refusal()


def test_a_table_that_is_altered_under_way_fails_the_task_with_a_reason(job: PostgresJob) -> None:
    job.write(1)
    owner = job.started()
    job.database.run("ALTER TABLE orders RENAME n TO m")
    with pytest.raises(NonRetriableError, match=r'column "n" .*does not exist'):
        owner.commit()
    owner.drop()
    assert 'it lacks column "n", bigint' in job.refusal()
    job.database.run("ALTER TABLE orders RENAME m TO n")
    job.run()
    assert job.rows() == [(0, 1)]


def test_a_type_that_is_changed_under_way_rounds_nothing(
    tmp_path: Path, database: Database
) -> None:
    job = PostgresJob(tmp_path, database, "n DECIMAL(4, 2)")
    job.write(b'{"n": 1.25}')
    job.run()
    job.write(b'{"n": 2.25}')
    owner = job.started()
    database.run("ALTER TABLE orders ALTER n TYPE numeric(4, 1)")
    with pytest.raises(NonRetriableError, match=r'"n" is numeric\(4,1\), but by the schema'):
        owner.commit()
    owner.drop()
    assert database.run("SELECT count(*) FROM orders") == [(1,)]


def test_a_violated_constraint_fails_the_task_without_the_value(job: PostgresJob) -> None:
    job.database.run("CREATE TABLE orders (n bigint, at bigint, CONSTRAINT few CHECK (n < 4111))")
    job.write(4111)
    owner = job.started()
    with pytest.raises(NonRetriableError) as caught:
        owner.commit()
    owner.drop()
    assert caught.value.shown == 'table orders: CheckViolation (23514), constraint "few"'
    assert job.position is None


def test_a_wrong_password_is_reported_without_names(job: PostgresJob) -> None:
    with pytest.raises(TransactionFailedError) as caught:
        job.owner(job.changed(password="wrong")).start()
    assert 'password authentication failed for user "…"' in caught.value.shown
    assert USER not in caught.value.shown


def test_a_right_that_is_missing_is_named(job: PostgresJob) -> None:
    job.write(1)
    job.run()
    job.database.run(
        "CREATE ROLE bob LOGIN PASSWORD 'x'; GRANT SELECT ON orders TO bob; "
        "GRANT SELECT, INSERT, UPDATE ON kafka_pipeline_offsets TO bob"
    )
    try:
        assert "the user lacks the right INSERT" in job.refusal(
            job.changed(user="bob", password="x")
        )
    finally:
        job.database.run("DROP OWNED BY bob; DROP ROLE bob")


def test_a_url_that_cannot_be_read_is_not_shown(job: PostgresJob) -> None:
    job.replica = job.changed(url="postgresql://h/d?secret=4111")
    job.config = replace(
        job.config,
        tables=replace(job.config.tables, write_urls=(job.replica.spec.url,)),  # type: ignore[attr-defined]
    )
    assert job.refusal() == "table orders: PostgreSQL's client cannot read the url"
