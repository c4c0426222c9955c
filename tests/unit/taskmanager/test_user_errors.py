"""The log of user code that fails: one traceback for each error, then counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from kafka_pipeline import TopologyBuilder, serdes, stores
from kafka_pipeline.common.code.error_words import HOW_TO_SHOW
from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.monitoring import logs
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.sql.spec import SparkLostError
from kafka_pipeline.taskmanager import task_start, worker
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.marks import Marks
from kafka_pipeline.taskmanager.supervision import WorkerEndedError
from kafka_pipeline.taskmanager.thread_events import FailureKind
from kafka_pipeline.taskmanager.user_errors import (
    REPORT_INTERVAL_S,
    UserCodeError,
    UserErrorLog,
    log_context,
)
from kafka_pipeline.taskmanager.worker import ThreadSettings
from tests.unit.taskmanager.fakes import CONFIG, Clock, Rig
from tests.unit.taskmanager.noting import assigned_to, start
from tests.user_code import shop

SHOP = "tests/user_code/shop.py"


def raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


def failing(mark: int) -> Exception:
    """Return one of many errors of user code that differ in their place."""
    names: dict[str, Any] = {"__name__": "shop"}
    exec(
        compile("\n" * mark + "def work(): raise KeyError('secret')", "/code/shop.py", "exec"),
        names,
    )
    return raised(names["work"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> UserErrorLog:
    return UserErrorLog(clock.monotonic)


@pytest.fixture
def entries() -> Iterator[list[EventDict]]:
    with capture_logs() as found:
        yield found


def test_an_error_is_logged_once_with_the_users_part_of_its_traceback(
    log: UserErrorLog, entries: list[EventDict]
) -> None:
    for _ in range(1_000):
        assert log.record(raised(shop.supply), structlog.get_logger())
    (entry,) = entries
    (frame, source) = entry.pop("exception").splitlines()[-3:-1]
    assert frame == f'  File "{SHOP}", line {shop.line_of("supplier")}, in supply'
    assert source == '    raise ConnectionError("no registry")  # raises: supplier'
    assert entry == {
        "event": "user code failed",
        "log_level": "warning",
        "error": "ConnectionError",
        "place": f"{SHOP}:{shop.line_of('supplier')} in supply",
    }


def test_neither_message_nor_variables_are_in_the_traceback(
    log: UserErrorLog, entries: list[EventDict]
) -> None:
    payload = b"secret"
    log.record(raised(lambda: shop.read(payload)), structlog.get_logger())
    assert "secret" not in str(entries)
    assert entries[0]["exception"].endswith("\nKeyError")


def test_counts_come_at_most_once_a_minute(
    log: UserErrorLog, clock: Clock, entries: list[EventDict]
) -> None:
    for number in range(5):
        log.record(raised(shop.supply), structlog.get_logger())
        log.report()
        clock.now_s += REPORT_INTERVAL_S / 4
        if number == 3:
            log.report()
    counted = [entry for entry in entries if entry["event"] == "user code failed again"]
    assert [(entry["times"], entry["total"]) for entry in counted] == [(3, 4)]
    clock.now_s += REPORT_INTERVAL_S
    log.report()
    log.report()
    counted = [entry for entry in entries if entry["event"] == "user code failed again"]
    assert [(entry["times"], entry["total"]) for entry in counted] == [(3, 4), (1, 5)]
    assert counted[-1]["place"].startswith(SHOP)


def test_another_place_or_class_is_another_error(
    log: UserErrorLog, entries: list[EventDict]
) -> None:
    for error in (failing(1), failing(2), failing(1), raised(shop.supply)):
        log.record(error, structlog.get_logger())
    assert [entry["place"] for entry in entries] == [
        "shop.py:2 in work",
        "shop.py:3 in work",
        f"{SHOP}:{shop.line_of('supplier')} in supply",
    ]


def test_what_is_remembered_is_bounded(log: UserErrorLog, entries: list[EventDict]) -> None:
    """Errors are counted before they are forgotten."""
    first = failing(0)
    for _ in range(3):
        log.record(first, structlog.get_logger())
    for mark in range(1, 2_000):
        log.record(failing(mark), structlog.get_logger())
    assert len(log._known) == 256
    (counted,) = (entry for entry in entries if entry["event"] == "user code failed again")
    assert (counted["place"], counted["times"]) == ("shop.py:1 in work", 2)


def test_errors_without_user_code_are_not_its_business(
    log: UserErrorLog, entries: list[EventDict]
) -> None:
    assert not log.record(raised(lambda: TaskId.parse("x")).with_traceback(None), None)
    assert entries == []


def test_the_thread_reports_counts(
    monkeypatch: pytest.MonkeyPatch, entries: list[EventDict]
) -> None:
    rig = Rig(monkeypatch)
    errors = rig.thread._context.user_errors
    for _ in range(3):
        errors.record(raised(shop.supply), structlog.get_logger())
    rig.clock.now_s += REPORT_INTERVAL_S
    rig.step()
    assert [entry["times"] for entry in entries if "times" in entry] == [2]


def test_a_task_whose_user_code_fails_starts_again_and_logs_no_second_traceback(
    monkeypatch: pytest.MonkeyPatch, entries: list[EventDict]
) -> None:
    def fail() -> None:
        raise UserCodeError("KeyError: 'x' (shop.py:17 in init)")

    rig = Rig(monkeypatch)
    task = rig.assign(0)
    task.on_start = fail
    rig.step()
    rig.step_until(lambda: rig.status(task).count("restarts") > 0)
    found = {(entry["event"], entry["reason"]) for entry in entries}
    assert found == {("task starts again", "KeyError: 'x' (shop.py:17 in init)")}


# A task


def group(supplier: Callable[[], Any], *, has_store: bool = False) -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in", value_serde=serdes.string)
    builder.add_processor("Enrich", supplier, "source")
    builder.add_sink("sink", "out", "Enrich", value_serde=serdes.string)
    if has_store:
        store = stores.key_value("S", serdes.string, serdes.string, persistent=False, logged=False)
        builder.add_state_store(store, "Enrich")
    return builder.build().groups[0]


Assign = Callable[[Callable[[], Any]], AssignedTask]


@pytest.fixture
def assign(monkeypatch: pytest.MonkeyPatch) -> Assign:
    """Return what assigns a task of a processor, which skips what is rejected."""
    monkeypatch.setattr(task_start, "settings_of", lambda _: GroupSettings(OnError.SKIP))
    return lambda supplier: assigned_to([], 0, monkeypatch, lambda: group(supplier))


def records(count: int) -> RecordBatch:
    return RecordBatch("in", 0, [b"k"] * count, [b"v"] * count, [1] * count, list(range(count)))


def test_records_that_are_skipped_leave_one_traceback(
    assign: Assign, entries: list[EventDict]
) -> None:
    assigned = assign(shop.Enrich)
    task = start(assigned)
    task.add(records(100))
    task.turn(inf)
    found = [entry for entry in entries if entry["event"] == "user code failed"]
    assert [(entry["task"], entry["node"]) for entry in found] == [("P_0", "Enrich")]
    task.commit()
    assert assigned.memory.figures.skipped == 100
    assert assigned.memory.figures.rejected == {"builtins.KeyError": 100}


@pytest.mark.parametrize(
    ("supplier", "mark", "said"),
    [
        (shop.Begin, "init", "FileNotFoundError: model.bin"),
        (shop.BeginAsync, "init of a coroutine", "FileNotFoundError: model.bin"),
        (shop.supply, "supplier", "ConnectionError: no registry"),
    ],
)
def test_init_that_raises_starts_the_task_again_with_one_traceback_and_its_place(
    assign: Assign,
    entries: list[EventDict],
    supplier: Callable[[], Any],
    mark: str,
    said: str,
) -> None:
    assigned = assign(supplier)
    for _ in range(3):
        with pytest.raises(UserCodeError) as caught:
            start(assigned)
    failure = assigned.failure_of(caught.value)
    assert failure.kind is FailureKind.NOT_MADE
    assert said in failure.reason
    assert f"({SHOP}:{shop.line_of(mark)} in " in failure.reason
    assert failure.reason.endswith(', processor "Enrich")')
    assert [entry["event"] for entry in entries] == ["user code failed"]


@pytest.mark.parametrize("has_store", [False, True])
def test_init_has_its_message_unless_it_can_read_state(
    has_store: bool, entries: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = assigned_to(
        [], 0, monkeypatch, lambda: group(shop.Connect, has_store=has_store), config=CONFIG
    )
    with pytest.raises(UserCodeError) as caught:
        start(assigned)
    (entry,) = (each for each in entries if each["event"] == "user code failed")
    for text in (str(caught.value), entry["exception"].splitlines()[-1]):
        assert ("no answer from" in text) is not has_store
    assert str(caught.value).endswith(HOW_TO_SHOW) is has_store


def test_init_that_asks_for_what_cannot_be_stops_the_task_with_its_place(assign: Assign) -> None:
    with pytest.raises(NonRetriableError) as caught:
        start(assign(shop.Storeless))
    assert str(caught.value).endswith(
        f'({SHOP}:{shop.line_of("store")} in init, processor "Enrich")'
    )


def test_close_that_raises_is_logged_with_its_place(
    assign: Assign, entries: list[EventDict]
) -> None:
    start(assign(shop.End)).close()
    failed, closed = entries[-2:]
    assert failed["event"] == "user code failed"
    assert closed["event"] == "a processor did not close cleanly"
    place = f'({SHOP}:{shop.line_of("close")} in close, processor "Enrich")'
    assert closed["reason"] == f"RuntimeError: still busy {place}"


@pytest.mark.parametrize("values", [False, True])
def test_logs_and_reasons_quote_records_only_with_log_record_values(
    values: bool, entries: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, log_record_values=values)
    assigned = assigned_to([], 0, monkeypatch, lambda: group(shop.Enrich), config=config)
    task = start(assigned)
    batch = RecordBatch("in", 0, [b"k"], [b"4111111111111111"], [1], [0])
    task.add(batch)
    with pytest.raises(ProcessingFailedError) as raised:
        task.turn(inf)
    reason = assigned.failure_of(raised.value).reason
    (entry,) = (each for each in entries if each["event"] == "user code failed")
    assert entry["exception"].splitlines()[-1].startswith("KeyError")
    for text in (reason, str(entry)):
        assert ("4111111111111111" in text) is values


@pytest.mark.parametrize("values", [False, True])
def test_reasons_of_other_errors_quote_records_only_with_log_record_values(
    values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, log_record_values=values)
    assigned = assigned_to([], 0, monkeypatch, lambda: group(shop.Pass), config=config)
    for error in (
        SparkLostError("4111 is odd", shown="CAST_INVALID_INPUT"),
        NonRetriableError("4111 is no topic", shown="there is no such topic"),
        raised(lambda: shop.read(b"4111")),
    ):
        reason = assigned.failure_of(error).reason
        assert ("4111" in reason) is values
        assert reason.endswith("; log_record_values: true shows its message") is not values


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (False, ValueError("4111 is odd"), "ValueError"),
        (True, ValueError("4111 is odd"), "ValueError: 4111 is odd"),
        (False, UnavailableError("no broker", shown="no broker"), "UnavailableError: no broker"),
    ],
)
def test_what_ends_a_worker_reaches_the_driver_without_what_it_may_quote(
    values: bool, error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: ThreadSettings, __: Marks) -> None:
        raise error

    monkeypatch.setattr(worker, "run", fail)
    config = replace(CONFIG, log_record_values=values)
    addresses = (("localhost", 1), b"", ("localhost", 2))
    body = worker.spark_body(ThreadSettings(config, 0, 0, *addresses, RUNNING_VERSION))
    with pytest.raises(WorkerEndedError) as caught:
        body([0])
    assert str(caught.value) == words


def test_worker_of_another_version_than_its_driver_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "installed_version", lambda: "0.2.0")
    addresses = (("localhost", 1), b"", ("localhost", 2))
    body = worker.spark_body(ThreadSettings(CONFIG, 0, 0, *addresses, "0.1.0"))
    with pytest.raises(RuntimeError, match=r"0\.2\.0 .* over 0\.1\.0, .* start the TaskManager"):
        body([0])


# Logs of user code


@pytest.fixture
def json_logs(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[EventDict]]]:
    """Return what reads the entries that were logged since the last call."""
    logs.configure("json", "debug", ["tests.user_code"])
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logs.configure("console", "info")


@pytest.mark.parametrize("processor", [shop.Pass, shop.PassAsync])
def test_user_code_logs_with_the_id_of_its_task(
    processor: Callable[[], Any], assign: Assign, json_logs: Callable[[], list[EventDict]]
) -> None:
    task = start(assign(processor))
    task.add(records(1))
    task.turn(inf)
    logging.getLogger(shop.__name__).info("outside of a task")
    inside, outside = (entry for entry in json_logs() if entry.get("logger") == shop.__name__)
    assert (inside["event"], inside["level"]) == ("passed on", "debug")
    assert (inside["task"], inside["processor"]) == ("P_0", "P")
    assert "task" not in outside


@pytest.mark.parametrize("place", ["init", "close", "a punctuation"])
def test_other_calls_of_user_code_have_the_id_too(
    place: str, assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class Noting(shop.Tick):
        def init(self, context: Any) -> None:
            super().init(context)
            self.note("init")

        def close(self) -> None:
            self.note("close")

        def flush(self, time: int) -> None:
            self.note("a punctuation")

        def note(self, what: str) -> None:
            if what == place:
                seen.append(structlog.contextvars.get_contextvars())

    now_ms = 1_800_000_000_000
    monkeypatch.setattr(task_start, "wall_clock_ms", lambda: now_ms)
    task = start(assign(Noting))
    now_ms += 1_000
    task.turn(inf)
    task.close()
    assert seen == [{"task": "P_0", "processor": "P"}]
    assert structlog.contextvars.get_contextvars() == {}


def test_the_context_of_a_task_ends_when_its_code_raises() -> None:
    seen: list[object] = []

    def work() -> None:
        seen.append(structlog.contextvars.get_contextvars())
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), log_context(TaskId("Enrich", 3)):
        work()
    assert seen == [{"task": "Enrich_3", "processor": "Enrich"}]
    assert structlog.contextvars.get_contextvars() == {}
