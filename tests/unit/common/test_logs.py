"""What a log entry looks like, and where it goes."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import redirect_stderr
from typing import Any

import pytest
import structlog

from kafka_pipeline.common.code.error_words import traceback_of
from kafka_pipeline.common.config.config_keys import LogFormat
from kafka_pipeline.common.monitoring.logs import configure

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


def test_json_is_one_object_per_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")
    structlog.get_logger().bind(task="Counter_0", epoch=7).info("task started", thread=1)

    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    entry = json.loads(err)
    assert TIMESTAMP.fullmatch(entry.pop("timestamp"))
    assert entry == {
        "event": "task started",
        "level": "info",
        "task": "Counter_0",
        "epoch": 7,
        "thread": 1,
    }


def test_context_of_the_thread_is_in_each_entry(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")
    with structlog.contextvars.bound_contextvars(task_manager="1"):
        structlog.get_logger().info("a")
    structlog.get_logger().info("b")

    a, b = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert a["task_manager"] == "1"
    assert "task_manager" not in b


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_entries_below_the_level_are_dropped(
    level: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("json", level)  # type: ignore[arg-type]
    log = structlog.get_logger()
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("x")

    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["level"] for line in lines] == expected


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    log = structlog.get_logger()
    configure("console", "error")
    log.info("dropped")
    configure("json", "info")
    configure("json", "info")
    log.info("once")
    logging.getLogger("library").warning("once too")

    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["once", "once too"]


def test_handlers_of_others_stay() -> None:
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    configure("json", "info")
    assert other in logging.getLogger().handlers


@pytest.mark.parametrize(
    ("level", "expected"), [("debug", ["warning", "error"]), ("error", ["error"])]
)
def test_libraries_log_the_same_way_from_warnings_up(
    level: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("json", level)  # type: ignore[arg-type]
    library = logging.getLogger("py4j.x")
    library.info("a %s", 1)
    library.warning("b %s", 2)
    library.error("c")

    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [entry["level"] for entry in entries] == expected
    for entry in entries:
        assert TIMESTAMP.fullmatch(entry["timestamp"])
        assert entry["logger"] == "py4j.x"
    assert entries[0]["event"] == ("b 2" if level == "debug" else "c")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_modules_of_the_user_follow_the_level_and_all_below_them_too(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("json", level, ["shop", "till.cash"])  # type: ignore[arg-type]
    names = ("debug", "info", "warning", "error")
    for module in ("shop", "shop.orders.prices", "till.cash", "till", "shopping"):
        for name in names:
            getattr(logging.getLogger(module), name)(name)

    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    own, others = list(names[names.index(level) :]), list(names[max(2, names.index(level)) :])
    for module, expected in (
        ("shop", own),
        ("shop.orders.prices", own),
        ("till.cash", own),
        ("till", others),
        ("shopping", others),
    ):
        found = [entry["event"] for entry in entries if entry["logger"] == module]
        assert (module, found) == (module, expected)


def test_extra_values_of_the_standard_library_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info", ["shop"])
    extra = {"order": 7, "event": "no message", "level": "none", "key": {("a", 1): 2}}
    logging.getLogger("shop").info("order %s", "taken", extra=extra)
    entry = json.loads(capsys.readouterr().err)
    assert TIMESTAMP.fullmatch(entry.pop("timestamp"))
    assert entry == {
        "event": "order taken",
        "level": "info",
        "logger": "shop",
        "order": 7,
        "key": "{('a', 1): 2}",
    }


def test_a_level_that_a_module_of_the_user_sets_itself_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("json", "debug", ["shop"])
    logging.getLogger("shop.noisy").setLevel(logging.ERROR)
    logging.getLogger("shop.noisy").warning("x")
    assert capsys.readouterr().err == ""


def test_modules_of_an_earlier_call_are_as_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "debug", ["shop"])
    configure("json", "debug")
    logging.getLogger("shop").info("x")
    assert capsys.readouterr().err == ""


CARD = "4111111111111111"


def fail() -> None:
    password = "hunter2"
    try:
        int(f"{CARD}x")
    except ValueError as error:
        error.add_note(CARD)
        raise ExceptionGroup(CARD, [KeyError(CARD), LookupError("the code says so")]) from error
    raise AssertionError(password)


@pytest.mark.parametrize("format_", ["json", "console"])
@pytest.mark.parametrize("with_values", [False, True])
def test_a_traceback_comes_without_local_variables_and_without_what_may_be_data(
    format_: str, with_values: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(format_, "info", with_values=with_values)  # type: ignore[arg-type]
    for log in (structlog.get_logger(), logging.getLogger("library")):
        try:
            fail()
        except ExceptionGroup:
            log.exception("failed")

    err = capsys.readouterr().err
    assert "hunter2'" not in err.replace('password = "hunter2"', "")
    assert (CARD in err) is with_values
    for name in ("ValueError", "KeyError", "ExceptionGroup", "LookupError"):
        assert err.count(name) >= 2
    assert err.count("in fail") == 4
    assert err.count("The above exception was the direct cause") == 2
    if format_ == "json":
        for line in err.splitlines():
            assert "KeyError" in json.loads(line)["exception"]


def test_a_traceback_without_values_has_the_words_of_the_code() -> None:
    def missing() -> None:
        raise LookupError("no such card")

    def translated() -> None:
        try:
            missing()
        except LookupError:
            raise KeyError(CARD)  # noqa: B904

    with pytest.raises(KeyError) as raised:
        translated()
    lines = traceback_of(raised.value, with_values=False).splitlines()
    assert "LookupError: no such card" in lines
    assert "During handling of the above exception, another exception occurred:" in lines
    assert lines[-1] == "KeyError"


def test_a_value_that_json_does_not_know_is_logged_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("json", "info")
    structlog.get_logger().info("x", partitions={3})
    assert "3" in json.loads(capsys.readouterr().err)["partitions"]


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def cycle() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


@pytest.mark.parametrize("format_", ["json", "console"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({("a", 1): 2}, "{('a', 1): 2}"),
        (cycle(), "{'self': {...}}"),
        (float("nan"), "nan"),
        (Unprintable(), "<Unprintable: its __repr__ raised RuntimeError>"),
        ([Unprintable()], "<list: its __repr__ raised RuntimeError>"),
        (10**5000, "<int: its __repr__ raised ValueError>"),
    ],
    ids=["key", "cycle", "nan", "repr", "nested repr", "digits"],
)
def test_a_value_that_cannot_be_shown_fails_no_log_call(
    format_: str, value: object, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log call that raises in `process` would fail the record: see structlog 265."""
    configure(format_, "info")  # type: ignore[arg-type]
    structlog.get_logger().info("x", found=value, counts={"a": 1})

    err = capsys.readouterr().err
    if format_ == "json":
        entry = json.loads(err, parse_constant=pytest.fail)
        assert (entry["event"], entry["found"], entry["counts"]) == ("x", shown, {"a": 1})
    else:
        assert shown in err
        assert "counts={'a': 1}" in err


def test_colours_appear_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("console", "info")
    structlog.get_logger().info("plain", task="A_0")
    plain = capsys.readouterr().err
    assert "\x1b[" not in plain
    assert re.search(r"Z \[info *\] plain +task=A_0\n", plain)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure("console", "info")
    structlog.get_logger().info("coloured")
    assert "\x1b[" in capsys.readouterr().err


class Broken:
    """Standard error whose reader is gone, or whose disk is full."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, _text: str) -> None:
        raise self._error

    def flush(self) -> None:
        raise self._error

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "full"), ValueError("closed file")]
)
def test_line_that_cannot_be_written_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sys, "stderr", Broken(error))
    configure("json", "info")
    structlog.get_logger().info("task started")


@pytest.mark.parametrize("format_", ["json", "console"])
def test_user_code_may_take_standard_error_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], format_: LogFormat
) -> None:
    configure(format_, "info")
    original = sys.stderr
    monkeypatch.setattr(sys, "__stderr__", original)
    with redirect_stderr(None):
        structlog.get_logger().info("task started")
        logging.getLogger("library").warning("low on memory")
    monkeypatch.setattr(sys, "__stderr__", None)
    with redirect_stderr(None):
        structlog.get_logger().info("task stopped")
    said = capsys.readouterr().err
    assert "task started" in said
    assert "low on memory" in said


def test_chain_of_as_many_errors_as_python_allows_is_shown() -> None:
    """Code that recurses without end, and wraps errors on the way, makes one."""

    def wrapping() -> None:
        try:
            wrapping()
        except Exception as error:
            raise ValueError("no good") from error

    with pytest.raises(ValueError, match="no good") as raised:
        wrapping()
    lines = traceback_of(raised.value, with_values=False).splitlines()
    assert lines.count("ValueError: no good") > 100
    assert lines[-1] == "ValueError: no good"
