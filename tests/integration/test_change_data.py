"""Debezium and PostgreSQL themselves: a table that changes in all ways, and connectors that die."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import Queries
from tests.change_data.connector import compile_connector
from tests.change_data.judge import require_equal
from tests.change_data.story import passed_on
from tests.postgres import Database
from tests.unit.streams.sql.grouped_job import OpenedOnce

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.timeout(600)
def test_tables_equal_those_of_the_database_after_each_transaction(
    tmp_path: Path, database: Database, queries: Queries
) -> None:
    try:
        program = compile_connector(tmp_path)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert isinstance(queries, LocalQueries)
    shared = OpenedOnce(queries)
    try:
        job = require_equal(passed_on(program, database, tmp_path), shared)
    finally:
        shared.forget()
    assert job.skipped == 0
    assert job.dropped["repeated change"] > 0
