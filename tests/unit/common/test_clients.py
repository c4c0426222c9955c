"""The settings of librdkafka's clients, and which of their messages are logged."""

from __future__ import annotations

import logging

import pytest

from common.kafka import clients


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("librdkafka", logging.ERROR, "", 0, message, None, None)


def test_a_broker_that_is_away_is_logged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    log_filter = clients._LogFilter()
    logged = []
    for _ in range(200):
        logged.append(
            log_filter.filter(record("FAIL 127.0.0.1:1/1: Connect to ipv4#… failed: refused"))
        )
        now_s += 0.125
    assert [index for index, is_logged in enumerate(logged) if is_logged] == [0, 80, 160]


def test_other_messages_are_logged_except_those_that_the_caller_gets_as_exceptions() -> None:
    log_filter = clients._LogFilter()
    assert log_filter.filter(record("FAIL 127.0.0.1:1/1: Disconnected (after 5 ms in state UP)"))
    assert not log_filter.filter(record("TXNERR Current transaction failed in state InTransaction"))
