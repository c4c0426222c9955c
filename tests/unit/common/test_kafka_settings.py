"""The settings that `kafka:` of config.yaml accepts."""

from __future__ import annotations

import pytest

from tests.unit.common.config_texts import BASE, load, problems_in


@pytest.mark.parametrize("text", ["012345", "1:30", "1_000", "1.10", "1e3", "yes", "on", "True"])
def test_kafka_settings_are_what_the_file_says_whatever_yaml_makes_of_it(text: str) -> None:
    assert load(BASE + f"kafka: {{sasl.password: {text}}}").kafka == {"sasl.password": text}


@pytest.mark.parametrize("prefix", ["", "consumer.", "producer.", "admin."])
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("transactional.id", "each task has its own, made from job_name and the task's id"),
        ("group.id", "it is made from job_name"),
        ("isolation.level", "exactly-once needs read_committed"),
        ("enable.auto.commit", "offsets are committed in the transaction of their results"),
        ("enable.auto.offset.store", "offsets are committed in the transaction of their results"),
        (
            "auto.offset.reset",
            "a task starts at the earliest record, and never skips one after that",
        ),
        ("enable.idempotence", "transactions need it on"),
        ("acks", "transactions need all replicas to acknowledge"),
        ("request.required.acks", "transactions need all replicas to acknowledge"),
        ("partitioner", "keys must land on the same partitions as with Java clients"),
        ("enable.partition.eof", "the engine finds the end of a partition by itself"),
        ("transaction.timeout.ms", "use the key transaction_timeout_ms of config.yaml"),
        ("metadata.broker.list", "use bootstrap.servers"),
        ("logger", "log_format and log_level of config.yaml say how it logs"),
        ("default.topic.config", "write its settings next to the others"),
        ("oauth_cb", "name a function: sasl.oauthbearer.callback: module:function"),
        ("error_cb", "it takes an object of Python, which a file cannot have"),
        ("delivery.report.only.error", "it takes an object of Python, which a file cannot have"),
    ],
)
def test_kafka_settings_that_the_engine_owns_are_refused(
    prefix: str, setting: str, reason: str
) -> None:
    assert problems_in(BASE + f"kafka:\n  {prefix}{setting}: x") == [
        f'9:3: kafka setting "{prefix}{setting}" belongs to the engine: {reason}'
    ]


def test_bootstrap_servers_are_refused_for_one_kind_of_client() -> None:
    assert problems_in(BASE + "kafka: {admin.bootstrap.servers: x}") == [
        '8:9: kafka setting "admin.bootstrap.servers" belongs to the engine: '
        "all clients use one cluster; write bootstrap.servers without a prefix"
    ]
