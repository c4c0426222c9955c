"""Where a task begins that reads records from a table which the brokers have deleted."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.pipeline.kinds.table_places import located
from kafka_pipeline.taskmanager.clients import Brokers
from kafka_pipeline.taskmanager.past_records import PastRecords


def histories_of(replica: ProcessorReplica, settings: TableSettings) -> dict[str, HistorySpec]:
    """Return the tables with the history of a task's inputs, by topic.

    Raises `NonRetriableError` for a place that `settings` does not allow.
    """
    found = {}
    for name, source in replica.sources.items():
        # Of topics with fewer partitions, the last tasks have the settings, but no partition.
        if source.history is not None and name in replica.from_:
            topic = replica.in_topics[replica.from_.index(name)]
            try:
                found[topic] = located(source.history, settings)
            except ConfigError as error:
                raise NonRetriableError(f"history of {topic}: {error}") from error
    return found


def open_past(
    histories: Mapping[str, HistorySpec], positions: Mapping[Partition, int], brokers: Brokers
) -> dict[Partition, PastRecords]:
    """Return the records from the task's positions up to where the topics go on.

    A partition that the brokers have from its position on needs no table. Raises
    `NonRetriableError` if records are in neither, and as `History` does.
    """
    places = [place for place in positions if place[0] in histories]
    oldest = brokers.oldest_offsets(places)
    places = [place for place in places if positions[place] < oldest[place]]
    if not places:
        return {}
    # Loading Arrow's datasets takes a while, and most tasks have no history.
    from kafka_pipeline.streams.tables.history import History

    ids = brokers.topic_ids([*histories])
    found = {}
    for topic, number in places:
        history = History(histories[topic], topic, ids[topic], number)
        start, first = positions[topic, number], oldest[topic, number]
        if history.end < first:
            raise NonRetriableError(
                f"{topic}[{number}] begins at offset {first:,}, and its history, table "
                f"{history.place}, ends at {history.end:,} for {history.application}: "
                f"{counted(first - max(history.end, start), 'offset')} in between are in neither. "
                "If the topic was deleted and made again, its records have another id in the "
                f"table. To leave them out, `pipeline reset` with --to-offset {first}"
            )
        found[topic, number] = PastRecords(history.read, history.skip_empty(start), history.end)
    return found
