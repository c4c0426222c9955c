"""What Spark says about queries: one of this process, or one in a process of its own."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import OwnError
from kafka_pipeline.common.pipelines.specs import ProcessorSpec
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.kinds.spark import Spark
from kafka_pipeline.streams.sql.access import Readable

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.local import LocalQueries

_TIMEOUT_S = 300

Question = Literal["content", "result"]
"""What a query keeps, or the type of its results as JSON of Spark."""


class Answer(NamedTuple):
    """What Spark says, or why it cannot say it."""

    text: str = ""
    unknown: str = ""


Ask = Callable[[Config, Sequence[ProcessorSpec]], Sequence[Answer]]
"""Returns an answer for each of some queries."""


def ask_spark(config: Config, specs: Sequence[ProcessorSpec], question: Question) -> list[Answer]:
    """Return what a Spark in a process of its own says; takes seconds.

    A Spark in this process would stay, and set its time zone.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=pickle.dumps((config, [*specs], question)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return [Answer(*each) for each in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [Answer(unknown=f"Spark does not start here: {error}")] * len(specs)


def answers_by(
    queries: LocalQueries, specs: Sequence[ProcessorSpec], question: Question
) -> list[Answer]:
    """Return what a Spark of this process says."""
    found = []
    for spec in specs:
        try:
            if question == "content":
                found.append(Answer(spark_kind(spec).content(spec, queries)))
            else:
                found.append(Answer(result_of(queries, spec)))
        except OwnError as error:
            found.append(Answer(unknown=f"Spark cannot tell: {error.shown}"))
        except Exception as error:
            found.append(Answer(unknown=f"Spark cannot tell: {type(error).__name__}"))
    return found


def local_queries(config: Config) -> LocalQueries:
    """Return queries on a Spark of this process, which the first one starts, in some seconds."""
    # Imported late: Spark takes a while to import, and most commands do not need it.
    from kafka_pipeline.streams.sql.local import LocalQueries

    return LocalQueries(UserCode.of(config), Readable.of(config), config.spark.conf)


def result_of(queries: LocalQueries, spec: ProcessorSpec) -> str:
    """Return the type of a query's results, as JSON of Spark; raises as `LocalQueries.open`."""
    return queries.result(spark_kind(spec).query(spec))


def spark_kind(spec: ProcessorSpec) -> Spark[Any]:
    """Return the kind of a query."""
    kind = kind_of(spec)
    assert isinstance(kind, Spark), "only queries are asked about"
    return kind


def _main() -> None:
    # What Spark and user code print must not be taken for the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    config, specs, question = pickle.load(sys.stdin.buffer)
    with answer:
        json.dump(answers_by(local_queries(config), specs, question), answer)


if __name__ == "__main__":
    _main()
