"""The sides of a join whose records are upserts: the former record of a key loses its rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.changelog import KeptChangelog, Lost, are_there, read_lost
from kafka_pipeline.streams.sql.join_records import JoinRecords, Mask, Origin, SideTables
from kafka_pipeline.streams.sql.join_shape import RECORD, SIDES
from kafka_pipeline.streams.sql.state_stores import changelogs_of


class ChangingSides:
    """The newest record of each key of those sides, for one task.

    An input that is joined with itself has one store.
    """

    def __init__(self, records: JoinRecords, join: JoinSpec, context: ProcessorContext) -> None:
        self._records = records
        self._sides = [SIDES.index(side) for side in join.changing]
        self._kept = [KeptChangelog(context, name) for name in changelogs_of(join)]

    def keyless(self, batch: Batch, sides: tuple[Mask, Mask]) -> Mask:
        """Return the records of these sides without a key: it is not known what they replace."""
        found = np.zeros(len(batch), np.bool_)
        for side in self._sides:
            found |= sides[side]
        return found & np.array([key is None for key in batch.keys], np.bool_)

    def with_lost(self, batch: Batch, chosen: tuple[Mask, Mask], found: SideTables) -> SideTables:
        """Return tables that also have the records that those of a batch replace.

        Records that delete their key are not in them any more. The tables `found` have the
        `chosen` records. Raises `ConfigError` as `read_lost` does.
        """
        tables, lost = [*found.tables], list[Origin]()
        former: Lost | None = None
        for number, side in enumerate(self._sides):
            places = np.flatnonzero(chosen[side][: found.stop])
            own = self._of_side(batch, chosen, side, found.stop)
            if not len(own):
                continue
            if number < len(self._kept):
                former = self._kept[number].lost(own)
            assert former is not None, "there is a store for each side, or one for both"
            numbers, table = tables[side][RECORD], tables[side].drop_columns([RECORD])
            removed, table = read_lost(former, own, table, partial(self._records.read, side))
            table = table.append_column(RECORD, numbers).filter(are_there(own))
            first = found.stop + len(lost)
            numbers = pa.array(range(first, first + len(removed)), pa.int64())
            tables[side] = pa.concat_tables([table, removed.append_column(RECORD, numbers)])
            times = items_of(former.rows.timestamps)
            lost += [
                Origin(int(places[place]), time)
                for place, time in zip(former.places, times, strict=True)
            ]
        return replace(found, tables=tables, lost=lost)

    def keep(self, batch: Batch, chosen: tuple[Mask, Mask]) -> None:
        """Keep the chosen records of a batch."""
        for side, kept in zip(self._sides, self._kept, strict=False):
            own = self._of_side(batch, chosen, side, len(batch))
            if len(own):
                kept.keep(own)

    def _of_side(self, batch: Batch, chosen: tuple[Mask, Mask], side: int, stop: int) -> Batch:
        is_chosen = np.zeros(len(batch), np.bool_)
        is_chosen[:stop] = chosen[side][:stop]
        return selected(batch, is_chosen.tolist())
