"""State that is computed in rounds is that of one run, and goes on as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.backfill import sorted_runs
from kafka_pipeline.streams.backfill.kept_state import KeptState
from kafka_pipeline.streams.backfill.outputs import SortedRuns
from kafka_pipeline.streams.stores import window
from tests.history import Here, History, Interrupted, Row
from tests.rounds import Case, WindowsModel, rows, skewed
from tests.tiers import long_but_the_first

WINDOWS = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:build"}
"""
NAMES = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:count_names"}
"""
NAMES_IN_WINDOWS = """
- {id: Shop, type: topology, builder: "tests.user_code.rebuilt:names_in_windows", config: CONFIG}
"""
CHAIN = """
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
BEST = """
- id: Best
  type: tests.user_code.rebuilt:Largest
  to: [sink]
  stores: [{name: Best, key: bytes, value: int64, persistent: PERSISTENT}]
"""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records fill several batches."""
    monkeypatch.setattr(sorted_runs, "TASK_BATCH_RECORDS", 15)
    monkeypatch.setattr("kafka_pipeline.streams.backfill.stage._MOST_UNCOMMITTED", 5)
    monkeypatch.setattr("kafka_pipeline.streams.backfill.kept_state._ENTRIES_AT_ONCE", 4)


@pytest.mark.parametrize("parallelism", long_but_the_first([3, 1]))
@pytest.mark.parametrize("pipeline", [WINDOWS, BEST.replace("PERSISTENT", "true")])
def test_a_task_goes_on_from_the_state_as_if_it_had_run_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str, parallelism: int
) -> None:
    entry = "Shop" if pipeline is WINDOWS else "Best"
    case = Case(History(tmp_path, pipeline, parallelism), entry, rows(150))
    case.advance(monkeypatch, 0.2, 0.5, 0.6)
    assert not case.results()
    case.advance(monkeypatch, 1, with_results=True)
    found = case.results()
    assert found
    assert found == case.expected(0.6)


@pytest.mark.parametrize(
    "pipeline",
    long_but_the_first([WINDOWS, BEST.replace("PERSISTENT", "false"), NAMES, CHAIN], 2),
)
def test_the_state_does_not_depend_on_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    entry = {WINDOWS: "Shop", NAMES: "Shop", CHAIN: "Counter"}.get(pipeline, "Best")
    records = rows(120)
    once = Case(History(tmp_path / "once", pipeline, 2), entry, records)
    often = Case(History(tmp_path / "often", pipeline, 2), entry, records)
    at_once = once.advance(monkeypatch, 0.8)
    in_rounds = often.advance(monkeypatch, 0.1, 0.3, 0.3, 0.8)
    state = once.state(at_once)
    assert any(state.values())
    assert often.state(in_rounds) == state
    assert often.times(in_rounds) == once.times(at_once)


@pytest.mark.parametrize(
    ("emit", "make", "shares"),
    long_but_the_first(
        [
            ("on_close", rows, (0.7,)),
            ("on_close", skewed, (0.1, 0.4, 0.4, 0.7)),
            ("on_update", skewed, (0.3, 0.7)),
        ],
        2,
    ),
)
def test_windows_behind_a_repartition_wait_for_the_partition_that_is_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    emit: str,
    make: Callable[[int], list[Row]],
    shares: Sequence[float],
) -> None:
    pipeline = NAMES_IN_WINDOWS.replace("CONFIG", f"{{emit: {emit}}}")
    case = Case(History(tmp_path, pipeline, 3), "Shop", make(150))
    case.advance(monkeypatch, *shares)
    case.advance(monkeypatch, 1, with_results=True)
    before, after = (WindowsModel.of(case.log, case.log.ends(share)) for share in (0.7, 1))
    found = {(key, value or b"") for key, value, _ in case.results()}
    if emit == "on_close":
        assert Counter(found) == after.closed(before.now, after.now)
        assert found, "nothing is compared"
        return
    # Of each window that has changed, the last update is the count of all.
    last: dict[tuple[bytes | None, bytes], int] = {}
    for key, value in found:
        _, start, count = value.split()
        last[key, start] = max(int(count), last.get((key, start), 0))
    changed = {
        (name, b"%d" % start): count
        for (name, start), count in after.counts.items()
        if count > before.counts[name, start]
    }
    assert last == changed
    assert (
        before.counts.keys() & after.counts.keys() & {(key, int(start)) for key, start in last}
    ), "no window goes on"


@pytest.mark.parametrize("ahead_ms", [-3_000, 5_000])
def test_windows_close_that_have_closed_in_the_job_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """The job may be ahead of a partition that is idle, or know less than the last records."""
    case = Case(History(tmp_path, NAMES_IN_WINDOWS.replace("CONFIG", "{}"), 3), "Shop", skewed(150))
    case.advance(monkeypatch, 0.3)
    until = WindowsModel.of(case.log, case.log.ends(1)).now + ahead_ms
    for time_ms, is_last in ((until, False), (10**15, True)):
        reached = {"Shop-ByName": {"Counted-times": [time_ms] * 3}}
        case.advance(monkeypatch, 1, reached=reached, with_results=is_last)
    found = Counter((key, value) for key, value, _ in case.results())
    assert found == WindowsModel.of(case.log, case.log.ends(1)).closed(until, 10**15)
    assert found, "nothing is compared"


def test_state_that_depends_on_the_wall_clock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = WINDOWS.replace("rebuilt:build", "rebuilt:close_when_idle")
    case = Case(History(tmp_path, pipeline), "Shop", rows(3))
    with pytest.raises(ConfigError, match=r"Shop-Numbers changes its state by the wall clock"):
        case.advance(monkeypatch, 1)


def test_only_what_the_offsets_include_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 3), "Counter", rows(120))
    rounds = case.advance(monkeypatch, 0.3, 0.7)
    counted = Counter(key for key, *_ in case.log.before(case.log.ends(0.7)))
    found = {
        key: int(value or b"0") for its in case.state(rounds).values() for key, value in its.items()
    }
    assert found == counted


@pytest.mark.parametrize("after", long_but_the_first([0, 4, 9, 1, 2, 3, 5, 6, 7, 8], 3))
def test_a_round_that_was_interrupted_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    case = Case(History(tmp_path, CHAIN, 2), "Counter", rows(120))
    first = Here()
    first.interrupts = lambda task: len(first.ran) == after
    with pytest.raises(Interrupted):
        case.advance(monkeypatch, 0.3, 0.7, jobs=first)
    second = Here()
    rounds = case.advance(monkeypatch, 0.7, jobs=second)
    # Reading, Adder and Counter, for 2 partitions each, in 2 rounds.
    assert len(first.ran) + len(second.ran) == 12
    counted = Counter(key for key, *_ in case.log.before(case.log.ends(0.7)))
    found = [value for its in case.state(rounds).values() for value in its.values()]
    assert sum(int(value or b"0") for value in found) == counted.total()


def test_rounds_begin_again_with_other_code_or_if_offsets_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 2), "Counter", rows(120))
    case.advance(monkeypatch, 0.7)
    for share, code in ((0.3, ""), (0.3, "other")):
        rounds = case.advance(monkeypatch, share, code=code)
        counted = Counter(key for key, *_ in case.log.before(case.log.ends(share)))
        found = [value for its in case.state(rounds).values() for value in its.values()]
        assert sum(int(value or b"0") for value in found) == counted.total()
    assert len([*(tmp_path / "work").glob("round-*")]) == 1


def test_rounds_begin_again_if_records_that_they_lack_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(History(tmp_path, CHAIN, 1), "Counter", rows(120))
    case.advance(monkeypatch, 0.3)
    # The first round ended at an offset of about 40.
    for start, share, first in ((20, 0.5, 0), (90, 1, 90)):
        rounds = case.advance(monkeypatch, share, start=start)
        (end,) = case.log.ends(share)
        counted = [offset for offset, _ in case.log.partitions[0] if first <= offset < end]
        found = [value for its in case.state(rounds).values() for value in its.values()]
        assert sum(int(value or b"0") for value in found) == len(counted)


@pytest.mark.parametrize("persistent", [True, False])
def test_the_latest_time_of_a_store_survives_though_its_key_was_deleted(
    tmp_path: Path, persistent: bool
) -> None:
    builder = window(
        "Windows",
        serdes.bytes,
        serdes.bytes,
        retention_ms=1_000,
        window_size_ms=10,
        persistent=persistent,
    )
    first = builder.open(tmp_path / "first", {})
    store: Any = builder.build(first)
    store.put(b"a", b"1", 5_000)
    store.put(b"b", b"2", 9_000)
    store.put(b"b", None, 9_000)
    runs = SortedRuns(tmp_path / "task", 0)
    KeptState({"Windows": first}, 0).write(runs)
    runs.close()
    first.close()
    second = builder.open(tmp_path / "second", {})
    KeptState({"Windows": second}, 0).restore(tmp_path / "task")
    assert second.max_timestamp == 9_000
    assert [value for _, value in second.entries()] == [b"1"]
    second.close()
