"""A backfill gives the results of the streaming pipeline, however often it is interrupted."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.streams.backfill import sorted_runs
from kafka_pipeline.streams.backfill.plan import make_plan
from kafka_pipeline.streams.backfill.tasks import BackfillTask, Done, Failed
from kafka_pipeline.streams.backfill.work import held
from kafka_pipeline.streams.partitioning import default_partition
from tests.history import Here, History, Interrupted, Row
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first
from tests.user_code.signing import signature

MIXED = """
- id: Sieve
  type: tests.user_code.history:Sieve
  to: [Adder, Counter]
  on_error: dead_letter
- {id: Adder, type: sum, to: [Totals], config: {constant: 3}, on_error: skip}
- {id: Counter, type: count, to: [Totals, sink], on_error: dead_letter}
- id: Totals
  type: tests.user_code.history:Totals
  to: [sink]
  serdes: {key: string, value: string, out_value: integer}
  stores: [{name: Totals, key: string, value: int64}]
"""
COUNT = "- {id: Counter, type: count, to: [sink]}\n"
CHAIN = """
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records fill several batches, files and tasks."""
    monkeypatch.setattr("kafka_pipeline.streams.backfill.files._CHUNK_RECORDS", 150)
    monkeypatch.setattr(sorted_runs, "BATCH_RECORDS", 40)
    monkeypatch.setattr(sorted_runs, "TASK_BATCH_RECORDS", 15)
    monkeypatch.setattr("kafka_pipeline.streams.backfill.stage._MOST_UNCOMMITTED", 5)
    monkeypatch.setattr(sorted_runs, "_SMALLEST_BATCH", 30)


def mixed_rows(count: int = 400) -> list[Row]:
    chance = random.Random(7)
    values: Sequence[bytes | None] = (None, b"", b"bad", b"words", b" +07 ", b"17", b"4", b"5")
    return [
        (
            chance.choice((None, b"a", b"b", b"c", b"")),
            chance.choice(values),
            1_000_000 + 7 * number,
            [("h", b"%d" % number), ("empty", None)] if number % 3 == 0 else [],
        )
        for number in range(count)
    ]


def number_rows(count: int, keys: int = 11) -> list[Row]:
    return [
        (b"k%d" % (number * 7919 % keys), b"%d" % number, 1_000 + number // 3, [])
        for number in range(count)
    ]


def test_the_results_are_those_of_the_streaming_run_record_for_record(tmp_path: Path) -> None:
    history = History(tmp_path, MIXED)
    rows = mixed_rows()
    history.write(rows)
    result = history.run()
    topics = ("Sieve_dead_letter", "Counter_dead_letter")
    expected = history.streamed({"in": rows}, *topics)
    assert [history.results(topic)[0] for topic in topics] == expected
    assert all(expected)
    # The order in which two processors write to one partition is not guaranteed.
    (sink,) = history.streamed({"in": rows}, "out")
    (found,) = history.results("out")
    assert sorted(found, key=repr) == sorted(sink, key=repr)
    by_totals = [row for row in found if not _is_count(row)]
    assert by_totals == [row for row in sink if not _is_count(row)]
    assert (result.read, result.written["out"]) == (len(rows), len(sink))
    assert result.dead_letters == sum(map(len, expected))
    assert result.skipped > 0


def _is_count(row: Row) -> bool:
    """Whether a record is one that `Counter` wrote to the sink: `Totals` drops headers."""
    return any(name == "offset" for name, _ in row[3])


@pytest.mark.parametrize("parallelism", long_but_the_first([2, 5]))
def test_all_of_a_key_is_processed_in_order_by_whatever_partition_has_it(
    tmp_path: Path, parallelism: int
) -> None:
    history = History(tmp_path, CHAIN, parallelism)
    rows = number_rows(1000)
    history.write(rows)
    history.run()
    (expected,) = history.streamed({"in": rows}, "out")
    found = history.results("out")
    for number, records in enumerate(found):
        assert {default_partition(key or b"", parallelism) for key, *_ in records} <= {number}
        # All of a partition come in order of time, as its input did.
        of_number = [
            row for row in expected if default_partition(row[0] or b"", parallelism) == number
        ]
        assert records == of_number


def test_results_of_one_backfill_are_the_input_of_another(tmp_path: Path) -> None:
    first = History(tmp_path / "first", "- {id: Adder, type: sum, to: [sink]}\n", 3)
    first.write(number_rows(300))
    first.run()
    second = History(tmp_path / "second", COUNT, 3, {"in": "../first/results/out"})
    second.run()
    counted = Counter(key for rows in second.results("out") for key, *_ in rows)
    assert counted == Counter(key for key, *_ in number_rows(300))


def test_a_global_store_has_all_of_its_topic_before_the_first_record(tmp_path: Path) -> None:
    pipeline = """
sources: {orders: orders, names: names}
sinks: {named: named}
processors:
- id: Names
  type: topology
  builder: tests.user_code.lookups:lookup
  config: {orders: orders, names: names, named: named}
"""
    history = History(tmp_path, pipeline, 2, {"orders": "in.parquet", "names": "names.parquet"})
    orders: list[Row] = [(None, b"n%d" % (number % 4), number, []) for number in range(100)]
    names: list[Row] = [(b"n%d" % number, b"N%d" % number, 10**9, []) for number in range(3)]
    history.write(orders)
    history.write(names, "names.parquet")
    history.run()
    found = Counter(value for rows in history.results("named") for _, value, *_ in rows)
    assert found == {b"N0": 25, b"N1": 25, b"N2": 25, b"?": 25}


@pytest.mark.parametrize("after", long_but_the_first(range(8), 3))
def test_an_interrupted_backfill_goes_on_with_what_is_not_done(tmp_path: Path, after: int) -> None:
    history = History(tmp_path, CHAIN, 2)
    rows = number_rows(400)
    history.write(rows)
    first = Here()
    first.interrupts = lambda task: len(first.ran) == after
    with pytest.raises(Interrupted):
        history.run(first)
    second = Here()
    history.run(second)
    everything = [*first.ran, *second.ran]
    assert len(everything) == len(set(everything)) == 8
    (expected,) = history.streamed({"in": rows}, "out")
    assert sorted(expected) == sorted(row for rows in history.results("out") for row in rows)


def test_what_a_task_left_behind_that_was_killed_is_removed(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(50))
    with pytest.raises(Interrupted):
        history.run(Here(lambda task: "stage" in task.folder.parent.name))
    rubbish = tmp_path / "results.backfill" / "stage-Counter" / "Counter_0.unfinished-0000"
    (rubbish / "runs" / "out").mkdir(parents=True)
    (rubbish / "runs" / "out" / "0-000000.arrow").write_text("torn")

    def is_gone(task: BackfillTask) -> bool:
        assert not rubbish.exists()
        return False

    history.run(Here(is_gone))
    assert len(history.results("out")[0]) == 50


def test_a_backfill_that_is_done_does_nothing_more(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(50))
    first = history.run()
    again = Here()
    assert history.run(again) == first
    assert again.ran == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pipeline", "belongs to another pipeline, or to one that was changed since"),
        ("input", "belongs to another input, or to one that was changed since"),
    ],
)
def test_another_pipeline_or_input_is_refused(tmp_path: Path, change: str, message: str) -> None:
    history = History(tmp_path, CHAIN)
    history.write(number_rows(50))
    with pytest.raises(Interrupted):
        history.run(Here(lambda task: "write" in task.folder.parent.name))
    if change == "pipeline":
        history = History(tmp_path, CHAIN.replace("sum,", "sum, config: {constant: 2},"))
    else:
        history.write(number_rows(51))
    with pytest.raises(ConfigError, match=message):
        history.run()


def test_a_folder_that_is_not_empty_is_refused_as_a_target(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(5))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine").touch()
    with pytest.raises(ConfigError, match="is not an empty folder"):
        history.run()


@pytest.mark.parametrize("to", ["job/results", "link/results", "job", "."])
def test_a_target_within_or_around_the_input_is_refused(tmp_path: Path, to: str) -> None:
    history = History(tmp_path / "job", COUNT, 1, {"in": ""})
    history.write(number_rows(5))
    (tmp_path / "link").symlink_to(tmp_path / "job")
    with pytest.raises(ConfigError, match="which is read: move one"):
        history.run(to=str(tmp_path / to))


@pytest.mark.parametrize(
    ("to", "work"),
    [
        ("out", "out"),
        ("out", "out/work"),
        ("work/out", "work"),
        ("work/out", "link"),
        ("out", "other/../out/work"),
        ("out", "history/work"),
        ("out", "history"),
        ("out", "."),
    ],
)
def test_a_work_folder_that_shares_folders_with_others_is_refused_before_anything_is_made(
    tmp_path: Path, to: str, work: str
) -> None:
    history = History(tmp_path, COUNT, 1, {"in": "history"})
    (tmp_path / "history").mkdir()
    history.write(number_rows(5), "history/in.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "work")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="must not lie within each other"):
        history.run(to=to, work=tmp_path / work)
    assert sorted(tmp_path.rglob("*")) == before
    history.run(to="out")
    assert len(history.results("out", "out")[0]) == 5


def test_a_relative_work_folder_is_the_same_wherever_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "executor").mkdir()

    class Elsewhere(Here):
        def run(
            self,
            tasks: Sequence[BackfillTask],
            body: Callable[[BackfillTask], Done | Failed],
            description: str,
        ) -> list[Done | Failed]:
            with contextlib.chdir(tmp_path / "executor"):
                return super().run(tasks, body, description)

    history = History(tmp_path, CHAIN, 2)
    history.write(number_rows(50))
    monkeypatch.chdir(tmp_path)
    history.run(Elsewhere(), work=Path("work"))
    assert sum(len(rows) for rows in history.results("out")) == 50
    assert (tmp_path / "work" / "result.json").exists()
    assert not any((tmp_path / "executor").iterdir())


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (
            "read-in/000000",
            r"read-in/000000 is not there, though its task is done: the work folder",
        ),
        ("read-in/000000/runs/in/1-*", r"read-in/000000 has 1 run, not 2, though its task"),
        ("stage-Adder/Adder_0/runs/*/0-*", r"stage-Adder/Adder_0 has [01] runs?, not [12]"),
        ("../results/out/0.parquet", r"results/out/0\.parquet is not there, .*: --to must be on"),
    ],
)
def test_what_a_task_wrote_where_nobody_else_sees_it_ends_the_backfill(
    tmp_path: Path, lost: str, message: str
) -> None:
    class Loses(Here):
        def run(
            self,
            tasks: Sequence[BackfillTask],
            body: Callable[[BackfillTask], Done | Failed],
            description: str,
        ) -> list[Done | Failed]:
            outcomes = super().run(tasks, body, description)
            for path in (tmp_path / "results.backfill").glob(lost):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            return outcomes

    history = History(tmp_path, CHAIN, 2)
    history.write(number_rows(50))
    with pytest.raises(ConfigError, match=message):
        history.run(Loses())


def test_folders_are_told_as_they_are_called(tmp_path: Path) -> None:
    folder = tmp_path / "[old] :smile:" / ("long" * 40)
    folder.parent.mkdir()
    history = History(folder, COUNT)
    history.write(number_rows(5))
    history.run()
    console = Console(file=io.StringIO(), width=40)
    history.run(console=console)
    assert isinstance(console.file, io.StringIO)
    work = folder / "results.backfill"
    assert console.file.getvalue() == f"done before; remove {work} to do it again\n"


def test_a_backfill_whose_first_start_was_interrupted_begins(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(5))
    (tmp_path / "results.backfill").mkdir()
    (tmp_path / "results.backfill" / "backfill.new").write_text("{")
    assert history.run().read == 5


def test_a_work_folder_is_for_its_owner(tmp_path: Path) -> None:
    """It has records and state."""
    with held(tmp_path / "work"):
        assert (tmp_path / "work").stat().st_mode & 0o777 == 0o700


def test_a_work_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(5))
    (tmp_path / "results.backfill").mkdir()
    (tmp_path / "results.backfill" / "mine").touch()
    with pytest.raises(ConfigError, match="has mine in it, and is not a work folder"):
        history.run()


def test_a_damaged_work_folder_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(5))
    (tmp_path / "results.backfill").mkdir()
    (tmp_path / "results.backfill" / "backfill.json").write_text("{")
    with pytest.raises(ConfigError, match=r"backfill\.json is damaged .*: remove .* to start over"):
        history.run()


def test_a_work_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    history = History(tmp_path, COUNT)
    history.write(number_rows(5))
    (tmp_path / "results.backfill").touch()
    with pytest.raises(UnavailableError, match=r"cannot be used: .*results\.backfill"):
        history.run()


def test_a_record_that_fails_ends_it_and_what_is_done_stays(tmp_path: Path) -> None:
    history = History(tmp_path, CHAIN)
    history.write([(b"a", b"1", 0, []), (b"a", b"bad", 1, [])])
    with pytest.raises(
        PipelineError, match=r"Adder_0: record in\[0\]@1: the value is not an integer"
    ):
        history.run()
    again = Here()
    with pytest.raises(PipelineError):
        history.run(again)
    assert again.ran == ["stage-Adder/Adder_0"]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({}, "also reads in: say where"),
        ({"in": "in.parquet", "source": "in.parquet"}, "given twice for topic in"),
        ({"in": "nowhere.parquet"}, "there is no file or folder"),
        ({"in": "../other"}, "has no column"),
    ],
)
def test_sources_that_do_not_fit_are_refused(
    tmp_path: Path, sources: dict[str, str], message: str
) -> None:
    history = History(tmp_path / "job", COUNT, 1, sources)
    history.write(number_rows(5))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.csv").write_text("key,value\n")
    with pytest.raises(ConfigError, match=message):
        history.run()


def test_a_topic_does_not_take_what_only_a_function_knows(tmp_path: Path) -> None:
    """That is known before the work, and not after it."""
    code = "tests.user_code.topologies:by_size"
    config, file = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(f"{SMALL_CONFIG}modules: [tests.user_code.topologies]\n")
    file.write_text(f"- {{id: W, type: topology, builder: '{code}', config: {{orders: in}}}}")
    with pytest.raises(ConfigError, match='a function of "W-Orders" chooses topics'):
        make_plan(config, file, ["in=x.parquet"], "topic:out")


def test_a_circle_of_topics_is_refused(tmp_path: Path) -> None:
    pipeline = """
sources: {before: {topic: first, feedback: true}, between: second}
sinks: {behind: first, beyond: second}
processors:
- {id: First, type: forward, from: [source, before], to: [beyond]}
- {id: Second, type: forward, from: [between], to: [behind, sink]}
"""
    history = History(tmp_path, pipeline)
    history.write(number_rows(5))
    with pytest.raises(ConfigError, match="First, Second read what they write"):
        history.run()


def test_code_gets_the_values_of_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = '- {id: S, type: "tests.user_code.signing:Sign", config: {key: "${K}"}, to: [sink]}'
    history = History(tmp_path, pipeline)
    with (tmp_path / "config.yaml").open("a") as file:
        file.write("secrets: {variables: K}\n")
    history.write(number_rows(5))
    monkeypatch.delenv("K", raising=False)
    with pytest.raises(ConfigError, match=r"S\.config\.key: the environment variable K is not set"):
        history.run()
    monkeypatch.setenv("K", "hunter2")
    history.run()
    assert [value for _, value, *_ in history.results("out")[0]] == [
        signature("hunter2", value or b"") for _, value, *_ in number_rows(5)
    ]
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
    ]
