"""The Kafka that the processes of a test run share."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests import brokers
from tests.brokers import shared_cluster


class FakeCluster:
    """A cluster without processes, which is found in its folder while it runs."""

    running: ClassVar[dict[Path, FakeCluster]] = {}
    starts = 0
    fails = False

    def __init__(self, directory: Path, **_settings: Any) -> None:
        self._directory = directory
        self.bootstrap_servers = "none yet"

    @classmethod
    def find(cls, directory: Path) -> FakeCluster | None:
        return cls.running.get(directory)

    def start(self) -> None:
        if FakeCluster.fails:
            raise TimeoutError
        FakeCluster.starts += 1
        self.bootstrap_servers = f"start {FakeCluster.starts}"
        self.running[self._directory] = self

    def stop(self) -> None:
        del self.running[self._directory]


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "LocalCluster", FakeCluster)
    monkeypatch.setattr(brokers, "delete_data", lambda _directory: None)
    monkeypatch.setattr(FakeCluster, "running", {})
    monkeypatch.setattr(FakeCluster, "starts", 0)


def test_the_first_user_starts_it_and_the_last_one_stops_it(tmp_path: Path) -> None:
    first, second = ExitStack(), ExitStack()
    assert first.enter_context(shared_cluster(tmp_path)) == "start 1"
    assert second.enter_context(shared_cluster(tmp_path)) == "start 1"
    first.close()
    assert FakeCluster.running
    second.close()
    assert not FakeCluster.running
    with shared_cluster(tmp_path) as servers:
        assert servers == "start 2"


def test_one_that_does_not_start_has_no_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeCluster, "fails", True)
        with pytest.raises(TimeoutError), shared_cluster(tmp_path):
            pass
    with shared_cluster(tmp_path) as servers:
        assert servers == "start 1"
    assert not FakeCluster.running
