"""Iceberg tables in a REST catalog that refuses, fails or is cut off, on brokers in memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector
from pyiceberg.exceptions import CommitFailedException

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables import iceberg_catalog
from tests.http_relay import Breaks, HttpRelay
from tests.memory.stored_jobs import RestIceberg, failure
from tests.object_store.server import ObjectStore
from tests.rest_catalog.server import RestCatalog

pytestmark = pytest.mark.long

COMMIT = "/tables/orders"


@pytest.fixture
def relay(rest_catalog: RestCatalog) -> Iterator[HttpRelay]:
    relay = HttpRelay(rest_catalog.port)
    yield relay
    relay.close()


@pytest.fixture
def job(
    tmp_path: Path,
    object_store: ObjectStore,
    rest_catalog: RestCatalog,
    relay: HttpRelay,
    monkeypatch: pytest.MonkeyPatch,
) -> RestIceberg:
    for name, value in object_store.environment().items():
        monkeypatch.setenv(name, value)
    return RestIceberg(tmp_path, object_store, rest_catalog, relay.port)


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (0, "Connection"),
        (500, "CommitStateUnknownException: the catalog has failed during a commit"),
        (502, "CommitStateUnknownException"),
        (503, "ServiceUnavailableError: the catalog cannot do it now"),
        (504, "CommitStateUnknownException"),
    ],
)
def test_a_row_is_there_once_if_a_catalog_does_not_say_whether_a_commit_succeeded(
    job: RestIceberg, relay: HttpRelay, status: int, shown: str, carried_out: bool
) -> None:
    job.write(1)
    job.run()
    job.write(2, b"poison", 3)
    owner = job.started()
    relay.breaks = Breaks("POST", COMMIT, status, carried_out)
    with pytest.raises(TransactionFailedError) as caught:
        owner.commit()
    owner.drop()
    assert shown in caught.value.shown
    assert job.position == (4 if carried_out else 1)
    job.write(4)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (3, 3), (4, 4)]
    assert job.letters == [b"poison"]
    assert job.position == job.committed == 5


def test_a_commit_that_is_refused_since_it_is_there_already_keeps_the_table_whole(
    job: RestIceberg, relay: HttpRelay
) -> None:
    # A proxy sends a commit again whose answer it has lost, and the catalog refuses the second.
    job.write(1)
    job.run()
    job.write(2)
    owner = job.started()
    relay.breaks = Breaks("POST", COMMIT, 409, carried_out=True)
    owner.commit()
    owner.drop()
    assert relay.breaks.broken == 1
    assert job.rows() == [(0, 1), (1, 2)]
    job.write(3)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]


def test_a_commit_that_is_refused_is_tried_again_and_leaves_no_manifests(
    job: RestIceberg, relay: HttpRelay, tmp_path: Path
) -> None:
    job.write(1)
    owner = job.started()
    relay.breaks = Breaks("POST", COMMIT, 409, times=3)
    owner.commit()
    owner.drop()
    assert job.rows() == [(0, 1)]
    table = job.table
    snapshot = table.current_snapshot()
    assert snapshot is not None
    used = {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
    assert len([path for path in _files(job) if path.endswith(".avro")]) == len(used)
    relay.breaks = Breaks("POST", COMMIT, 409, times=10_000)
    job.write(2)
    owner = job.started()
    with pytest.raises(TransactionFailedError) as caught:
        owner.commit()
    assert isinstance(caught.value.__cause__, CommitFailedException)
    owner.drop()
    relay.breaks = None
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def _files(job: RestIceberg) -> list[str]:
    folder = job.table.location().removeprefix("s3://")
    found = job.store.files.get_file_info(FileSelector(folder, recursive=True))
    return [each.path for each in found]


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "UnauthorizedError: the catalog does not accept its `token` or `credential`"),
        (403, "ForbiddenError: the catalog says that its user lacks a right"),
        (419, "AuthorizationExpiredError: the catalog says that its `token` has expired"),
        (429, "TooManyRequestsError: the catalog cannot do it now"),
        (500, "ServerError: the catalog has failed; its log may say why"),
    ],
)
def test_a_catalog_that_refuses_is_waited_for(
    job: RestIceberg, relay: HttpRelay, status: int, hint: str
) -> None:
    job.replica = job.changed(catalog={**_catalog(job), "token": "abc"})
    relay.breaks = Breaks("GET", "/v1/", status, times=10_000)
    assert failure(job) == f"table {job.name}: {hint}"
    relay.breaks = None
    job.write(1)
    job.run()
    relay.breaks = Breaks("POST", COMMIT, status, times=10_000)
    job.write(2)
    owner = job.started()
    with pytest.raises(TransactionFailedError):
        owner.commit()
    owner.drop()
    relay.breaks = None
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_token_that_has_expired_is_renewed_with_the_credential(
    job: RestIceberg, relay: HttpRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = f"http://127.0.0.1:{relay.port}/v1/oauth/tokens"
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__OAUTH2_SERVER_URI", tokens)
    job.replica = job.changed(catalog={**_catalog(job), "credential": "ann:secret"})
    job.write(1)
    owner = job.started()
    relay.breaks = Breaks("POST", COMMIT, 401)
    owner.commit()
    owner.drop()
    assert relay.breaks.broken == 1
    assert job.rows() == [(0, 1)]
    relay.breaks = Breaks("POST", "/oauth/tokens", 401, times=10_000)
    assert "OAuthError: the catalog does not accept" in failure(job)


def test_namespaces_are_made_only_if_they_are_missing(job: RestIceberg, relay: HttpRelay) -> None:
    outer = job.name.partition(".")[0]
    job.write(1)
    for name in ("orders", "returns"):
        job.name = f"{outer}.sales.{name}"
        job.replica = job.changed(table=job.name)
        job.broker.forget(job.group)
        job.run()
        assert job.rows() == [(0, 1)]
        # To make one is what many users may not.
        relay.breaks = Breaks("POST", "/v1/namespaces$", 403, times=10_000)
    assert relay.breaks is not None
    assert relay.breaks.broken == 0


def test_a_table_that_somebody_else_makes_is_taken_if_it_fits(job: RestIceberg) -> None:
    job.catalog.create_namespace(job.name.partition(".")[0])
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("at", pa.int64(), nullable=False)])
    job.catalog.create_table(job.name, schema)
    job.write(1)
    job.run()
    assert job.rows() == [(0, 1)]
    assert "has other columns" in job.refusal(job.changed(schema="n STRING"))


def test_a_catalog_that_never_answers_is_not_waited_for_at_one_start(
    job: RestIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_catalog, "MOST_ANSWER_S", 0.5)
    # The kernel takes connections that nobody serves.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job.config = replace(job.config, tables=replace(job.config.tables, write_urls=(uri,)))
        job.replica = job.changed(catalog={**_catalog(job), "uri": uri})
        assert "Read timed out" in failure(job)


def test_a_catalog_that_is_away_is_waited_for(job: RestIceberg, relay: HttpRelay) -> None:
    job.write(1)
    job.run()
    relay.close()
    assert "refused" in failure(job)


def _catalog(job: RestIceberg) -> dict[str, str]:
    assert isinstance(job.replica.spec, TableSinkSpec)
    return {**job.replica.spec.catalog}
