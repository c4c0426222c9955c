"""The sides of a join whose records are upserts: the former record of a key loses its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.changelog import (
    KeptChangelog,
    Lost,
    are_there,
    differ,
    read_lost,
)
from kafka_pipeline.streams.sql.join_records import JoinRecords, Mask, Origin, SideTables
from kafka_pipeline.streams.sql.join_shape import RECORD, SIDES
from kafka_pipeline.streams.sql.state_stores import changelogs_of


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What the records of a `side` replace.

    These are its `own` records in a batch, whose indexes in it are `places`. The rows that are
    `removed` are of the `former` records.
    """

    side: int
    own: Batch
    places: npt.NDArray[np.int64]
    former: Lost
    removed: pa.Table
    table: pa.Table

    def origins(self, differs: Mask) -> list[Origin | None]:
        """Return what takes the removed rows out; `None` for those that stay.

        A row that stays has the time that it had when a later record takes it out.
        """
        found, stays = list[Origin | None](), dict[bytes | None, int]()
        times = items_of(self.former.rows.timestamps)
        for own_place, time in zip(self.former.places, times, strict=True):
            key, place = self.own.keys[own_place], int(self.places[own_place])
            had = stays.pop(key, time)
            if not differs[place]:
                stays[key] = had
            found.append(Origin(place, had) if differs[place] else None)
        return found


class ChangingSides:
    """The newest record of each key of those sides, for one task.

    An input that is joined with itself has one store.
    """

    def __init__(self, records: JoinRecords, join: JoinSpec, context: ProcessorContext) -> None:
        self._records = records
        assert join.regular is not None, "it has no bounds of time"
        self._has_ttl = join.regular.ttl_ms is not None
        self._sides = [SIDES.index(side) for side in join.changing]
        self._kept = [KeptChangelog(context, name) for name in changelogs_of(join)]

    def keyless(self, batch: Batch, sides: tuple[Mask, Mask]) -> Mask:
        """Return the records of these sides without a key: it is not known what they replace."""
        found = np.zeros(len(batch), np.bool_)
        for side in self._sides:
            found |= sides[side]
        return found & np.array([key is None for key in batch.keys], np.bool_)

    def with_lost(
        self, batch: Batch, chosen: tuple[Mask, Mask], found: SideTables
    ) -> tuple[SideTables, tuple[Mask, Mask]]:
        """Return tables that also have the records that those of a batch replace, and the chosen.

        The tables `found` have the `chosen` records. Those that delete their key are not in them
        any more. An update by which nothing differs, see `differ`, is neither there nor chosen any
        more: the row of the former record stays, with its time. Raises `ConfigError` as `read_lost`
        does.
        """
        sides, differs = list[_Replaced](), np.zeros(len(batch), np.bool_)
        former: Lost | None = None
        for number, side in enumerate(self._sides):
            own = self._of_side(batch, chosen, side, found.stop)
            if not len(own):
                continue
            if number < len(self._kept):
                former = self._kept[number].lost(own)
            assert former is not None, "there is a store for each side, or one for both"
            numbers, table = found.tables[side][RECORD], found.tables[side].drop_columns([RECORD])
            removed, table = read_lost(former, own, table, partial(self._records.read, side))
            by_time = self._has_ttl or self._records.reads_time(side)
            places = np.flatnonzero(chosen[side][: found.stop])
            fields = self._records.fields_of_json[side]
            differs[places] |= differ(former, own, removed, table, by_time=by_time, fields=fields)
            table = table.append_column(RECORD, numbers)
            sides.append(_Replaced(side, own, places, former, removed, table))
        tables, lost = [*found.tables], list[Origin]()
        for each in sides:
            is_new = pa.array(differs[each.places] & are_there(each.own))
            origins = each.origins(differs)
            is_lost = pa.array([origin is not None for origin in origins], pa.bool_())
            removed, first = each.removed.filter(is_lost), found.stop + len(lost)
            numbers = pa.array(range(first, first + len(removed)), pa.int64())
            removed = removed.append_column(RECORD, numbers)
            tables[each.side] = pa.concat_tables([each.table.filter(is_new), removed])
            lost += filter(None, origins)
        taken = [*chosen]
        for side in self._sides:
            taken[side] = chosen[side] & differs
        return replace(found, tables=tables, lost=lost), (taken[0], taken[1])

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
