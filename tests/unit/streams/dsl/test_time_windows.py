"""Tumbling and hopping windows: results, what is late, when they close."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kafka_pipeline import Table, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.windows import TimeWindows
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, results, watch
from tests.unit.streams.dsl.running import builder, outputs, pipe

CLOSE: EmitTime = "on_close"
UPDATE: EmitTime = "on_update"


@dataclass(frozen=True)
class Case:
    """Inputs, and results in order. `verb` is count, reduce or aggregate."""

    verb: str
    windows: TimeWindows
    emit: EmitTime
    inputs: str
    results: str


def hopping(grace_ms: int) -> TimeWindows:
    return windows.hopping(10, advance_ms=5, grace_ms=grace_ms)


WINDOWED = windows.tumbling(500, grace_ms=0)
WINDOWED_IN = "1:1@10 1:2@15 1:3@500 2:10@550 2:20@500 2:30@1000"

CASES = {
    "KStreamWindowAggregateTest.testAggBasic": Case(
        "aggregate",
        hopping(100),
        UPDATE,
        "A:1@0 B:2@1 C:3@2 D:4@3 A:1@4 A:1@5 B:2@6 D:4@7 B:2@8 C:3@9 A:1@10 B:2@11 D:4@12 "
        "B:2@13 C:3@14 B:1@3 B:2@2 B:3@9",
        "A[0,10]=0+1@0 B[0,10]=0+2@1 C[0,10]=0+3@2 D[0,10]=0+4@3 A[0,10]=0+1+1@4 "
        "A[0,10]=0+1+1+1@5 A[5,15]=0+1@5 B[0,10]=0+2+2@6 B[5,15]=0+2@6 D[0,10]=0+4+4@7 "
        "D[5,15]=0+4@7 B[0,10]=0+2+2+2@8 B[5,15]=0+2+2@8 C[0,10]=0+3+3@9 C[5,15]=0+3@9 "
        "A[5,15]=0+1+1@10 A[10,20]=0+1@10 B[5,15]=0+2+2+2@11 B[10,20]=0+2@11 D[5,15]=0+4+4@12 "
        "D[10,20]=0+4@12 B[5,15]=0+2+2+2+2@13 B[10,20]=0+2+2@13 C[5,15]=0+3+3@14 "
        "C[10,20]=0+3@14 B[0,10]=0+2+2+2+1@8 B[0,10]=0+2+2+2+1+2@8 B[0,10]=0+2+2+2+1+2+3@9 "
        "B[5,15]=0+2+2+2+2+3@13",
    ),
    "KStreamWindowAggregateTest.testAggBasic, on close": Case(
        "aggregate", hopping(100), CLOSE, "A:1@0 B:2@1 A:1@5 C:3@14 B:3@9", ""
    ),
    "KStreamWindowAggregateTest.testJoin, its first table, on close": Case(
        "aggregate",
        hopping(5),
        CLOSE,
        "A:1@0 B:2@1 C:3@2 D:4@3 A:1@9 A:1@15 A:1@10 B:2@11 D:4@12 B:2@13 C:3@14 A:1@20",
        "A[0,10]=0+1+1@9 B[0,10]=0+2@1 C[0,10]=0+3@2 D[0,10]=0+4@3 A[5,15]=0+1+1@10 "
        "B[5,15]=0+2+2@13 C[5,15]=0+3@14 D[5,15]=0+4@12",
    ),
    "KStreamWindowAggregateTest.testJoin, its second table, on close": Case(
        "aggregate",
        hopping(5),
        CLOSE,
        "A:a@0 B:b@1 C:c@2 D:d@10 A:a@15 A:a@5 B:b@6 D:d@7 D:d@18 A:a@21",
        "A[0,10]=0+a@0 B[0,10]=0+b@1 C[0,10]=0+c@2 A[5,15]=0+a@5 B[5,15]=0+b@6 D[5,15]=0+d+d@10",
    ),
    "KStreamWindowAggregateTest.shouldLogAndMeterWhenSkippingExpiredWindow": Case(
        "aggregate",
        hopping(90),
        UPDATE,
        "k:100@100 k:0@0 k:1@1 k:2@2 k:3@3 k:4@4 k:5@5 k:6@6 k:105@105 k:106@106",
        "k[95,105]=0+100@100 k[100,110]=0+100@100 k[5,15]=0+5@5 k[5,15]=0+5+6@6 "
        "k[100,110]=0+100+105@105 k[105,115]=0+105@105 k[100,110]=0+100+105+106@106 "
        "k[105,115]=0+105+106@106",
    ),
    "KStreamWindowAggregateTest.shouldLogAndMeterWhenSkippingExpiredWindowByGrace": Case(
        "aggregate",
        windows.tumbling(10, grace_ms=90),
        UPDATE,
        "k:100@200 k:0@100 k:1@101 k:2@102 k:3@103 k:4@104 k:5@105 k:6@6",
        "k[200,210]=0+100@200",
    ),
    "TimeWindowedKStreamImplTest.shouldCountWindowed": Case(
        "count",
        WINDOWED,
        UPDATE,
        WINDOWED_IN,
        "1[0,500]=1@10 1[0,500]=2@15 1[500,1000]=1@500 2[500,1000]=1@550 2[500,1000]=2@550 "
        "2[1000,1500]=1@1000",
    ),
    "TimeWindowedKStreamImplTest.shouldCountWindowed, on close": Case(
        "count",
        WINDOWED,
        CLOSE,
        WINDOWED_IN,
        "1[0,500]=2@15 1[500,1000]=1@500 2[500,1000]=2@550",
    ),
    "TimeWindowedKStreamImplTest.shouldReduceWindowed": Case(
        "reduce",
        WINDOWED,
        UPDATE,
        WINDOWED_IN,
        "1[0,500]=1@10 1[0,500]=1+2@15 1[500,1000]=3@500 2[500,1000]=10@550 "
        "2[500,1000]=10+20@550 2[1000,1500]=30@1000",
    ),
    "TimeWindowedKStreamImplTest.shouldReduceWindowed, on close": Case(
        "reduce",
        WINDOWED,
        CLOSE,
        WINDOWED_IN,
        "1[0,500]=1+2@15 1[500,1000]=3@500 2[500,1000]=10+20@550",
    ),
    "TimeWindowedKStreamImplTest.shouldAggregateWindowed": Case(
        "aggregate",
        WINDOWED,
        UPDATE,
        WINDOWED_IN,
        "1[0,500]=0+1@10 1[0,500]=0+1+2@15 1[500,1000]=0+3@500 2[500,1000]=0+10@550 "
        "2[500,1000]=0+10+20@550 2[1000,1500]=0+30@1000",
    ),
    "TimeWindowedKStreamImplTest.shouldAggregateWindowed, on close": Case(
        "aggregate",
        WINDOWED,
        CLOSE,
        WINDOWED_IN,
        "1[0,500]=0+1+2@15 1[500,1000]=0+3@500 2[500,1000]=0+10+20@550",
    ),
    "KGroupedStreamImplTest.shouldCountWindowed": Case(
        "count",
        windows.tumbling(500, grace_ms=2000),
        UPDATE,
        "1:A@0 1:A@499 1:A@100 2:B@0 2:B@100 2:B@200 3:C@1 1:A@500 1:A@500 2:B@500 2:B@500 3:B@100",
        "1[0,500]=1@0 1[0,500]=2@499 1[0,500]=3@499 2[0,500]=1@0 2[0,500]=2@100 2[0,500]=3@200 "
        "3[0,500]=1@1 1[500,1000]=1@500 1[500,1000]=2@500 2[500,1000]=1@500 2[500,1000]=2@500 "
        "3[0,500]=2@100",
    ),
    "a jump of time loses no window that was not emitted": Case(
        "count",
        windows.tumbling(10, grace_ms=0),
        CLOSE,
        "A:1@5 B:1@7 A:1@10000000 A:1@20000000",
        "A[0,10]=1@5 B[0,10]=1@7 A[10000000,10000010]=1@10000000",
    ),
    "a window closes when stream time reaches its end and the grace period": Case(
        "count",
        windows.tumbling(10, grace_ms=3),
        CLOSE,
        "A:1@5 A:1@12 A:1@6 A:1@13 A:1@7",
        "A[0,10]=2@6",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results(case: Case) -> None:
    built = builder()
    windowed = built.stream("in").group_by_key().windowed_by(case.windows, emit=case.emit)
    if case.verb == "count":
        table: Table = windowed.count()
    elif case.verb == "reduce":
        table = windowed.reduce(lambda aggregate, value: f"{aggregate}+{value}")
    else:
        table = windowed.aggregate(lambda: "0", lambda key, value, total: f"{total}+{value}")
    assert results(built, case.inputs, watch(table)) == case.results.split()


def test_late_records_are_counted_once_per_window() -> None:
    built = builder()
    built.stream("in").group_by_key().windowed_by(hopping(90)).count()
    with TopologyTestDriver(built) as driver:
        # 0 to 4 are in [0, 10) only; 5 and 6 are in [5, 15), too, which is open.
        pipe(driver, inputs("k:a@100 k:b@0 k:c@1 k:d@2 k:e@3 k:f@4 k:g@5 k:h@6 k:i@105 k:j@106"))
        assert driver.dropped_records == {"expired": 7}


def test_records_without_a_key_are_dropped_and_counted() -> None:
    """KStreamWindowAggregateTest.shouldLogAndMeterWhenSkippingNullKey"""
    built = builder()
    built.stream("in").group_by_key().windowed_by(hopping(0)).count()
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", None, "1", 0)])
        assert driver.dropped_records == {"null key": 1}


def test_late_records_go_to_a_topic_with_their_window() -> None:
    built = builder()
    windowed = (
        built.stream("in")
        .group_by_key()
        .windowed_by(windows.tumbling(10, grace_ms=2), late_to="late")
    )
    watched = watch(windowed.count(name="Counts"))
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("k:a@5 k:b@12 k:c@6"))
        late = driver.create_output_topic("late", serdes.string, serdes.string).read_records()
        assert driver.dropped_records == {"expired (late_to)": 1}
    assert watched == ["k[0,10]=1@5", "k[10,20]=1@12"]
    assert [(each.key, each.value, each.timestamp) for each in late] == [("k", "c", 6)]
    assert list(late[0].headers) == [
        ("__streams.late.reason", b"the window has closed"),
        ("__streams.late.step", b"Counts"),
        ("__streams.late.window.start", b"0"),
        ("__streams.late.window.end", b"10"),
        ("__streams.late.stream_time", b"12"),
    ]


def test_records_that_a_filter_drops_do_not_move_the_time_of_windows() -> None:
    built = builder()
    kept = built.stream("in").filter(lambda key, value: value != "no")
    watched = watch(kept.group_by_key().windowed_by(windows.tumbling(10, grace_ms=0)).count())
    assert results(built, "k:a@5 k:no@1000 k:b@6", watched) == ["k[0,10]=1@5", "k[0,10]=2@6"]


def test_windows_close_when_nothing_comes_for_long_enough() -> None:
    built = builder()
    tumbling = windows.tumbling(10, grace_ms=5, close_after_idle_ms=1000)
    windowed = built.stream("in").group_by_key().windowed_by(tumbling, emit=CLOSE)
    watched = watch(windowed.count())
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("A:1@5 B:1@12"))
        driver.advance_wall_clock_time(999)
        assert watched == []
        driver.advance_wall_clock_time(1)
        assert watched == ["A[0,10]=1@5", "B[10,20]=1@12"]
        driver.advance_wall_clock_time(5000)
        # They are closed for good: what comes now is late.
        pipe(driver, inputs("B:1@13 B:1@20"))
        assert driver.dropped_records == {"expired": 1}
        assert len(watched) == 2


@pytest.mark.parametrize("to", ["out"])
def test_windowed_keys_are_written_as_java_does(to: str) -> None:
    built = builder()
    table = built.stream("in").group_by_key().windowed_by(hopping(0)).count()
    table.to_stream().to(to)
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("k:a@3"))
        assert outputs(driver, to, serdes.bytes, serdes.int64) == [(b"k" + bytes(8), 1, 3)]
