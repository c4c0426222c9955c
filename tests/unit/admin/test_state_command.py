"""`pipeline state`: what it asks for, prints and exits with; the job is a fake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from kafka_pipeline.admin.commands import state
from kafka_pipeline.operations.state import StoreInfo
from tests.in_process import invoke

COUNTS: dict[str, Any] = {
    "store": "counts",
    "type": "key-value",
    "key_serde": "string",
    "value_serde": "int64",
    "keys_readable": True,
    "values_readable": True,
}
PLACE = {"partition": 1, "standby": False, "lag": 0, "task_manager": 0, "more": False}


class FakeClient:
    """A job whose answers a test gives."""

    def __init__(self) -> None:
        self.about = COUNTS
        self.entries: list[dict[str, Any]] = [{"key": "a", "value": 7}]
        self.place: dict[str, Any] = dict(PLACE)
        self.asked: list[Any] = []

    def listed(self) -> list[dict[str, Any]]:
        copy = {"standby": True, "lag": 12, "task_manager": 1}
        row = {"processor": "P", **self.about, **self.place, "address": "h:1"}
        return [row, {**row, **copy}]

    def store(self, processor: str, name: str | None) -> StoreInfo:
        return StoreInfo(processor, 2, self.about)

    def get(
        self, store: StoreInfo, key: bytes, partition: int | None, times: dict[str, Any]
    ) -> dict[str, Any]:
        self.asked.append((key, partition, times))
        return {**self.place, "entries": self.entries}

    def scan(
        self, store: StoreInfo, partitions: Sequence[int], query: dict[str, Any], limit: int
    ) -> Iterator[dict[str, Any]]:
        self.asked.append(([*partitions], query, limit))
        yield {**self.place, "entries": self.entries}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()

    @contextmanager
    def connected(_config: Path) -> Iterator[FakeClient]:
        yield made

    monkeypatch.setattr(state, "_client", connected)
    return made


def run(*arguments: str) -> Result:
    name, *others = arguments
    return invoke("state", name, "config.yaml", *others)


def lines(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines() if line.strip(" ─━│┏┓")]


def test_a_value_is_printed_with_its_partition(client: FakeClient) -> None:
    result = run("get", "P", "a")
    assert result.exit_code == 0
    assert "counts" in lines(result)[-1]
    assert any({"1", "a", "7"} <= {*line} for line in lines(result))
    assert client.asked == [(b"a", None, {"limit": 100})]


def test_a_key_that_is_not_there_ends_with_1(client: FakeClient) -> None:
    client.entries = []
    result = run("get", "P", "a")
    assert (result.exit_code, result.stdout) == (1, "0 entries of P, counts\n")
    result = run("get", "P", "a", "--json")
    assert (result.exit_code, json.loads(result.stdout)["entries"]) == (1, [])


def test_keys_come_as_text_or_in_hexadecimal_and_times_in_iso_8601(client: FakeClient) -> None:
    assert run("get", "P", "--key-hex", "00ff", "--partition", "1").exit_code == 0
    run("get", "P", "a", "--from", "1970-01-01T00:00:01", "--to", "1970-01-01T00:00:02+00:00")
    run("get", "P", "a", "--as-of", "1970-01-01T00:00:03", "--limit", "5")
    assert client.asked == [
        (b"\x00\xff", 1, {"limit": 100}),
        (b"a", None, {"from_ms": 1000, "to_ms": 2000, "limit": 100}),
        (b"a", None, {"as_of_ms": 3000, "limit": 5}),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("get", "P"), "give a KEY, or --key-hex"),
        (("get", "P", "a", "--key-hex", "00"), "give a KEY, or --key-hex"),
        (("get", "P", "--key-hex", "0g"), "is not hexadecimal"),
        (("get", "P", "a", "--from", "noon"), "--from: "),
    ],
)
def test_wrong_arguments_are_named(
    client: FakeClient, arguments: tuple[str, ...], problem: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, problem in result.stderr) == (2, True)
    assert client.asked == []


def test_a_scan_asks_for_a_range_in_all_partitions_or_in_one(client: FakeClient) -> None:
    run("scan", "P", "--from-key", "a", "--to-key", "b", "--limit", "3")
    run("scan", "P", "--prefix", "ab", "--partition", "1")
    assert client.asked == [
        ([0, 1], {"from_key_hex": "61", "to_key_hex": "62"}, 3),
        ([1], {"prefix": "ab"}, 100),
    ]
    found = json.loads(run("scan", "P", "--json").stdout)
    assert found == [{"partition": 1, "key": "a", "value": 7}]


def test_what_comes_from_a_standby_or_is_not_decoded_is_said(client: FakeClient) -> None:
    client.place |= {"standby": True, "lag": 1234, "more": True}
    client.about = {**COUNTS, "value_serde": "mine", "values_readable": False}
    client.entries = [
        {"key": "a\x1b[31m", "window": {"start_ms": 0, "end_ms": 9}, "value_hex": "ff"}
    ]
    printed = run("get", "P", "a").stdout
    assert "partition 1 comes from a standby, whose lag is 1,234" in printed
    assert "values have the serde mine, which is not decoded here" in printed
    assert "there are more" in printed
    assert "0xff" in printed
    assert "1970-01-01T00:00:00.000+00:00 to 1970-01-01T00:00:00.009+00:00" in printed
    assert "\x1b" not in printed


def test_stores_are_listed_with_who_has_them(client: FakeClient) -> None:
    printed = run("list").stdout
    assert "counts" in printed
    assert "1 (standby, lag 12)" in printed
    assert [row["standby"] for row in json.loads(run("list", "--json").stdout)] == [False, True]
