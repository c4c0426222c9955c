"""`kill -9` at each step of a table's commit, and a database that crashes or ends connections."""

from __future__ import annotations

import signal
import time

from tests.chaos.broken_transactions import kill_at
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.rig import Rig, eventually
from tests.postgres import USER, Database

MOST_COMMIT_S = 0.25
"""Within this time from its beginning, a commit is broken off."""
LOST_CONNECTIONS = 10
_END = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    f"WHERE usename = '{USER}' AND pid <> pg_backend_pid() AND state IS NOT NULL"
)


def _require_tables(rig: Rig) -> None:
    if rig.tables is None:
        raise SkippedError("only --kind tables has tables")


def _database(rig: Rig) -> Database:
    _require_tables(rig)
    assert rig.tables is not None
    if rig.tables.database is None:
        raise SkippedError("PostgreSQL is not installed")
    return rig.tables.database


@fault("kill-before-write")
def kill_before_write(rig: Rig) -> None:
    """kill -9 of a TaskManager before the commit of a table."""
    _require_tables(rig)
    kill_at(rig, "before-write")


@fault("kill-during-write")
def kill_during_write(rig: Rig) -> None:
    """kill -9 of a TaskManager during the commit of a table."""
    _require_tables(rig)
    delay_s = rig.random.uniform(0, MOST_COMMIT_S)
    kill_at(rig, "before-write", f"stop-after {delay_s * 1000:.2f}", pause_s=delay_s + 0.05)


@fault("kill-after-write")
def kill_after_write(rig: Rig) -> None:
    """kill -9 of a TaskManager after the commit of a table, before that of Kafka."""
    _require_tables(rig)
    kill_at(rig, "after-write")


@fault("crash-database")
def crash_database(rig: Rig) -> None:
    """PostgreSQL ends as in a crash, and starts again: its tables get all rows."""
    server = _database(rig).server
    away_s = rig.random.uniform(0, 5)
    rig.mark()
    server.stop(signal.SIGQUIT)
    time.sleep(away_s)
    server.start()
    seconds = rig.wait_for_flow()
    rig.say(f"PostgreSQL was away for {away_s:.1f} s; all keys flow after {seconds:.1f} s")


@fault("lose-database-connections")
def lose_database_connections(rig: Rig) -> None:
    """PostgreSQL ends connections at any step of a commit, also after it."""
    database = _database(rig)
    ended = 0

    def are_ended() -> bool:
        nonlocal ended
        ended += database.run(_END)[0][0]
        return bool(ended >= LOST_CONNECTIONS)

    rig.mark()
    eventually(are_ended, 60, "there are no connections")
    seconds = rig.wait_for_flow()
    rig.say(f"PostgreSQL ended {ended} connections; all keys flow after {seconds:.1f} s")
