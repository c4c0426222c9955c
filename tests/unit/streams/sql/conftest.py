"""Queries with GROUP BY on the Spark of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from tests.unit.streams.sql.grouped_job import OpenedOnce

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalQueries:
    """Queries whose tables are in the folders of tests."""
    tables = TableSettings(paths=(str(tmp_path_factory.getbasetemp()),))
    return LocalQueries(UserCode(["tests.user_code"], [ROOT]), Readable(tables))


@pytest.fixture(scope="session")
def shared(local: LocalQueries) -> OpenedOnce:
    return OpenedOnce(local)


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """The seeds of random records: one, those of `--seeds`, or the one of `--seed`."""
    seed = request.config.getoption("--seed")
    return [seed] if seed is not None else list(range(request.config.getoption("--seeds") or 1))
