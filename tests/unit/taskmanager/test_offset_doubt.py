"""An offset that a leader does not have, and what other brokers say about it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.taskmanager import offset_doubt
from kafka_pipeline.taskmanager.offset_doubt import SURE_AFTER_S, SURE_ANSWERS, OffsetDoubt

PLACE = ("in", 0)
CLAIM = ReadError(PLACE, "out of range", is_out_of_range=True)


class Doubt:
    """A doubt about offset 7, with a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(offset_doubt, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.doubt = OffsetDoubt()
        self.doubt.claim(CLAIM)

    def ask_epochs(self, *errors: ReadError, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.doubt.weigh_epochs({PLACE: Committed(7, leader_epoch=3)}, errors)

    def ask(self, end: int, oldest: int = 0, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.doubt.weigh({PLACE: 7}, {PLACE: oldest}, {PLACE: end})


@pytest.fixture
def doubt(monkeypatch: pytest.MonkeyPatch) -> Doubt:
    return Doubt(monkeypatch)


def test_offset_before_the_oldest_is_lost_at_once(doubt: Doubt) -> None:
    with pytest.raises(NonRetriableError, match=r"^in\[0\]: out of range$"):
        doubt.ask(end=20, oldest=8)


def test_offset_behind_the_end_is_lost_once_all_have_said_so_for_long(doubt: Doubt) -> None:
    for _ in range(2 * SURE_ANSWERS):
        with pytest.raises(TransactionFailedError, match="ends at 6, before 7"):
            doubt.ask(end=6)
    with pytest.raises(NonRetriableError, match="out of range"):
        doubt.ask(end=6, after_s=SURE_AFTER_S)


def test_few_answers_decide_nothing_however_long_they_take(doubt: Doubt) -> None:
    for _ in range(SURE_ANSWERS - 1):
        with pytest.raises(TransactionFailedError):
            doubt.ask(end=6, after_s=SURE_AFTER_S)
    with pytest.raises(NonRetriableError):
        doubt.ask(end=6)


def test_one_answer_with_the_offset_ends_the_doubt(doubt: Doubt) -> None:
    for _ in range(SURE_ANSWERS):
        with pytest.raises(TransactionFailedError):
            doubt.ask(end=6)
    doubt.ask(end=7, after_s=SURE_AFTER_S)
    assert not doubt.doubt.partitions
    doubt.doubt.claim(CLAIM)
    with pytest.raises(TransactionFailedError, match="1 answers in 0 s"):
        doubt.ask(end=6)


def test_epoch_that_no_leader_knows_is_that_of_another_log_once_all_have_said_so_for_long(
    doubt: Doubt,
) -> None:
    """Else the task would start again without end, and only its reason would say why."""
    for _ in range(2 * SURE_ANSWERS):
        with pytest.raises(TransactionFailedError, match=r"^in\[0\]: .* epoch 3 .* offset 7, by "):
            doubt.ask_epochs(CLAIM)
        doubt.ask(end=20)
    with pytest.raises(NonRetriableError, match=r"another cluster.* `pipeline reset`"):
        doubt.ask_epochs(CLAIM, after_s=SURE_AFTER_S)


def test_one_leader_that_knows_the_epoch_ends_the_doubt(doubt: Doubt) -> None:
    for _ in range(SURE_ANSWERS):
        with pytest.raises(TransactionFailedError):
            doubt.ask_epochs(CLAIM)
    doubt.ask_epochs()
    with pytest.raises(TransactionFailedError, match="1 answers in 0 s"):
        doubt.ask_epochs(CLAIM, after_s=SURE_AFTER_S)


def test_unknown_epoch_of_an_offset_behind_the_end_counts_as_out_of_range(doubt: Doubt) -> None:
    doubt.ask(end=20)
    with pytest.raises(TransactionFailedError):
        doubt.ask_epochs(CLAIM)
    with pytest.raises(TransactionFailedError, match="ends at 6, before 7"):
        doubt.ask(end=6)
