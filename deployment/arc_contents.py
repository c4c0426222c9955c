"""What is left in arcs that are to be drained, and what to do if nobody reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.kafka.proven_ends import proven_ends
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.suggest import counted, listed
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import PipelineVersion
from kafka_pipeline.deployment.plan import Arc

_REQUEST_TIMEOUT_S = 30.0


class ArcContents:
    """Counts what the readers of arcs have not processed yet."""

    def __init__(self, config: Config, admin: Admin, pipeline: Pipeline) -> None:
        """Take the pipeline that still runs."""
        self._config = config
        self._admin = admin
        self._pipeline = pipeline
        self._offsets = Offsets(config, admin)

    def ends(self, arc: Arc) -> dict[Partition, int]:
        """Return where the partitions of an arc end now, as their leaders say. Raises as `left`."""
        return self._admin.stable_ends(self._pipeline.places(arc.topic))

    def proven_ends(self, arc: Arc) -> dict[Partition, int]:
        """Return where the partitions of an arc end for good, once its writers are fenced.

        See `proven_ends`. Fences the first task of a writer once more.
        """
        task = self._pipeline.names.transactional_id(TaskId(arc.writers[0], 0))
        return proven_ends(self._config, task, self._pipeline.places(arc.topic))

    def left(self, arc: Arc, ends: Mapping[Partition, int]) -> int:
        """Return how many offsets of an arc its reader has not committed; 0 if no record is left.

        The last offsets are markers of transactions. Readers pass them, but commit only records.
        A broker that is cut off can only make it too many: it knows former offsets of the reader,
        and does not have the last records. Raises `EngineError` or `PipelineError` if Kafka does
        not answer.
        """
        partitions = self._pipeline.places(arc.topic)
        oldest = self._admin.oldest_offsets(partitions)
        group = self._pipeline.names.consumer_group(arc.reader)
        with closing(PartitionReader(self._config, group)) as reader:
            committed = offsets_of(reader.committed(partitions, _REQUEST_TIMEOUT_S))
        at = {each: max(committed.get(each, 0), oldest[each]) for each in partitions}
        behind = {each: offset for each, offset in at.items() if offset < ends[each]}
        first = self._offsets.first_records(behind)
        return sum(
            ends[each] - offset
            for each, offset in behind.items()
            if each not in first or first[each].offset < ends[each]
        )


def held_up(
    arc: Arc, left: int, failed: Sequence[TaskStatus], coming: PipelineVersion | None
) -> str:
    """Return why an arc is not drained, and what can be done; "" if its reader goes on.

    `failed` are the tasks of its reader that have failed. `coming` is the version that waits, or
    `None` if the whole pipeline is to be drained.
    """
    if not failed or not left:
        return ""
    tasks = [str(status.task) for status in failed]
    waiting, back = "the drain waits", "`pipeline resume` takes the drain back"
    if coming is not None:
        number = coming.number
        waiting = f"version {number} has waited since {shown_moment(coming.made_at_ms)}"
        back = f"`pipeline rollback`, or `pipeline apply`, replaces version {number}"
    reader = arc.reader
    return (
        f"{waiting} for {arc.topic} to be drained: {counted(left, 'offset')} left, and "
        f"{listed(tasks)} {'is' if len(tasks) == 1 else 'are'} FAILED ({failed[0].reason}). "
        f"What you can do: {back}. Once the cause is gone, `pipeline restart {reader}` lets it "
        f"continue. To give up what is left: `pipeline pause {reader}`, then {_reset(arc)}"
    )


def ways_on(arc: Arc, left: int) -> str:
    """Return what can be done about an arc whose reader is paused."""
    return (
        f"`pipeline resume {arc.reader}` lets it continue, and {_reset(arc)} gives up what is left "
        f"({counted(left, 'offset')})"
    )


def _reset(arc: Arc) -> str:
    return f"`pipeline reset {arc.reader} --to-latest --topic {arc.topic}`"
