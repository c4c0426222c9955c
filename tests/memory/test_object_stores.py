"""Tables in an object store that refuses, fails, is cut off or forgets rules, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.operations.compaction import compact
from tests.http_relay import Breaks, HttpRelay
from tests.memory.stored_jobs import StoredDelta, StoredIceberg, failure
from tests.object_store.server import BUCKET, ObjectStore, running

pytestmark = pytest.mark.long

Stored = StoredDelta | StoredIceberg
BROKEN = {
    "fails after it": (500, True),
    "fails before it": (503, False),
    "is cut off after it": (0, True),
    "is cut off before it": (0, False),
}
"""What happens to a request that writes a file: see `Breaks`."""


def connect(relay: HttpRelay, store: ObjectStore, patch: pytest.MonkeyPatch) -> None:
    """Let tasks find a store through a relay."""
    for name, value in store.environment(relay.port).items():
        patch.setenv(name, value)


@pytest.fixture
def relay(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpRelay]:
    relay = HttpRelay(object_store.port)
    connect(relay, object_store, monkeypatch)
    yield relay
    relay.close()


@pytest.fixture(params=[StoredDelta, StoredIceberg], ids=["delta", "iceberg"])
def job(
    request: pytest.FixtureRequest, tmp_path: Path, object_store: ObjectStore, relay: HttpRelay
) -> Stored:
    made: Stored = request.param(tmp_path, object_store)
    return made


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("part", ["PUT /_delta_log/", "PUT part-"])
def test_rows_are_in_a_delta_table_once_although_a_request_is_broken(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay, part: str, how: str
) -> None:
    _commit_once(StoredDelta(tmp_path, object_store), relay, part, how)


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(
    "part",
    [
        *("PUT /data/", "POST /data/.*uploads", "POST /data/.*uploadId="),
        *("PUT -m0.avro", "POST -m0.avro.*uploadId=", "PUT /snap-", "PUT .metadata.json"),
    ],
)
def test_rows_are_in_an_iceberg_table_once_although_a_request_is_broken(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay, part: str, how: str
) -> None:
    _commit_once(StoredIceberg(tmp_path, object_store), relay, part, how)


def _commit_once(job: Stored, relay: HttpRelay, part: str, how: str) -> None:
    job.write(1)
    job.run()
    job.write(2, b"poison", 3)
    owner = job.started()
    method, _, path = part.partition(" ")
    status, carried_out = BROKEN[how]
    relay.breaks = Breaks(method, path, status, carried_out)
    try:
        owner.commit()
    except TransactionFailedError:
        assert status == 0, "a store that answers is asked again"
    owner.drop()
    assert relay.breaks.broken == 1
    job.write(4)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (3, 3), (4, 4)]
    assert job.letters == [b"poison"]
    assert job.position == job.committed == 5


def test_a_file_of_many_parts_is_there_once_although_a_part_is_cut_off(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay
) -> None:
    job = StoredDelta(tmp_path, object_store)
    job.replica = job.changed(schema="n BIGINT, text STRING")
    rows = 15
    # Other bytes in each row, or they would be compressed to nothing.
    draw = Random(1).randbytes
    job.write(*(b'{"n": 1, "text": "%s"}' % draw(500_000).hex().encode() for _ in range(rows)))
    owner = job.started()
    relay.breaks = Breaks("PUT", "partNumber=", carried_out=True)
    try:
        owner.commit()
    except TransactionFailedError:
        owner.drop()
        job.run()
    assert relay.breaks.broken == 1
    assert len(job.rows()) == rows


def test_a_store_that_is_busy_for_long_is_waited_for(job: Stored, relay: HttpRelay) -> None:
    job.write(1)
    job.run()
    job.write(2)
    owner = job.started()
    relay.breaks = Breaks("PUT", "", 503, times=10_000)
    with pytest.raises(TransactionFailedError, match="table "):
        owner.commit()
    owner.drop()
    relay.breaks = Breaks("GET", "", 503, times=10_000)
    assert "table " in failure(job)
    relay.breaks = None
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_login_that_is_wrong_or_missing_is_said_and_waited_for(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(1)
    job.run()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        wrong = failure(job)
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        # Who has no login asks the host for one, which must not be another host here.
        patch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
        missing = failure(job)
    assert "\n" not in wrong
    if isinstance(job, StoredDelta):
        assert wrong.endswith(
            "403 Forbidden: SignatureDoesNotMatch: The request signature we calculated does not "
            "match the signature you provided. Check your key and signing method."
        )
        assert "there is no login: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in missing
    else:
        assert "AWS Error ACCESS_DENIED" in wrong
        assert "AWS Error ACCESS_DENIED" in missing
    job.write(2)
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_what_is_not_set_up_is_said(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = failure(StoredDelta(tmp_path, object_store, "missing"))
    job = StoredDelta(tmp_path, object_store)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    without_tls = failure(job)
    assert missing.startswith("table s3://missing/")
    assert missing.endswith("404 Not Found: NoSuchBucket: The specified bucket does not exist")
    assert without_tls.endswith("; set AWS_ALLOW_HTTP=true for a store without TLS")


def test_the_files_of_a_delta_table_are_joined_in_the_store(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay
) -> None:
    job = StoredDelta(tmp_path, object_store)
    assert compact(job.uri) is None
    for number in (1, 2):
        job.write(number)
        job.run()
    compacted = compact(job.uri)
    assert compacted is not None
    assert (compacted.joined, compacted.made) == (2, 1)
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_store_without_conditional_writes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Signatures cover the header that is left out.
    with running(tmp_path, checks_logins=False) as store:
        relay = HttpRelay(store.port)
        relay.left_out = (b"if-none-match",)
        connect(relay, store, monkeypatch)
        job = StoredDelta(tmp_path, store)
        for _ in range(2):  # to start it again does not help
            assert "It needs conditional writes (If-None-Match)" in job.refusal()
        relay.left_out = ()
        job = StoredDelta(tmp_path / "another", store)
        job.write(1)
        job.run()
        assert job.rows() == [(0, 1)]
        relay.close()


def test_tables_are_where_the_settings_allow_them(
    tmp_path: Path, object_store: ObjectStore, relay: HttpRelay
) -> None:
    job = StoredDelta(tmp_path, object_store)
    reason = job.refusal(job.changed(path=f"s3://{BUCKET}2/orders"))
    assert "is outside of what config.yaml allows" in reason
