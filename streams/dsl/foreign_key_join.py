"""The steps of a foreign-key join of two tables, and the topics between them (KIP-213).

    left table -> subscribe -> topic -> keep  -> topic -> resolve -> results
                             right table -> answer -^

The rows of the left table subscribe to their foreign keys, in the task of the right table that has
the key. That one keeps the subscriptions and answers them, at once and whenever the value changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.foreign_key_left import ForeignKeyJoin, ResolveAnswers, Subscribe
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    partition_of_answer,
    partition_of_subscription,
)
from kafka_pipeline.streams.dsl.foreign_key_right import (
    AnswerChanges,
    KeepSubscriptions,
    Subscriptions,
)
from kafka_pipeline.streams.dsl.graph import Graph, Step
from kafka_pipeline.streams.dsl.table_steps import FillTable
from kafka_pipeline.streams.dsl.table_values import TableValues
from kafka_pipeline.streams.dsl.topics import Repartition, repartition_topic
from kafka_pipeline.streams.partitioning import ColumnPartitioner
from kafka_pipeline.streams.serdes import Serde


@dataclass(frozen=True, slots=True)
class RightTable:
    """The right table of a join."""

    step: Step
    values: TableValues
    is_versioned: bool


def add_foreign_key_join(
    graph: Graph,
    left: Step,
    right: RightTable,
    join: ForeignKeyJoin,
    value_serde: Serde[Any] | None,
) -> Step:
    """Add the steps of a join; return the last one, which keeps the results under its name."""
    name = join.name
    sent = graph.add(
        Subscribe(join),
        [left],
        f"{name}-subscribe",
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
    )
    subscribed = graph.add(
        Repartition(partitioner=_ToForeignKeys()), [sent], f"{name}-subscriptions"
    )
    answers = f"{name}-answers"
    subscriptions = Subscriptions(
        join.where,
        f"{name}-subscriptions",
        join.right_serdes,
        repartition_topic(answers),
        left.after_key,
    )
    kept = graph.add(KeepSubscriptions(subscriptions, right.values), [subscribed], f"{name}-keep")
    changed = graph.add(
        AnswerChanges(subscriptions, right.is_versioned),
        [right.step],
        f"{name}-answer",
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
    )
    to_rows = Repartition(partitioner=_ToRows(), by_key=False)
    answered = graph.add(to_rows, [kept, changed], answers)
    resolved = graph.add(
        ResolveAnswers(join, left.after_key),
        [answered],
        f"{name}-resolve",
        key_serde=left.key_serde,
        value_serde=value_serde or graph.value_serde,
    )
    return graph.add(FillTable(join.kind.value, name), [resolved], name)


class _ToForeignKeys(ColumnPartitioner):
    """Sends subscriptions by foreign key; a row without one goes to any task, which can answer."""

    def of_columns(
        self, keys: Sequence[Any], values: Sequence[Any], num_partitions: int
    ) -> list[int]:
        return [
            partition_of_subscription(value) % num_partitions if key is None else -1
            for key, value in zip(keys, values, strict=True)
        ]


class _ToRows(ColumnPartitioner):
    """Sends answers to the partition of the row, which need not be the default one for its key."""

    def of_columns(
        self, keys: Sequence[Any], values: Sequence[Any], num_partitions: int
    ) -> list[int]:
        return list(map(partition_of_answer, values))
