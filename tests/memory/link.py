"""The connection from one worker to the brokers: it takes time, and the worker may end in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.errors import ControlFlow
from kafka_pipeline.common.kafka.clients import translate
from tests.memory.broker import Broker
from tests.memory.clock import Clock
from tests.memory.faults import Faults

T = TypeVar("T")

_RETRY_S = 0.02
_WORTH_A_RETRY = frozenset({KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.UNSTABLE_OFFSET_COMMIT})


class WorkerCrashedError(ControlFlow):
    """The worker has ended in the middle of a call; nothing in the worker may handle this."""


def _nobody() -> None:
    pass


class Link:
    """The connection that all clients of a worker share; once it is cut, all their calls fail."""

    def __init__(self, broker: Broker, faults: Faults) -> None:
        self.broker = broker
        self.faults = faults
        self.is_cut = False
        self.let_others_act: Callable[[], None] = _nobody
        """Called in the middle of some calls."""
        self.on_cut: list[Callable[[], None]] = []

    @property
    def clock(self) -> Clock:
        """The clock that everything shares."""
        return self.broker.clock

    def cut(self) -> None:
        """End the worker; its clients vanish without closing."""
        if not self.is_cut:
            self.is_cut = True
            for vanish in self.on_cut:
                vanish()

    def crash(self) -> NoReturn:
        """End the worker from within; raises `WorkerCrashedError`."""
        self.cut()
        raise WorkerCrashedError

    def travel(self) -> None:
        """Let a request or an answer take its time; raises `WorkerCrashedError`."""
        faults, weather = self.faults, self.faults.weather
        if weather.delay_ms:
            self.clock.advance(faults.delay_s())
        if faults.happens(weather.preempted):
            self.let_others_act()
        if faults.happens(weather.crash):
            self.broker.tell("a worker crashes")
            self.cut()
        if self.is_cut:
            raise WorkerCrashedError

    def ask(self, call: Callable[[], T], timeout_s: float) -> T:
        """Make a request; retry while a transaction blocks it. Raises what `translate` returns."""
        deadline_s = self.clock.now_s + timeout_s
        while True:
            self.travel()
            try:
                return call()
            except KafkaException as exception:
                may_pass = exception.args[0].code() in _WORTH_A_RETRY
                if not may_pass or self.clock.now_s >= deadline_s:
                    raise translate(exception) from exception
            self.clock.advance(_RETRY_S)
