"""Compares the state that queries have kept with the queries that are to go on with it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NamedTuple

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import OwnError
from kafka_pipeline.common.pipelines.specs import ProcessorSpec
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.kinds.spark import Spark
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.spec import Queries

_TIMEOUT_S = 300
_SPARK = "spark"


class Content(NamedTuple):
    """What a query keeps, as Spark says, or why Spark cannot say it."""

    text: str = ""
    unknown: str = ""


Ask = Callable[[Config, Sequence[ProcessorSpec]], Sequence[Content]]
"""Returns what each of some queries keeps."""


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
        self._ask = ask or ask_spark
        self._known: dict[str, Content] = {}

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
            if (text := _spark_kind(spec).kept_for(spec)) not in self._known
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
        kind = _spark_kind(after)
        wrong = dict.fromkeys(filter(None, (kind.declared_difference(after, k) for k in kept)))
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
        kind = _spark_kind(spec)
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


def ask_spark(config: Config, specs: Sequence[ProcessorSpec]) -> list[Content]:
    """Return what queries keep, as a Spark in a process of its own says; takes seconds.

    A Spark in this process would stay, and set its time zone.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=pickle.dumps((config, [*specs])),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return [Content(*each) for each in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [Content(unknown=f"Spark does not start here: {error}")] * len(specs)


def contents_by(queries: Queries, specs: Sequence[ProcessorSpec]) -> list[Content]:
    """Return what queries keep, as a Spark of this process says."""
    found = []
    for spec in specs:
        try:
            found.append(Content(_spark_kind(spec).content(spec, queries)))
        except OwnError as error:
            found.append(Content(unknown=f"Spark cannot tell: {error.shown}"))
        except Exception as error:
            found.append(Content(unknown=f"Spark cannot tell: {type(error).__name__}"))
    return found


def keeps_content(spec: ProcessorSpec) -> bool:
    """Whether the state of a processor names the query that it was kept for."""
    kind = kind_of(spec)
    return isinstance(kind, Spark) and kind.kept_for(spec) != ""


def _spark_kind(spec: ProcessorSpec) -> Spark[Any]:
    kind = kind_of(spec)
    assert isinstance(kind, Spark), "only queries keep contents"
    return kind


def _main() -> None:
    # What Spark and user code print must not be taken for the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    config, specs = pickle.load(sys.stdin.buffer)
    # Imported late: Spark takes a while to import, and only this process asks it.
    from kafka_pipeline.streams.sql.local import LocalQueries

    queries = LocalQueries(UserCode.of(config), Readable.of(config), config.spark.conf)
    with answer:
        json.dump(contents_by(queries, specs), answer)


if __name__ == "__main__":
    _main()
