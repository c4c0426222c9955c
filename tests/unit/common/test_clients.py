"""What librdkafka's clients are told, and what of their talk is passed on."""

from __future__ import annotations

import logging

import pytest

from common.kafka import clients


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("librdkafka", logging.ERROR, "", 0, message, None, None)


def test_a_broker_that_is_away_is_told_once_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    log_filter = clients._LogFilter()
    told = []
    for _ in range(200):
        told.append(
            log_filter.filter(record("FAIL 127.0.0.1:1/1: Connect to ipv4#… failed: refused"))
        )
        now_s += 0.125
    assert [index for index, is_told in enumerate(told) if is_told] == [0, 80, 160]


def test_other_news_is_told_but_for_what_the_caller_gets_as_an_exception() -> None:
    log_filter = clients._LogFilter()
    assert log_filter.filter(record("FAIL 127.0.0.1:1/1: Disconnected (after 5 ms in state UP)"))
    assert not log_filter.filter(record("TXNERR Current transaction failed in state InTransaction"))
