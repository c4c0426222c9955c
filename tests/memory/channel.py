"""The driver's channel of a PipelineThread that has no driver."""

from __future__ import annotations

from kafka_pipeline.taskmanager import channel_messages
from tests.memory.clock import Clock


class QuietChannel:
    """A driver's channel whose other end sends only what a test asks for."""

    def __init__(self, clock: Clock) -> None:
        self.commands: list[channel_messages.Command] = []
        self.is_lost = False
        self.silent_since_s: float | None = None
        self._clock = clock

    @property
    def last_heard_s(self) -> float:
        since_s = self.silent_since_s
        return self._clock.now_s if since_s is None else since_s

    def receive(self, wait_s: float = 0) -> channel_messages.Command | None:
        if self.commands:
            return self.commands.pop(0)
        self._clock.advance(wait_s)
        return None

    def send(self, message: channel_messages.ToDriver) -> None:
        pass
