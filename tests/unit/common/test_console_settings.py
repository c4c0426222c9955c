"""The keys of the console in config.yaml."""

from __future__ import annotations

import pytest

from tests.unit.common.config_texts import BASE, load, problems_in


def test_without_keys_there_is_no_console() -> None:
    config = load(BASE)
    assert (config.console_port, config.console_host) == (None, "127.0.0.1")
    assert config.console_names == ()


def test_keys_are_read() -> None:
    config = load(f'{BASE}console_port: 0\nconsole_host: "::1"\nconsole_names: [a.example, b]\n')
    assert (config.console_port, config.console_host) == (0, "::1")
    assert config.console_names == ("a.example", "b")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("console_port: 65536", "console_port must be 0 to 65535, got 65536"),
        ("console_port: on", "console_port must be a whole number, got the truth value on"),
        ("console_host: 127", "console_host must be a string, got the number 127"),
        ("console_host: a b", 'console_host "a b" is not one host name or address'),
        ("console_host: http://a", 'console_host "http://a" is not one host name or address'),
        ("console_names: [a, 'b:80']", 'console_names: "b:80" is not a host name without a port'),
        ("console_names: [1]", "console_names must hold texts, got the number 1"),
    ],
)
def test_wrong_values_are_refused(line: str, problem: str) -> None:
    (found,) = problems_in(f"{BASE}{line}\n")
    assert problem in found
