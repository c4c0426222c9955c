"""Fixtures of several integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.sql.spec import Queries
from tests.command_run import CommandRun
from tests.queries import FUNCTIONS, ROOT
from tests.secured import Secured, secured_cluster
from tests.tasks import Job


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--moments",
        type=int,
        metavar="N",
        help="at how many moments of its start a daemon is stopped",
    )
    parser.addoption(
        "--upgrade-from",
        metavar="COMMIT",
        help="the version of the engine from which a running job is upgraded",
    )


@pytest.fixture
def runs() -> Iterator[list[CommandRun]]:
    """A list of runs to add to; nothing of them is left after the test."""
    started: list[CommandRun] = []
    yield started
    for run in started:
        run.kill()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Job]:
    """Topics of a job of its own, with nothing in them."""
    made = Job(tmp_path, bootstrap_servers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A cluster with the rights of a job's users."""
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Queries:
    """Queries on a Spark of this process; their tables are in the folders of tests."""
    from kafka_pipeline.common.config.table_settings import TableSettings
    from kafka_pipeline.streams.sql.access import Readable
    from kafka_pipeline.streams.sql.local import LocalQueries  # starts slowly

    return LocalQueries(
        UserCode([FUNCTIONS], [ROOT]),
        Readable(TableSettings(paths=(str(tmp_path_factory.getbasetemp()),))),
    )
