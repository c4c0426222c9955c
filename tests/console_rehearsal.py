"""A rehearsal that is made up: two versions of the sample job, and how their results differ."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, OnError, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec, SumSpec
from kafka_pipeline.operations.rehearsal.changes import shown_versions
from kafka_pipeline.operations.rehearsal.comparer import Example, Kind, Result, Side, Tally
from kafka_pipeline.operations.rehearsal.publication import (
    Phase,
    Publication,
    Published,
    ShownFigures,
)
from kafka_pipeline.operations.rehearsal.report import Figures, Report
from tests.console_sample import START_MS, config, processors

SINK_TOPIC, LETTERS = "orders_by_city", "dead letters of Price"


def next_processors() -> tuple[PipelineProcessor, ...]:
    """The processors of the sample job, of which Price has changed and Audit has gone."""
    clean, price, cities, _ = processors()
    return (
        replace(clean, to=("Price", "Fraud")),
        replace(price, spec=SumSpec(constant=2)),
        cities,
        PipelineProcessor("Fraud", ForwardSpec(), (SINK,), ("Clean",), OnError.DEAD_LETTER),
    )


def pipelines() -> tuple[Pipeline, Pipeline]:
    """Return the version that the job runs, and the new one."""
    names = config().topic_names
    return Pipeline(processors(), names, 4), Pipeline(next_processors(), names, 4)


def report(key: str, value: str, failed: str = "") -> Report:
    """Return a report with an example of each kind of difference."""
    tallies = {SINK_TOPIC: Tally(equal=20_418), LETTERS: Tally(equal=3)}
    for number, kind in enumerate(Kind):
        old = Result(1, 70 + number, key.encode(), value.encode(), START_MS, ())
        new = replace(old, offset=90 + number, value=f"{value} 2".encode())
        pair = None if kind is Kind.ONLY_NEW else old, None if kind is Kind.ONLY_OLD else new
        tallies[SINK_TOPIC].add(Example(SINK_TOPIC, kind, *pair))
    tallies[SINK_TOPIC].results = {Side.OLD: 20_422, Side.NEW: 20_422}
    tallies[LETTERS].results = {Side.OLD: 3, Side.NEW: 3}
    return Report(
        job="shop",
        old_version=3,
        rested_ms=1800,
        compared_until_ms=START_MS + 40_000,
        tallies=tallies,
        waiting={Side.OLD: 12, Side.NEW: 0},
        judged_early=0,
        figures={Side.OLD: Figures(9600, 40.0, 0), Side.NEW: Figures(9500, 40.0, 100)},
        catching_up=Figures(24_000, 12.0, 400),
        failed={Side.OLD: (), Side.NEW: (failed,) if failed else ()},
        notes=(),
    )


def rehearsed(
    key: str = "Berlin", value: str = '{"total": 1}', failed: str = "", *, with_values: bool = True
) -> Published:
    """Return a rehearsal that has ended."""
    before, after = pipelines()
    figures = {
        side: {
            each.id: ShownFigures(states={"RUNNING": 4}, lag=7, dead_letters=0)
            for each in pipeline.processors
        }
        for side, pipeline in ((Side.OLD, before), (Side.NEW, after))
    }
    publication = Publication(
        phase=Phase.ENDED,
        by="ada@alpha",
        began_at_ms=START_MS,
        until_ms=START_MS + 60_000,
        ended_at_ms=START_MS + 61_000,
        versions=shown_versions(before, after),
        figures=figures,
        report=report(key, value, failed).shown(with_values=with_values),
    )
    return Published(publication, START_MS + 61_000)
