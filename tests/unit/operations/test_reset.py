"""When a reset is refused, and what it leaves if it is interrupted, without a Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.deployment.desired_state import StopOrder, Wish
from kafka_pipeline.operations import reset as module
from kafka_pipeline.operations.reset import Inputs, Reset, Shift, Target
from kafka_pipeline.operations.starts import Earliest
from tests.unit.streams.pipeline.loading import CONFIG, load

COUNTER = "- {id: Counter, type: count, to: [sink]}"
TASKS = 2
EARLIEST = Earliest()


class Group:
    """The positions of the processor's group, and readers and producers for it."""

    def __init__(self) -> None:
        self.positions: dict[Partition, Committed] = {}
        self.commits_left = 1_000
        """How many commits succeed before the process is killed."""

    def reader(self, *_: object) -> Any:
        return SimpleNamespace(
            committed=lambda *_: dict(self.positions),
            group_metadata="metadata",
            close=lambda: None,
        )

    def producer(self, *_: object) -> Any:
        return SimpleNamespace(
            fence=lambda *_: None, begin=lambda: None, commit=self._commit, close=lambda: None
        )

    def _commit(self, positions: Mapping[Partition, Committed], metadata: str) -> None:
        assert metadata == "metadata"
        if not self.commits_left:
            raise KeyboardInterrupt
        self.commits_left -= 1
        self.positions |= positions


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()
    monkeypatch.setattr(module, "PartitionReader", made.reader)
    monkeypatch.setattr(module, "TaskProducer", made.producer)
    return made


def planned(
    monkeypatch: pytest.MonkeyPatch, stop: StopOrder | None = None, target: Target = EARLIEST
) -> Reset:
    admin: Any = SimpleNamespace(
        stable_ends=lambda asked: dict.fromkeys(asked, 9),
        oldest_offsets=lambda asked: dict.fromkeys(asked, 0),
    )
    version = SimpleNamespace(pipeline=load(COUNTER))
    deployment = SimpleNamespace(current=version, wish=Wish(version=1, stop=stop))
    monkeypatch.setattr(module, "connected", lambda _config: admin)
    monkeypatch.setattr(module, "read_deployment", lambda *_: deployment)
    monkeypatch.setattr(module, "read_status", lambda _config: None)
    monkeypatch.setattr(module, "_require_rest", lambda *_: None)
    monkeypatch.setattr(module, "settled_ends", lambda *_: {})
    return Reset(CONFIG, ["Counter"], target, Inputs())


def test_tasks_do_not_begin_before_a_reset_that_deletes_their_state_is_complete(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.positions = {("in", n): Committed(5, 1_000, dead_letters=3) for n in range(TASKS)}

    def broken(*_: object) -> None:
        raise UnavailableError("Kafka is gone")

    monkeypatch.setattr(module, "renew_topics", broken)
    with pytest.raises(UnavailableError, match="Kafka is gone"):
        planned(monkeypatch).carry_out(clears_state=True)
    marked = Committed(5, 1_000, dead_letters=3, is_being_reset=True)
    assert [*group.positions.values()] == [marked] * TASKS
    monkeypatch.setattr(module, "renew_topics", lambda *_: None)
    planned(monkeypatch).carry_out(clears_state=True)
    assert [*group.positions.values()] == [Committed(0, dead_letters=3)] * TASKS


BEFORE, MOVED = Committed(5), Committed(3)
MARKED = Committed(5, is_being_reset=True)


@pytest.mark.parametrize(
    ("commits", "left"),
    [
        (0, [BEFORE, BEFORE]),
        (1, [MARKED, BEFORE]),
        (2, [MARKED, MARKED]),
        (3, [MOVED, MARKED]),
    ],
)
def test_shift_that_is_killed_at_any_commit_and_repeated_shifts_once(
    group: Group, monkeypatch: pytest.MonkeyPatch, commits: int, left: list[Committed]
) -> None:
    group.positions = {("in", n): BEFORE for n in range(TASKS)}
    group.commits_left = commits
    with pytest.raises(KeyboardInterrupt):
        planned(monkeypatch, target=Shift(-2)).carry_out(clears_state=False)
    assert [*group.positions.values()] == left
    group.commits_left = 1_000
    planned(monkeypatch, target=Shift(-2)).carry_out(clears_state=False)
    assert [*group.positions.values()] == [MOVED, MOVED]


@pytest.mark.parametrize(
    ("purpose", "why"), [("savepoint", "is making a savepoint"), ("restore", "is restoring the")]
)
def test_nothing_is_reset_while_a_savepoint_is_made_or_restored(
    purpose: Literal["savepoint", "restore"],
    why: str,
    group: Group,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=why):
        planned(monkeypatch, StopOrder(purpose=purpose, token="t", by="ada@x"))
