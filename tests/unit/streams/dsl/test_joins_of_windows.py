"""Joins of tables in windows: a window is found although it has closed on its own side."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.outputs import Dropped
from kafka_pipeline.streams.event_time.input_time import InputTime, Mark
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, outputs, pipe
from tests.unit.streams.nodes import Nodes, Tasks, batch, sent

Make = Callable[[StreamsBuilder, str], Table]


def counts(kind: Windows, emit: EmitTime = "on_update") -> Make:
    def make(built: StreamsBuilder, topic: str) -> Table:
        grouped = built.stream(topic, name=f"From-{topic}").group_by_key()
        return grouped.windowed_by(kind, emit=emit).count(name=topic, value_serde=serdes.json)

    return make


def final(kind: Windows) -> Make:
    def make(built: StreamsBuilder, topic: str) -> Table:
        kept = counts(kind)(built, topic)
        return kept.suppress(Suppress.until_window_closes(), name=f"{topic}-kept")

    return make


def last(built: StreamsBuilder, table: Table, lines: tuple[str, ...]) -> dict[str, str]:
    """Return the last results of keys and starts of windows."""
    shown = table.to_stream().map(lambda key, value: (f"{key.key} {key.window.start}", str(value)))
    shown.to("out")
    with TopologyTestDriver(built) as driver:
        for line in lines:
            side, _, records = line.partition(" ")
            pipe(driver, inputs(records, side))
        return {key: value for key, value, _ in outputs(driver) if value != "None"}


SHORT, LONG = windows.tumbling(10, grace_ms=0), windows.tumbling(10, grace_ms=20)
SESSIONS = windows.session(5, grace_ms=0)
AHEAD = ("left k:1@1", "right k:1@2 k:1@15", "left k:1@3")
"""The right side is ahead when the left one changes."""
JUMP = ("left k:1@1", "right k:1@2", "left k:1@25", "right k:1@3 k:1@25")
SIDES: dict[str, tuple[Make, Make, tuple[str, ...], str]] = {
    "one side is ahead": (counts(SHORT), counts(SHORT), AHEAD, "2,1"),
    "one side has a longer grace": (counts(LONG), counts(SHORT), AHEAD, "2,1"),
    "hopping": (
        counts(windows.hopping(10, advance_ms=5, grace_ms=0)),
        counts(windows.hopping(10, advance_ms=5, grace_ms=0)),
        AHEAD,
        "2,1",
    ),
    "on close": (counts(SHORT, "on_close"), counts(SHORT, "on_close"), JUMP, "1,2"),
    "suppress": (final(SHORT), final(SHORT), JUMP, "1,2"),
}


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize(("left", "right", "lines", "expected"), SIDES.values(), ids=SIDES)
def test_a_result_has_what_both_sides_are(
    left: Make, right: Make, lines: tuple[str, ...], expected: str, kind: str
) -> None:
    built = builder()
    tables = left(built, "left"), right(built, "right")
    joined = getattr(tables[0], kind)(tables[1], lambda a, b: f"{a},{b}")
    assert last(built, joined, lines)["k 0"] == expected


@pytest.mark.parametrize("kind", [SHORT, SESSIONS], ids=["tumbling", "sessions"])
def test_a_window_that_closes_has_its_result_of_a_foreign_key_join(kind: Windows) -> None:
    built = builder()
    closed = counts(kind, "on_close")(built, "left")
    joined = closed.join(
        built.table("right", name="Right"),
        lambda count, name: f"{count} {name}",
        foreign_key=lambda key, count: key.key,
        name="Named",
    )
    lines = ("right k:one@0", "left k:1@1 k:1@2 k:1@25 k:1@55")
    start = 0 if kind is SHORT else 1
    other = 20 if kind is SHORT else 25
    assert last(built, joined, lines) == {f"k {start}": "2 one", f"k {other}": "1 one"}


@pytest.mark.parametrize("kind", [SHORT, SESSIONS], ids=["tumbling", "sessions"])
def test_windows_of_both_sides_meet_although_time_leaps(kind: Windows) -> None:
    built = builder()
    left, right = (counts(kind, "on_close")(built, topic) for topic in ("left", "right"))
    shown = left.outer_join(right, lambda a, b: f"{a},{b}").to_stream()
    shown.map(lambda key, value: (key.key, value)).to("out")
    (group,) = built.build().groups
    places = [(topic, 0) for topic in group.in_topics]
    input_time = InputTime(dict.fromkeys(places, 2), 1000)
    tasks = Tasks(group, GroupSettings(), input_time=input_time)
    tasks.run(*(batch([b"x"], keys=[b"k"], timestamps=[1], topic=topic) for topic, _ in places))
    week = Progress(7 * 86_400_000)
    input_time.learn(dict.fromkeys(places, Mark(1, week, week)))
    found = [value for _, _, value, _ in tasks.run()]
    assert set(found) == {b"1,1"}


WEEK_MS = 7 * 86_400_000
LEAPS: dict[str, Make] = {
    "on close": counts(SHORT, "on_close"),
    "suppress": final(SHORT),
    "sliding": counts(windows.sliding(10, grace_ms=0), "on_close"),
    "hopping": final(windows.hopping(10, advance_ms=5, grace_ms=0)),
    "sessions": counts(SESSIONS, "on_close"),
}


class Sides:
    """Both sides of a join of windows in a task that reads sources, whose records set the time."""

    def __init__(self, make: Make) -> None:
        built = builder()
        joined = make(built, "left").outer_join(make(built, "right"), lambda a, b: f"{a},{b}")
        joined.to_stream().map(lambda key, value: (key.key, value)).to("out")
        (self._group,) = built.build().groups
        self._nodes = Nodes(self._group)

    def process(self, topic: str, *times: int) -> None:
        size = len(times)
        rows = batch([b"x"] * size, keys=[b"k"] * size, timestamps=times, topic=topic)
        assert not self._nodes.process(rows)

    def commit(self) -> None:
        for store in self._nodes.stores.values():
            store.commit(1)

    def restart(self) -> None:
        """Commit, and start the task again with what the stores have."""
        self.commit()
        self._nodes = Nodes(self._group, stores=self._nodes.stores)

    def taken(self) -> tuple[bytes | None, int]:
        """Return the last result, and how many lookups came too late, since the last call."""
        outputs, self._nodes.runtime.outputs[:] = list(self._nodes.runtime.outputs), []
        expired = Dropped("expired (looked up)", "Joined")
        lookups = [each for each in outputs if isinstance(each, Dropped)]
        assert {each.reason for each in lookups} <= {expired.reason}
        return next((value for _, _, value, _ in sent(outputs)[::-1]), None), len(lookups)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("leap_ms", [86_400_001, 2 * 86_400_000, WEEK_MS, 500 * WEEK_MS])
@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("make", LEAPS.values(), ids=LEAPS)
def test_windows_meet_although_one_side_leaps_first(
    make: Make, first: str, leap_ms: int, restarts: bool
) -> None:
    sides, second = Sides(make), "right" if first == "left" else "left"
    sides.process(first, 11)
    sides.process(second, 11)
    sides.commit()
    sides.taken()
    now = leap_ms + 11
    sides.process(first, now)
    sides.commit()
    sides.process(first, now + 50, now + 86_000_000)
    if restarts:
        sides.taken()
        sides.restart()
    sides.process(second, now + 86_000_000)
    assert sides.taken() == (b"1,1", 0)


@pytest.mark.parametrize(
    "make",
    [
        counts(SHORT, "on_close"),
        final(SHORT),
        lambda built, topic: counts(SESSIONS, "on_close")(built, topic).map_values(lambda n: n),
    ],
    ids=["on close", "suppress", "view of sessions"],
)
def test_windows_expire_a_day_after_a_leap_and_their_lookups_are_counted(make: Make) -> None:
    sides = Sides(make)
    sides.process("left", 11)
    sides.process("right", 11)
    for passed_ms in (WEEK_MS, WEEK_MS + 86_400_001):
        sides.process("left", passed_ms + 11)
        sides.commit()
    assert sides.taken()[1] == 0
    sides.process("right", WEEK_MS + 86_400_012)
    assert sides.taken() == (b"None,1", 1)


def test_a_closed_session_that_is_kept_for_a_join_does_not_change() -> None:
    built = builder()
    one, two = (counts(SESSIONS, "on_close")(built, topic) for topic in ("left", "right"))
    one.join(two, lambda a, b: f"{a},{b}").to_stream().to("joined")
    lines = ("left k:1@0 k:1@6 k:1@5",)
    assert last(built, one, (*lines, "left k:1@50")) == {"k 0": "1", "k 5": "2"}


def test_only_windows_that_are_looked_up_are_kept_longer() -> None:
    built = builder()
    tables = [counts(SHORT)(built, topic) for topic in ("left", "right", "other")]
    tables[0].join(tables[1], lambda a, b: a).to_stream().to("out")
    tables[2].to_stream().to("counts")
    kept = {each.name: each for each in built.build().stores}
    day_ms = 86_400_000
    found = {name: kept[name].options["retention_ms"] for name in ("left", "right", "other")}
    assert found == {"left": day_ms + 10, "right": day_ms + 10, "other": 10}
