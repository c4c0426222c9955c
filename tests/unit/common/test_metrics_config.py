"""Where config.yaml says that metrics are shown."""

from __future__ import annotations

import pytest

from tests.unit.common.config_texts import BASE, load, problems_in


def test_metrics_are_off_unless_there_is_a_port_and_stay_on_this_host() -> None:
    config = load(BASE)
    assert (config.metrics_port, config.metrics_host) == (None, "127.0.0.1")
    config = load(BASE + 'metrics_port: 0\nmetrics_host: "::1"')
    assert (config.metrics_port, config.metrics_host) == (0, "::1")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("metrics_port: 65536", "8:15: metrics_port must be 0 to 65535, got 65536"),
        ('metrics_host: "a b"', '8:15: metrics_host "a b" is not one host name or address'),
    ],
)
def test_an_address_for_metrics_that_cannot_be_is_reported(line: str, problem: str) -> None:
    assert problems_in(BASE + line) == [problem]


def test_a_port_for_metrics_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = BASE + 'metrics_port: "${METRICS_PORT:-9400}"'
    assert load(text).metrics_port == 9400
    monkeypatch.setenv("METRICS_PORT", "9401")
    assert load(text).metrics_port == 9401
