"""The keys of the console in config.yaml."""

from __future__ import annotations

import pytest

from tests.unit.common.config_texts import BASE, load, problems_in


def test_without_keys_there_is_no_console() -> None:
    config = load(BASE)
    assert (config.console_port, config.console_host) == (None, "127.0.0.1")
    assert config.console_names == ()
    assert (config.console_token_file, config.console_records) == (None, False)


def test_keys_are_read() -> None:
    config = load(f'{BASE}console_port: 0\nconsole_host: "::1"\nconsole_names: [a.example, b]\n')
    assert (config.console_port, config.console_host) == (0, "::1")
    assert config.console_names == ("a.example", "b")


def test_token_file_is_relative_to_the_folder_of_the_file() -> None:
    config = load(f"{BASE}console_token_file: secrets/token\nconsole_records: true\n")
    assert config.console_token_file is not None
    assert config.console_token_file.is_absolute()
    assert config.console_token_file.parts[-2:] == ("secrets", "token")
    assert config.console_records


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("console_port: 65536", "console_port must be 0 to 65535, got 65536"),
        ("console_port: on", "console_port must be a whole number, got the truth value on"),
        ("console_host: 127", "console_host must be a string, got the number 127"),
        ("console_host: a b", 'console_host "a b" is not one host name or address'),
        ("console_host: http://a", 'console_host "http://a" is not one host name or address'),
        ("console_names: [a, 'b:80']", 'console_names: "b:80" is not a host name without a port'),
        ("console_token_file: 12", "console_token_file must be a string, got the number 12"),
        ("console_records: 1", "console_records must be true or false, got the number 1"),
        ("console_records: true", "console_records needs console_token_file: only those who have"),
        ("console_names: [1]", "console_names must hold texts, got the number 1"),
    ],
)
def test_wrong_values_are_refused(line: str, problem: str) -> None:
    (found,) = problems_in(f"{BASE}{line}\n")
    assert problem in found
