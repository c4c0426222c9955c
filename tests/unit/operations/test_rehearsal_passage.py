"""When a job is through with all that comes of records before some offsets."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.operations.rehearsal.passage import Passage, Targets

SOURCE = ("orders", 0)
ARC = ("A_B", 0)


class Positions:
    """A job that reads a source, and what comes of it in one arc."""

    hops = 1

    def __init__(self) -> None:
        self.at = {SOURCE: 0, ARC: 0}
        self.arc_end = 0

    def of_sources(self, ends: dict[tuple[str, int], int]) -> Targets:
        return {"A": ends}

    def of_arcs(self) -> Targets:
        return {"B": {ARC: self.arc_end}}

    def unread(self, targets: Targets) -> Targets:
        left = {
            group: {place: end for place, end in its.items() if self.at[place] < end}
            for group, its in targets.items()
        }
        return {group: its for group, its in left.items() if its}


def passage(job: Any) -> Passage:
    return Passage(job, {SOURCE: 10})


def test_a_job_is_through_when_arcs_are_read_to_the_ends_that_they_have_then() -> None:
    job = Positions()
    way = passage(job)
    assert not way.advance()
    job.at[SOURCE], job.arc_end = 12, 7
    assert not way.advance()
    # What is written to the arc from now on comes of later records.
    job.at[ARC], job.arc_end = 7, 20
    assert way.advance()


def test_what_is_in_an_arc_before_the_source_is_read_is_not_enough() -> None:
    job = Positions()
    job.at[ARC], job.arc_end = 5, 5
    way = passage(job)
    assert not way.advance()
    job.at[SOURCE], job.arc_end = 10, 6
    assert not way.advance()
    job.at[ARC] = 6
    assert way.advance()


def test_a_job_without_news_is_through_at_once() -> None:
    job = Positions()
    job.at[SOURCE] = 10
    assert passage(job).advance()
