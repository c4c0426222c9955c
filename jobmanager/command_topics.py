"""Keeps a topic that takes no commands from stopping the commands to all TaskManagers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import structlog

from kafka_pipeline.common.protocol.messages import Message, Processors, ReportRequest
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.jobmanager import findings

_MOST_FAILURES = 2
_ASK_S = 5.0

logger = structlog.get_logger()


class CommandTopics:
    """Divides commands into transactions, and leaves out those that Kafka does not take.

    A transaction fails as a whole. So once one has failed, the commands to each TaskManager are in
    a transaction of their own. If that fails twice in a row, the TaskManager gets none, until
    Kafka takes a request for a report in its topic. The core repeats what no report confirms.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._is_divided = False
        self._failures = Counter[int]()
        self._broken: dict[int, str] = {}
        """The TaskManagers that get no commands, with the reasons."""
        self._asked_s = 0.0

    @property
    def findings(self) -> list[str]:
        """What the heartbeats of the JobManager say about this."""
        return [findings.no_commands_for(tm_id, why) for tm_id, why in sorted(self._broken.items())]

    def transactions(self, commands: Sequence[Message]) -> list[list[Message]]:
        """Return what to write in one transaction each, in this order."""
        divided: dict[int | None, list[Message]] = {}
        for command in commands:
            reader = command.tm_id if isinstance(command, Processors) else None
            if reader is None or reader not in self._broken:
                divided.setdefault(reader if self._is_divided else None, []).append(command)
        return list(divided.values())

    def written(self, commands: Sequence[Message]) -> None:
        """Note that Kafka has taken a transaction."""
        for reader in _readers(commands):
            del self._failures[reader]

    def failed(self, commands: Sequence[Message], error: Exception) -> None:
        """Note that Kafka has not taken a transaction."""
        self._is_divided = True
        readers = _readers(commands)
        if len(readers) > 1:
            return
        for reader in readers:
            self._failures[reader] += 1
            if self._failures[reader] >= _MOST_FAILURES:
                self._broken[reader] = str(error)
                logger.error("a TaskManager gets no commands", task_manager=reader)

    def requests(self, live: Mapping[int, str], epoch: int, now_s: float) -> list[ReportRequest]:
        """Return what to write outside of transactions, to learn whether topics are mended."""
        if now_s - self._asked_s < _ASK_S:
            return []
        self._asked_s = now_s
        return [ReportRequest(each, live[each], epoch) for each in self._broken if each in live]

    def confirmed(self, topics: Collection[str]) -> None:
        """Note that Kafka has taken records in these topics."""
        for reader in [*self._broken]:
            if self._names.processors(str(reader)) in topics:
                del self._broken[reader], self._failures[reader]
                logger.info("a TaskManager gets commands again", task_manager=reader)


def _readers(commands: Sequence[Message]) -> set[int]:
    return {command.tm_id for command in commands if isinstance(command, Processors)}
