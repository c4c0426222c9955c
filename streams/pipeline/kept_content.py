"""Compares the state that queries have kept with the queries that are to go on with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.kinds.spark import Spark
from kafka_pipeline.streams.pipeline.spark_answers import Answer, Ask, ask_spark, spark_kind

_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a query does with the state that was kept.

    `different` says what differs, so that it cannot be used, and `unknown` why nobody can tell.
    `converted` says what will be kept from now on, and `remark` what else is to be known. All are
    "" if they do not apply.
    """

    different: str = ""
    unknown: str = ""
    converted: str = ""
    remark: str = ""


class KeptContents:
    """Compares kept contents with queries; Spark starts for those that only Spark knows.

    What Spark has said is remembered.
    """

    def __init__(self, config: Config, ask: Ask | None = None) -> None:
        """`ask` is another one than `ask_spark` in tests."""
        self._config = config
        self._ask = ask or partial(ask_spark, question="content")
        self._known: dict[str, Answer] = {}

    def compare(
        self, asked: Mapping[str, tuple[ProcessorSpec | None, ProcessorSpec, Collection[str]]]
    ) -> dict[str, Comparison]:
        """Return how each processor goes on.

        `asked` has the spec that runs, if one does, the new one, and the contents of tasks, by the
        processor. Takes seconds if a query has changed.
        """
        found = {}
        left = {}
        for name, (before, after, kept) in asked.items():
            known = self._without_spark(before, after, kept)
            if known is None:
                left[name] = (after, kept)
            else:
                found[name] = known
        new = {
            text: spec
            for spec, _ in left.values()
            if (text := spark_kind(spec).kept_for(spec)) not in self._known
        }
        if new:
            contents = self._ask(self._config, [*new.values()])
            self._known |= dict(zip(new, contents, strict=True))
        for name, (after, kept) in left.items():
            found[name] = self._with_spark(after, kept)
        return found

    def _without_spark(
        self, before: ProcessorSpec | None, after: ProcessorSpec, kept: Collection[str]
    ) -> Comparison | None:
        """Return how a query goes on if that is known without Spark."""
        kind = spark_kind(after)
        wrong = dict.fromkeys(filter(None, (kind.declared_difference(after, k) for k in kept)))
        if moved := _other_side(before, after):
            wrong[moved] = None
        if wrong:
            return Comparison(different="; ".join(wrong))
        is_same_type = before is not None and kind_of(before) is kind
        if not is_same_type or kind.kept_for(before) != kind.kept_for(after):
            return None
        here = ".".join(metadata.version("pyspark").split(".")[:2])
        others = {json.loads(each).get(_SPARK, here) for each in kept} - {here}
        if others:
            return Comparison(
                unknown=f"it was kept by Spark {', '.join(sorted(others))}, and here is Spark "
                f"{here}: with that, tasks cannot use it"
            )
        function = kind.query(after).function
        return Comparison(remark=f"if {function} keeps the same" if function else "")

    def _with_spark(self, spec: ProcessorSpec, kept: Collection[str]) -> Comparison:
        kind = spark_kind(spec)
        content = self._known[kind.kept_for(spec)]
        if content.unknown:
            return Comparison(unknown=content.unknown)
        changes = [kind.change(spec, each, content.text) for each in kept]
        if wrong := dict.fromkeys(each.different for each in changes if each.different):
            return Comparison(different="; ".join(wrong))
        remarks = dict.fromkeys(remark for each in changes for remark in each.remarks)
        if converted := dict.fromkeys(words for each in changes for words in each.converted):
            return Comparison(converted="; ".join([*converted, *remarks]))
        same = "the query is another one, and keeps the same: results go on from what was kept"
        return Comparison(remark="; ".join([same, *remarks]))


def _other_side(before: ProcessorSpec | None, after: ProcessorSpec) -> str:
    """Return which input of a join is on the other side now, in words; "" if none is.

    What is kept of a side does not say of which input it is: inputs may get other names.
    """
    if not isinstance(before, SqlSpec) or not isinstance(after, SqlSpec):
        return ""
    had, has = before.join, after.join
    if had is None or has is None:
        return ""
    if has.left == had.right:
        return f"{has.left} was the right side of the join, and now is the left one"
    if has.right == had.left:
        return f"{has.right} was the left side of the join, and now is the right one"
    return ""


def keeps_content(spec: ProcessorSpec) -> bool:
    """Whether the state of a processor names the query that it was kept for."""
    kind = kind_of(spec)
    return isinstance(kind, Spark) and kind.kept_for(spec) != ""
