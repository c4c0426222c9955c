"""What librdkafka has against the settings of `kafka:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.setting_problem import setting_problem
from tests.unit.common.config_texts import BASE

PREFIXES = ["", "consumer.", "producer.", "admin."]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("lingr.ms", "5", "librdkafka has no such setting"),
        ("Linger.ms", "5", "librdkafka has no such setting"),
        ("linger_ms", "5", "librdkafka has no such setting"),
        ("batch.size", "big", 'Invalid value for configuration property "batch.size"'),
        ("batch.size", "1_000_000", "must be a whole number, got 1_000_000"),
        ("batch.size", "1e6", "must be a whole number, got 1e6"),
        ("batch.size", "010", "must be a whole number, got 010"),
        ("batch.size", "1.5", "must be a whole number, got 1.5"),
        ("socket.timeout.ms", "30s", "must be a whole number, got 30s"),
        ("linger.ms", "0x10", "must be a number, got 0x10"),
        ("batch.size", "0", "value 0 is outside allowed range 1..2147483647"),
        ("socket.timeout.ms", "", "cannot be set to empty value"),
        ("security.protocol", "SASL", 'Invalid value "SASL"'),
        ("compression.type", "zip", 'Invalid value "zip"'),
        ("socket.keepalive.enable", "maybe", "true or false"),
        ("debug", "everything", 'Invalid value "everything"'),
    ],
)
def test_wrong_names_and_values_are_refused_with_the_reason(
    prefix: str, name: str, value: str, problem: str
) -> None:
    assert problem in (setting_problem(prefix + name, value) or "")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.ms", "0.5"),
        ("fetch.min.bytes", "5"),
        ("compression.level", "-1"),
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", "/not/on/this/host.pem"),
        ("ssl.key.pem", "no key"),
        ("plugin.library.paths", "/not/on/this/host"),
        ("sasl.password", "012345"),
        ("sasl.oauthbearer.callback", "tokens:get"),
        ("client.rack", ""),
        ("log.queue", "true"),
    ],
)
def test_what_librdkafka_takes_is_right_whatever_this_host_has(
    prefix: str, name: str, value: str
) -> None:
    assert setting_problem(prefix + name, value) is None


def test_wrong_settings_are_reported_together_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BASE + "kafka: {lingr.ms: 5, consumer.fetch.min.bytes: x, client.id: c}\n")
    with pytest.raises(ConfigError) as raised:
        load_config(file, setting_problem)
    line = BASE.count("\n") + 1
    assert [str(problem).removeprefix(str(file)) for problem in raised.value.problems] == [
        f':{line}:9: kafka setting "lingr.ms": librdkafka has no such setting',
        f':{line}:22: kafka setting "consumer.fetch.min.bytes": Invalid value for configuration '
        'property "fetch.min.bytes"',
    ]
