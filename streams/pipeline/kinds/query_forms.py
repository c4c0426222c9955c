"""Queries of two forms that keep rows, and not groups: joins of inputs, and `OVER (…)`.

What a form keeps, and what runs it, is imported late: Arrow takes a while to import, and most hosts
do not need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    JOIN_TOPIC,
    OVER_TOPIC,
    JoinSpec,
    JoinStage,
    OverSpec,
    OverStage,
    RegularJoinSpec,
    SqlSpec,
)
from kafka_pipeline.streams.pipeline.kinds.kind import Unit
from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec, StateChange
from kafka_pipeline.streams.sql.state_stores import join_stores, over_stores
from kafka_pipeline.streams.stores import StoreBuilder

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.join_shape import PreparedJoin
    from kafka_pipeline.streams.sql.over_shape import PreparedOver


class QueryForm(ABC):
    """What `type: sql` does for a query of a form. The methods are those of `Spark`."""

    @abstractmethod
    def stores(self) -> Sequence[StoreBuilder[Any, Any]]:
        """Return the definitions of the stores."""

    @abstractmethod
    def keeps(self) -> Sequence[str]:
        """Return what is kept, and for how long, in words."""

    @abstractmethod
    def holds_ms(self) -> int:
        """Return how long results may wait."""

    @abstractmethod
    def kept_for(self, query: QuerySpec) -> str:
        """Return text that is the same for the same content, however long rows are kept."""

    @abstractmethod
    def declared_difference(self, kept: str) -> str:
        """Return what the spec alone shows to differ from a content that was kept."""

    @abstractmethod
    def change(self, kept: str, content: str) -> StateChange:
        """Compare a content that was kept with that of the query."""

    @abstractmethod
    def supplier(
        self, unit: Unit, query: QuerySpec, queries: Queries
    ) -> Callable[[], BatchProcessor]:
        """Return what makes the processor."""

    @abstractmethod
    def content_of(self, opened: Any) -> str:
        """Return what an `opened` query keeps."""

    @abstractmethod
    def opened(self, query: QuerySpec, queries: Queries) -> PreparedJoin | PreparedOver:
        """Let Spark prepare the query."""

    @abstractmethod
    def require_as_planned(self, opened: Any) -> None:
        """Raise `QueryError` if an `opened` query is another one for Spark than for the text."""

    def try_out(self, query: QuerySpec, queries: Queries) -> None:
        """Raise `QueryError` if Spark cannot run the query as it was planned."""
        with closing(self.opened(query, queries)) as opened:
            self.require_as_planned(opened)

    def content(self, query: QuerySpec, queries: Queries) -> str:
        """Return what Spark says that the query keeps."""
        with closing(self.opened(query, queries)) as opened:
            return self.content_of(opened)


def form_of(spec: SqlSpec) -> QueryForm | None:
    """Return the form of a query; `None` for those with groups, and those without state."""
    if spec.join is not None:
        return _JoinForm(spec.join)
    return None if spec.over is None else _OverForm(spec.over)


class _JoinForm(QueryForm):
    """A join of two inputs."""

    def __init__(self, join: JoinSpec) -> None:
        self._join = join

    def stores(self) -> Sequence[StoreBuilder[Any, Any]]:
        return join_stores(self._join)

    def keeps(self) -> Sequence[str]:
        join = self._join
        if join.regular is not None:
            return _kept_rows(join, join.regular)
        span_ms = max(join.before_ms + join.after_ms, 0) + join.grace_ms
        return (f"the records of {join.left} and {join.right}, for {spoken(span_ms)}",)

    def holds_ms(self) -> int:
        """Return how long rows without a partner wait."""
        join = self._join
        if join.regular is not None or not join.keeps:
            return 0
        return max(join.after_ms, join.before_ms, 0) + join.grace_ms + 1

    def kept_for(self, query: QuerySpec) -> str:
        join, regular = self._join, self._join.regular
        if regular is not None:
            if regular.stage == "rows":
                return ""
            join = structs.replace(join, regular=structs.replace(regular, ttl_ms=None))
        join = structs.replace(join, before_ms=0, after_ms=0, grace_ms=0, late_to=None)
        return f"{query.to_json()} {join!r}"

    def declared_difference(self, kept: str) -> str:
        from kafka_pipeline.streams.sql.join_shape import declared_join_difference

        return declared_join_difference(self._join, kept)

    def change(self, kept: str, content: str) -> StateChange:
        from kafka_pipeline.streams.sql.join_shape import join_change

        return join_change(self._join, kept, content)

    def supplier(
        self, unit: Unit, query: QuerySpec, queries: Queries
    ) -> Callable[[], BatchProcessor]:
        join = self._join
        results = tuple(target for target in unit.to if target not in (join.late_to, JOIN_TOPIC))
        stage = None if join.regular is None else join.regular.stage
        right = None
        if stage is None or (stage != "pairs" and join.left != join.right):
            names = [name.lower() for name in unit.from_]
            # The last tasks do not read a topic with fewer partitions.
            right = dict(zip(names, unit.in_topics, strict=True)).get(join.right, "")
        make = _processor_of_join(stage)
        return partial(make, query, join, right, results, queries.open_join)

    def content_of(self, opened: PreparedJoin) -> str:
        return opened.shape.content

    def opened(self, query: QuerySpec, queries: Queries) -> PreparedJoin:
        return queries.open_join(query)

    def require_as_planned(self, opened: PreparedJoin) -> None:
        from kafka_pipeline.streams.sql.join_processor import require_join_as_planned

        require_join_as_planned(opened.shape.join, self._join)


def _kept_rows(join: JoinSpec, regular: RegularJoinSpec) -> tuple[str, ...]:
    """Return the records that a regular join keeps, and for how long, in words."""
    names = {"left": join.left, "right": join.right}
    changing = " and ".join(dict.fromkeys(names[side] for side in join.changing))
    upserts = (f"the last record of each key of {changing}",) if changing else ()
    if regular.stage == "rows":
        return upserts
    inputs = " and ".join(dict.fromkeys((join.left, join.right)))
    long = "forever" if regular.kept_ms is None else f"for {spoken(regular.kept_ms)}"
    rows = f"the records of {inputs}, {long}"
    return (*upserts, rows) if regular.stage == "whole" else (rows,)


def _processor_of_join(stage: JoinStage | None) -> Any:
    """Return the processor of a join without bounds of time at a stage, or of one with bounds."""
    if stage is None:
        from kafka_pipeline.streams.sql.join_processor import JoinProcessor

        return JoinProcessor
    from kafka_pipeline.streams.sql.regular_join import RegularJoinProcessor
    from kafka_pipeline.streams.sql.regular_join_topic import JoinedRowsProcessor, JoinRowsProcessor

    return {
        "whole": RegularJoinProcessor,
        "rows": JoinRowsProcessor,
        "pairs": JoinedRowsProcessor,
    }[stage]


class _OverForm(QueryForm):
    """A query with `OVER (…)`."""

    def __init__(self, over: OverSpec) -> None:
        self._over = over

    def stores(self) -> Sequence[StoreBuilder[Any, Any]]:
        return over_stores(self._over)

    def keeps(self) -> Sequence[str]:
        over = self._over
        if over.stage == "rows":
            return ()
        rows = "the last records of each group, and all records"
        if not over.counts_rows:
            rows = "the records"
        return (f"{rows} for {spoken(over.range_ms + over.grace_ms)}",)

    def holds_ms(self) -> int:
        """Return how long rows wait until they are due."""
        return 0 if self._over.stage == "rows" else self._over.grace_ms + 1

    def kept_for(self, query: QuerySpec) -> str:
        return "" if self._over.stage == "rows" else f"{query.to_json()} over {self._over.stage}"

    def declared_difference(self, kept: str) -> str:
        from kafka_pipeline.streams.sql.over_shape import declared_over_difference

        return declared_over_difference(self._over, kept)

    def change(self, kept: str, content: str) -> StateChange:
        from kafka_pipeline.streams.sql.over_shape import over_change

        return over_change(self._over, kept, content)

    def supplier(
        self, unit: Unit, query: QuerySpec, queries: Queries
    ) -> Callable[[], BatchProcessor]:
        over = self._over
        results = tuple(target for target in unit.to if target not in (over.late_to, OVER_TOPIC))
        leaves_out = unit.on_error is not OnError.FAIL
        make = _processor_of_over(over.stage)
        return partial(make, query, over, results, queries.open_over, leaves_out=leaves_out)

    def opened(self, query: QuerySpec, queries: Queries) -> PreparedOver:
        return queries.open_over(query)

    def require_as_planned(self, opened: PreparedOver) -> None:
        from kafka_pipeline.streams.sql.over_shape import require_over_as_planned

        require_over_as_planned(opened.shape, self._over)

    def content_of(self, opened: PreparedOver) -> str:
        return opened.shape.content_at(self._over.stage)


def _processor_of_over(stage: OverStage) -> Any:
    """Return the processor of a query with `OVER (…)` at a stage."""
    from kafka_pipeline.streams.sql.over_processor import (
        OverFramesProcessor,
        OverProcessor,
        OverRowsProcessor,
    )

    return {
        "whole": OverProcessor,
        "rows": OverRowsProcessor,
        "frames": OverFramesProcessor,
    }[stage]
