"""Records as text, so that a test case is a line: `A:1@10` is key, value and timestamp.

Results have their windows: `A[0,10]=1+2@10` is key, window, value and timestamp. `null` is `None`.
"""

from __future__ import annotations

import re
from typing import Any

from kafka_pipeline import Processor, Record, StreamsBuilder, serdes
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import Input, pipe

_INPUT = re.compile(r"(?P<key>\w+):(?P<value>[^@]*)@(?P<time>\d+)")


def inputs(text: str, topic: str = "in") -> list[Input]:
    """Return records from `A:1@10 B:2@11`."""
    found = [_INPUT.fullmatch(each) for each in text.split()]
    assert all(found), text
    return [
        (topic, _value(match["key"]), _value(match["value"]), int(match["time"]))
        for match in found
        if match
    ]


def _value(text: str) -> str | None:
    return None if text == "null" else text


def shown(key: Any, value: Any, timestamp: int) -> str:
    """Return a result as text, with its window if it has one."""
    if isinstance(key, tuple):
        key = f"{key[0]}[{key[1][0]},{key[1][1]}]"
    return f"{'null' if key is None else key}={'null' if value is None else value}@{timestamp}"


def watch(table: Table) -> list[str]:
    """Return a list to which every result of a table is added, as text."""
    found: list[str] = []
    stream = table.to_stream()
    stream.process(lambda: _Watching(found))
    return found


class _Watching(Processor):
    def __init__(self, found: list[str]) -> None:
        self._found = found

    def process(self, record: Record) -> None:
        self._found.append(shown(record.key, record.value, record.timestamp))


def results(built: StreamsBuilder, text: str, watched: list[str]) -> list[str]:
    """Return what a watched table gives for records of the topic `in`."""
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(text), serdes.string, serdes.string)
    return watched
