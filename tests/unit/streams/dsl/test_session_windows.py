"""Sessions: how they grow and merge, what is late, when they close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from kafka_pipeline import Table, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, results, watch
from tests.unit.streams.dsl.running import builder, pipe

CLOSE: EmitTime = "on_close"
UPDATE: EmitTime = "on_update"

GAP = 300_000
HALF = GAP // 2


@dataclass(frozen=True)
class Case:
    """Inputs, and results in order. `verb` is count, reduce or aggregate."""

    verb: str
    gap_ms: int
    grace_ms: int
    emit: EmitTime
    inputs: str
    results: str


IMPL_IN = "1:1@10 1:2@15 1:3@600 2:1@600 2:2@599"
MANY = (
    f"a:1@0 b:1@0 c:1@0 d:1@0 d:2@{HALF} a:2@{GAP + 1} b:2@{GAP + 1} a:3@{GAP + 1 + HALF} "
    f"c:3@{GAP + 1 + HALF}"
)

CASES = {
    "SessionWindowedKStreamImplTest.shouldCountSessionWindowedWithCachingDisabled": Case(
        "count",
        500,
        0,
        UPDATE,
        IMPL_IN,
        "1[10,10]=1@10 1[10,10]=null@10 1[10,15]=2@15 1[600,600]=1@600 2[600,600]=1@600 "
        "2[600,600]=null@600 2[599,600]=2@600",
    ),
    "SessionWindowedKStreamImplTest.shouldCountSessionWindowedWithCachingDisabled, on close": Case(
        "count", 500, 0, CLOSE, IMPL_IN, "1[10,15]=2@15"
    ),
    "SessionWindowedKStreamImplTest.shouldReduceWindowed": Case(
        "reduce",
        500,
        0,
        UPDATE,
        IMPL_IN,
        "1[10,10]=1@10 1[10,10]=null@10 1[10,15]=1+2@15 1[600,600]=3@600 2[600,600]=1@600 "
        "2[600,600]=null@600 2[599,600]=1+2@600",
    ),
    "SessionWindowedKStreamImplTest.shouldReduceWindowed, on close": Case(
        "reduce", 500, 0, CLOSE, IMPL_IN, "1[10,15]=1+2@15"
    ),
    "SessionWindowedKStreamImplTest.shouldAggregateSessionWindowed": Case(
        "aggregate",
        500,
        0,
        UPDATE,
        IMPL_IN,
        "1[10,10]=0+1@10 1[10,10]=null@10 1[10,15]=0+0+1+2@15 1[600,600]=0+3@600 "
        "2[600,600]=0+1@600 2[600,600]=null@600 2[599,600]=0+0+1+2@600",
    ),
    "SessionWindowedKStreamImplTest.shouldAggregateSessionWindowed, on close": Case(
        "aggregate", 500, 0, CLOSE, IMPL_IN, "1[10,15]=0+0+1+2@15"
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldCreateSingleSessionWhenWithinGap": Case(
        "count",
        GAP,
        0,
        UPDATE,
        "john:first@0 john:second@500",
        "john[0,0]=1@0 john[0,0]=null@0 john[0,500]=2@500",
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldMergeSessions": Case(
        "count",
        GAP,
        GAP,
        UPDATE,
        f"mel:first@0 mel:second@{GAP + 1} mel:third@{HALF}",
        f"mel[0,0]=1@0 mel[{GAP + 1},{GAP + 1}]=1@{GAP + 1} mel[0,0]=null@0 "
        f"mel[{GAP + 1},{GAP + 1}]=null@{GAP + 1} mel[0,{GAP + 1}]=3@{GAP + 1}",
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldUpdateSessionIfTheSameTime": Case(
        "count", GAP, 0, UPDATE, "mel:first@0 mel:second@0", "mel[0,0]=1@0 mel[0,0]=2@0"
    ),
    "…shouldHaveMultipleSessionsForSameIdWhenTimestampApartBySessionGap, on close": Case(
        "count",
        GAP,
        0,
        CLOSE,
        f"mel:first@0 mel:second@{GAP + 1} mel:second@{GAP + 1} mel:third@{2 * GAP + 2} "
        f"mel:third@{2 * GAP + 2} mel:third@{2 * GAP + 2}",
        f"mel[0,0]=1@0 mel[{GAP + 1},{GAP + 1}]=2@{GAP + 1}",
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldHandleMultipleSessionsAndMerging": Case(
        "count",
        GAP,
        0,
        CLOSE,
        MANY,
        f"a[0,0]=1@0 b[0,0]=1@0 c[0,0]=1@0 d[0,{HALF}]=2@{HALF}",
    ),
    "…shouldImmediatelyForwardNewSessionWhenNonCachedStore": Case(
        "count", GAP, 0, UPDATE, "a:1@0 b:1@0 c:1@0", "a[0,0]=1@0 b[0,0]=1@0 c[0,0]=1@0"
    ),
    "…shouldImmediatelyForwardRemovedSessionsWhenMerging": Case(
        "count", GAP, 0, UPDATE, "a:1@0 a:1@5", "a[0,0]=1@0 a[0,0]=null@0 a[0,5]=2@5"
    ),
    "…shouldLogAndMeterWhenSkippingLateRecordWithZeroGrace": Case(
        "count",
        10,
        0,
        UPDATE,
        "dummy:d@0 OnTime1:1@0 dummy:d@11 Late1:1@0",
        "dummy[0,0]=1@0 OnTime1[0,0]=1@0 dummy[11,11]=1@11",
    ),
    "…shouldLogAndMeterWhenSkippingLateRecordWithNonzeroGrace": Case(
        "count",
        10,
        1,
        UPDATE,
        "dummy:d@0 OnTime1:1@0 dummy:d@11 OnTime2:1@0 dummy:d@12 Late1:1@0",
        "dummy[0,0]=1@0 OnTime1[0,0]=1@0 dummy[11,11]=1@11 OnTime2[0,0]=1@0 "
        "dummy[11,11]=null@11 dummy[11,12]=2@12",
    ),
    "KGroupedStreamImplTest.shouldCountSessionWindows": Case(
        "count",
        30,
        1000,
        CLOSE,
        "1:1@10 2:2@15 1:1@30 1:1@70 1:1@100 1:1@90 9:9@2000",
        "2[15,15]=1@15 1[10,30]=2@30 1[70,100]=3@100",
    ),
    "KGroupedStreamImplTest.shouldReduceSessionWindows": Case(
        "reduce",
        30,
        1000,
        CLOSE,
        "1:A@10 2:Z@15 1:B@30 1:A@70 1:B@100 1:C@90 9:9@2000",
        "2[15,15]=Z@15 1[10,30]=A+B@30 1[70,100]=A+B+C@100",
    ),
    "a jump of time loses no session that was not emitted, and the first start comes first": Case(
        "count",
        10,
        0,
        CLOSE,
        "b:1@1 a:1@2 c:1@0 a:1@10000000",
        "c[0,0]=1@0 b[1,1]=1@1 a[2,2]=1@2",
    ),
    "a late record may still connect sessions": Case(
        # At 22, a session that ends at 11 may not begin any more, but that of 0 to 15 goes on.
        "count",
        10,
        0,
        UPDATE,
        "a:1@15 b:1@22 a:1@11 a:1@1",
        "a[15,15]=1@15 b[22,22]=1@22 a[15,15]=null@15 a[11,15]=2@15 a[11,15]=null@15 a[1,15]=3@15",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results(case: Case) -> None:
    built = builder()
    session = windows.session(case.gap_ms, grace_ms=case.grace_ms)
    windowed = built.stream("in").group_by_key().windowed_by(session, emit=case.emit)
    if case.verb == "count":
        table: Table = windowed.count()
    elif case.verb == "reduce":
        table = windowed.reduce(lambda aggregate, value: f"{aggregate}+{value}")
    else:
        table = windowed.aggregate(
            lambda: "0",
            lambda key, value, total: f"{total}+{value}",
            merger=lambda key, a, b: f"{a}+{b}",
        )
    assert results(built, case.inputs, watch(table)) == case.results.split()


def test_a_late_record_is_counted() -> None:
    built = builder()
    session = windows.session(10, grace_ms=0)
    built.stream("in").group_by_key().windowed_by(session).count()
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("dummy:d@0 OnTime1:1@0 dummy:d@11 Late1:1@0"))
        assert driver.dropped_records == {"expired": 1}


@pytest.mark.parametrize("emit", get_args(EmitTime))
@pytest.mark.parametrize(
    ("records", "is_split"),
    [
        # By the clock of 109, the session that ended at 92 has closed, but not a record at 94.
        ("a:1@92 b:1@109 a:1@94", True),
        ("a:1@92 b:1@109 a:1@102", True),
        ("a:1@92 b:1@109 a:1@103", False),
        ("a:1@92 b:1@106 a:1@94", False),
        ("c:1@92 b:1@109 a:1@94", False),
        # It also joins one that is open.
        ("a:1@92 a:1@104 b:1@109 a:1@98", True),
        # Both are late.
        ("a:1@80 b:1@109 a:1@81", False),
        # It is the gap away from what closed long ago.
        ("a:1@92 b:1@500 a:1@500", False),
    ],
)
def test_a_record_next_to_a_session_that_has_closed_is_counted(
    records: str, is_split: bool, emit: EmitTime
) -> None:
    built = builder()
    session = windows.session(10, grace_ms=5)
    table = built.stream("in").group_by_key().windowed_by(session, emit=emit).count()
    watched = watch(table)
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(records))
        assert driver.dropped_records.get("expired (split session)", 0) == is_split
        pipe(driver, inputs("b:1@1000"))
        found = sum(each.startswith("a[") for each in watched)
        assert found >= 1 + is_split, "it is in the results"


def test_split_sessions_are_seen_across_segments_and_after_a_longer_time() -> None:
    """What has expired stays for the gap, although it is not returned."""
    gap = 1_000_000
    built = builder()
    built.stream("in").group_by_key().windowed_by(windows.session(gap, grace_ms=0)).count(name="S")
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(f"a:1@{gap} b:1@{3 * gap - 2}"))
        assert list(driver.get_session_store("S").fetch("a")) == []
        pipe(driver, inputs(f"a:1@{2 * gap}"))
        assert driver.dropped_records == {"expired (split session)": 1}


@pytest.mark.parametrize("emit", get_args(EmitTime))
def test_what_merges_may_change_its_arguments(emit: EmitTime) -> None:
    def add(key: str, value: str, found: list[str]) -> list[str]:
        found.append(value)
        return found

    def merge(key: str, a: list[str], b: list[str]) -> list[str]:
        a.extend(b)
        return a

    built = builder()
    windowed = (
        built.stream("in").group_by_key().windowed_by(windows.session(10, grace_ms=6), emit=emit)
    )
    table = windowed.aggregate(list, add, merger=merge, value_serde=serdes.json)
    found = results(built, "k:1@0 k:2@15 k:3@8 k:4@100", watch(table.map_values("".join)))
    assert found[-1 if emit is CLOSE else -2] == "k[0,15]=123@15"


def test_sessions_close_when_nothing_comes_for_long_enough() -> None:
    built = builder()
    session = windows.session(10, grace_ms=5, close_after_idle_ms=1000)
    watched = watch(built.stream("in").group_by_key().windowed_by(session, emit=CLOSE).count())
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("A:1@5 B:1@12"))
        driver.advance_wall_clock_time(1000)
        assert watched == ["A[5,5]=1@5", "B[12,12]=1@12"]
        pipe(driver, inputs("B:1@12 B:1@13"))
        # The session [12,12] has closed, so the second record is next to it.
        assert driver.dropped_records == {"expired": 1, "expired (split session)": 1}
        pipe(driver, inputs("B:1@60"))
        assert watched[2:] == ["B[13,13]=1@13"]
