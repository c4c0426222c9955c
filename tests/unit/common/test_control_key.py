"""control_key_file of config.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from tests.unit.common.config_texts import BASE

FIRST, SECOND = "a1" * 32, "b2" * 32


def load_with(folder: Path, key: str | bytes | None) -> Config:
    if key is not None:
        (folder / "key").write_bytes(key.encode() if isinstance(key, str) else key)
    file = folder / "config.yaml"
    file.write_text(f"{BASE}\ncontrol_key_file: key\n")
    return load_config(file)


@pytest.mark.parametrize("text", [FIRST, f"{FIRST}\n", f"\n  {FIRST}\r\n\n"])
def test_the_key_is_the_first_line(tmp_path: Path, text: str) -> None:
    config = load_with(tmp_path, text)
    assert config.control_key is not None
    assert config.control_key.accepted == (FIRST.encode(),)
    assert config.control_key_file == tmp_path / "key"


def test_a_second_line_is_accepted_too(tmp_path: Path) -> None:
    config = load_with(tmp_path, f"{FIRST}\n{SECOND}\n")
    assert config.control_key is not None
    assert config.control_key.accepted == (FIRST.encode(), SECOND.encode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        ("short", "line 1 has 5 characters, and a key has 32 or more"),
        (f"{FIRST}\n{SECOND[:31]}", "line 2 has 31 characters"),
        (f"{FIRST}\n{SECOND}\n{FIRST}", "it has 3 lines"),
    ],
)
def test_a_file_without_a_key_is_an_error_at_its_line(
    tmp_path: Path, text: str | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        load_with(tmp_path, text)
    (problem,) = raised.value.problems
    assert problem.line == BASE.count("\n") + 2
    assert FIRST[:8] not in str(raised.value)


def test_without_the_setting_there_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BASE)
    assert load_config(file).control_key is None
