"""YAML files that are made to do harm: each is a clear error, and nothing of it is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.pipeline.load import check_pipeline_file
from tests.unit.common.config_texts import BASE

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{former}'] * 9)}]\n" for former, name in pairwise("abcdefghi")
)
FILES = {
    "a billion laughs": (LAUGHS, "expand to more than"),
    "a long chain of aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60)),
        "nested too deeply, more than 40 levels",
    ),
    "41 levels": ("[" * 41 + "]" * 41 + "\n", "nested too deeply, more than 40 levels"),
    "a key twice": ("x: 1\nx: 2\n", 'key "x" is given twice'),
    "a merge of no map": ("x: &x [1]\ny: {<<: *x}\n", "<< takes the keys of a map, .*the number 1"),
    "a merge of itself": ("x: &x {<<: *x}\n", "inside what it names"),
    "ten megabytes": ("# " + "x" * 10_000_000 + "\n", "is larger than 4,000,000 bytes"),
    "an alias inside of what it names": ("x: &x [*x]\n", "inside what it names"),
    "nested lists": ("[" * 20_000, "nested too deeply"),
    "nested maps": ("{a: " * 20_000, "nested too deeply"),
    "a name in Python": ("server_ip: !!python/name:os.system\n", "."),
    "an object of Python": ("server_ip: !!python/object/apply:os.mkdir [{made}]\n", "."),
    "a large string": (f"x: {'a' * 2_000_000}\n", "."),
    "a control character": ("x: \0\n", "U\\+0000"),
}


@pytest.mark.parametrize("read", [load_config, check_pipeline_file])
@pytest.mark.parametrize(("text", "why"), FILES.values(), ids=FILES)
def test_a_hostile_file_is_an_error(
    tmp_path: Path, read: Callable[[Path], object], text: str, why: str
) -> None:
    made = tmp_path / "made"
    file = tmp_path / "file.yaml"
    file.write_text(text.replace("{made}", str(made)))
    with pytest.raises(ConfigError, match=why) as caught:
        read(file)
    assert len(str(caught.value)) < 5_000
    assert not made.exists()


@pytest.mark.parametrize(
    "text",
    [
        "schema_registry: {url: 'https://r', auth: {user: ann, password: 20310819}}",
        "kafka: {sasl.password: *20310819}",
        "kafka: {sasl.password: !x 20310819}",
        "kafka: {sasl.password: !20310819!x y}",
        "kafka: {sasl.password: 2031-08-19}",
        "heartbeat_interval_ms: ${KAFKA_PASSWORD}",
    ],
)
def test_a_secret_that_is_written_wrongly_is_not_in_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "20310819x")
    file = tmp_path / "file.yaml"
    file.write_text(f"{BASE}\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert not re.search("2031-?08-?19", str(caught.value))


@pytest.mark.parametrize("value", ["1" * 4_000, "1" * 5_000, "x" * 5_000, "- " * 20 + "1"])
def test_a_long_value_is_cut_in_the_message(tmp_path: Path, value: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"tm_number: {value}\n" if "-" not in value else f"tm_number:\n  {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert all(len(str(problem)) < 400 for problem in caught.value.problems)
