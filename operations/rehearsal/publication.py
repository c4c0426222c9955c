"""What a rehearsal publishes for the console: one record, which replaces the one before.

The record is in a topic of the job, not of its shadow, so it stays when the shadow is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.figures import by_processor
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.control import ControlReader, ReportWriter
from kafka_pipeline.common.kafka.read_to_end import read_to_end
from kafka_pipeline.common.protocol.messages import (
    MAX_RECORD_BYTES,
    ControlRecord,
    MalformedMessageError,
)
from kafka_pipeline.common.protocol.signing import require_signed, signed
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.common.typed_json import Count, dump, from_json, parse
from kafka_pipeline.operations.rehearsal.changes import ShownVersion
from kafka_pipeline.operations.rehearsal.comparer import Side
from kafka_pipeline.operations.rehearsal.report_json import ReportJson, Shown

PUBLISH_S = 2.0
"""How often a rehearsal that compares is published."""

_SEGMENT_BYTES = str(16 * 1024 * 1024)
# Only the last record counts, and Kafka never deletes the segment that is written to.
_POLICY = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": _SEGMENT_BYTES,
    "segment.bytes": _SEGMENT_BYTES,
    "message.timestamp.type": "LogAppendTime",
}
_MOST_BYTES = MAX_RECORD_BYTES * 9 // 10
_FLUSH_S = 6.0
_POLL_S = 0.1
_STALL_TIMEOUT_S = 10.0


class Phase(StrEnum):
    """Where a rehearsal is; `ENDED` and `FAILED` are final."""

    SAVING = "saving"
    STARTING = "starting"
    COMPARING = "comparing"
    ENDED = "ended"
    FAILED = "failed"


class ShownFigures(Shown, frozen=True, kw_only=True):
    """The figures of a processor's tasks: how many are in each state, lag, and dead letters."""

    states: Mapping[str, Count]
    lag: Count | None
    dead_letters: Count


class Publication(Shown, frozen=True, kw_only=True):
    """A rehearsal as the console shows it; times are by the clock of the command's host.

    `by` is a user at a host. `until_ms` is when the comparison is to end, and `reason` is why a
    rehearsal FAILED. `figures` are by processor.
    """

    phase: Phase
    by: str
    began_at_ms: int
    versions: Mapping[Side, ShownVersion]
    until_ms: int | None = None
    ended_at_ms: int | None = None
    reason: str = ""
    figures: Mapping[Side, Mapping[str, ShownFigures]] = {}
    report: ReportJson | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A publication that was read, and when it was written, by the brokers' clock."""

    publication: Publication
    written_at_ms: int


class Publisher:
    """Publishes a rehearsal of a job, again and again; for one thread."""

    def __init__(self, config: Config, admin: Admin, first: Publication) -> None:
        """Publish the first state. Raises `PipelineError` if the topic cannot be made."""
        self._config = config
        topic = TopicSpec(config.topic_names.rehearsal, 1, config.replication_factor, _POLICY)
        admin.ensure_topics([topic])
        self._writer = ReportWriter(config)
        self._current = first
        self._published_s = 0.0
        self.update()

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next publication."""
        return time.monotonic() - self._published_s >= PUBLISH_S

    def update(self, **changes: Any) -> None:
        """Change fields of the publication, and publish it; does not block.

        What Kafka does not take within 5 s is logged, and dropped: the next one replaces it.
        """
        self._current = replace(self._current, **changes)
        self._writer.write([record_of(self._config, self._current)])
        self._published_s = time.monotonic()

    def fail_unless_ended(self, reason: str) -> None:
        """Publish that the rehearsal failed, unless its end is published."""
        if self._current.phase is not Phase.ENDED:
            self.update(phase=Phase.FAILED, ended_at_ms=wall_clock_ms(), reason=reason)

    def close(self) -> None:
        """Wait for up to 6 s until all is written."""
        self._writer.close(_FLUSH_S)


def figures_of(status: ClusterStatus) -> dict[str, ShownFigures]:
    """Return the figures of each processor of a job."""
    return {
        id_: ShownFigures(
            states=dict(its.states), lag=its.lag, dead_letters=its.counts["dead_letters"]
        )
        for id_, its in by_processor(status).items()
    }


def record_of(config: Config, publication: Publication) -> ControlRecord:
    """Return the record of a publication, signed if the job has a key.

    If it would be too large, it has fewer examples of differences.
    """
    value = dump(publication)
    for most in (4, 1, 0):
        if len(value) <= _MOST_BYTES:
            break
        value = dump(_with_fewer_examples(publication, most))
    record = ControlRecord(config.topic_names.rehearsal, b"", value)
    return record if config.control_key is None else signed(record, config.control_key)


def _with_fewer_examples(publication: Publication, most: int) -> Publication:
    """Return a publication with up to `most` examples of each output."""
    report = publication.report
    if report is None:
        return publication
    outputs = {
        name: replace(output, examples=output.examples[:most])
        for name, output in report.outputs.items()
    }
    return replace(publication, report=replace(report, outputs=outputs))


def read_publication(config: Config, admin: Admin) -> Published | None:
    """Return the last publication of a rehearsal of a job; `None` if there is none.

    Raises `UnavailableError` if Kafka does not answer, and if the record is not one of a rehearsal
    or not signed with the job's key.
    """
    topic = config.topic_names.rehearsal
    if not admin.finds(topic):
        return None
    records: list[ControlRecord] = []
    with closing(ControlReader(config, [topic], history=1)) as reader:
        ends = {(topic, 0): reader.ends[topic]}
        try:
            for found, _ in read_to_end(
                reader, ends, lambda: reader.read(_POLL_S), _STALL_TIMEOUT_S
            ):
                records += found
        except EngineError as error:
            raise UnavailableError(f"the rehearsal cannot be read: {error}") from error
    return parsed(config, records[-1]) if records else None


def parsed(config: Config, record: ControlRecord) -> Published:
    """Return the publication in a record; see `read_publication` for the errors."""
    try:
        if config.control_key is not None:
            require_signed(record, config.control_key)
        found = from_json(Publication, parse(record.value), "the rehearsal")
    except (MalformedMessageError, ValueError) as error:
        raise UnavailableError(
            f"topic {record.topic} has no rehearsal that can be read: {error}. "
            "`pipeline rehearse CONFIG --discard` deletes it"
        ) from error
    return Published(found, record.timestamp_ms)


def remove_publication(config: Config, admin: Admin) -> list[str]:
    """Delete what rehearsals of a job have published; return the topic if there was one.

    Raises `UnavailableError` if Kafka does not do it.
    """
    topic = config.topic_names.rehearsal
    try:
        existing = [*admin.partition_counts([topic])]
        admin.delete_topics(existing)
    except EngineError as error:
        raise UnavailableError(f"the report of the rehearsal stays: {error}") from error
    return existing
