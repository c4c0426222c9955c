"""References in pipeline.yaml, and secrets that are written out in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import ClassSpec
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.deployment.desired_state import (
    PipelineVersion,
    version_from_json,
    version_to_json,
)
from kafka_pipeline.streams.pipeline.units import valued
from kafka_pipeline.streams.testing.driver import TopologyTestDriver, start_problem
from tests.small_config import SMALL_CONFIG
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in
from tests.user_code.signing import signature

URL = "jdbc:postgresql://db:5432/shop"
ALLOWING: Config = replace(
    CONFIG,
    secrets=SecretSettings(("DB_USER", "DB_PASSWORD", "DB_URL"), (Path("/run/secrets"),)),
    tables=TableSettings(("parquet", "iceberg"), (URL,)),
)
CODE = 'type: "tests.user_code.word_count:RunningSum"'


def of_class(config: str) -> str:
    return f"- {{id: P, {CODE}, to: [sink], stores: [{{name: Sums}}],\n   config: {config}}}\n"


def of_table(options: str, format_: str = "jdbc") -> str:
    return (
        "- id: P\n  type: sql\n  query: SELECT value FROM input JOIN t USING (key)\n"
        f"  to: [sink]\n  tables: {{t: {{format: {format_}, options: {options}}}}}\n"
    )


def test_references_and_not_values_are_what_control_records_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    options = f'{{url: "{URL}", user: "${{DB_USER}}", password: "${{DB_PASSWORD}}"}}'
    text = of_class('{start: "${DB_PASSWORD}", keys: ["${file:/run/secrets/a}"]}')
    text += of_table(options).replace("id: P", "id: Q")
    pipeline = load(text, ALLOWING)
    data = version_to_json(PipelineVersion(1, pipeline, text, 0, "me"))
    written = json.dumps([data, [[r.to_json(), r.parameters()] for r in replicas(pipeline)]])
    assert "hunter2" not in written
    assert written.count("${DB_PASSWORD}") == 2 + 2 + 2 * 2
    replica = replicas(pipeline)[0]
    assert isinstance(replica.spec, ClassSpec)
    assert replica.spec.config["keys"] == ["${file:/run/secrets/a}"]
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    again = version_from_json(data, pipeline.names).pipeline
    assert replicas(again)[0].fingerprint == replica.fingerprint


def test_a_version_that_was_applied_with_a_secret_written_out_still_runs() -> None:
    pipeline = load(of_class('{key: "${file:/run/secrets/a}"}'), ALLOWING)
    data = version_to_json(PipelineVersion(1, pipeline, "", 0, "me"))
    data["processors"][0]["spec"]["config"] = {"password": "hunter2"}
    found = replicas(version_from_json(data, pipeline.names).pipeline)[0]
    assert valued(found, None, TableSettings()) is found


def test_task_gets_values_and_its_name_is_in_the_error() -> None:
    of = HostReferences(SecretSettings(("DB_PASSWORD",)), "TaskManager 1 at b", {})
    replica = replicas(load(of_class('{start: "${DB_PASSWORD}"}'), ALLOWING))[0]
    with pytest.raises(ConfigError) as caught:
        valued(replica, of, TableSettings())
    assert str(caught.value) == (
        "TaskManager 1 at b: P.config.start: the environment variable DB_PASSWORD is not set: set "
        "it, or give a default as in ${DB_PASSWORD:-default}"
    )
    set_now = replace(of, environment={"DB_PASSWORD": "7"})
    found = valued(replica, set_now, TableSettings()).spec
    assert isinstance(found, ClassSpec)
    assert found.config == {"start": "7"}
    plain = replicas(load(of_class("{start: 7}")))[0]
    assert valued(plain, None, TableSettings()) is plain


@pytest.mark.parametrize(
    ("config", "at", "name"),
    [
        ("{password: hunter2}", "2:23", "password"),
        ("{db: {apiKey: hunter2}}", "2:26", "db.apiKey"),
        ("{password: 123456}", "2:23", "password"),
        ("{tokens: [{access_token: hunter2}]}", "2:37", "tokens.access_token"),
        ("{secrets: {db: [x, hunter2]}}", "2:28", "secrets.db"),
    ],
)
def test_a_secret_that_is_written_out_is_refused(config: str, at: str, name: str) -> None:
    found = problems_in(of_class(config))
    assert found[0] == (
        f"{at}: {name} is a secret, by its name, and pipeline.yaml goes onto a topic, where it "
        "stays: write ${NAME} or ${file:PATH}, which each TaskManager replaces"
    )
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${DB_PASSWORD:-hunter2}", "password has a default"),
        ("hunter2", "password is a secret"),
        (" $${hunter2}", "password is a secret"),
        ("${", "password: "),
    ],
)
def test_what_a_secret_must_not_be(text: str, said: str) -> None:
    for written in (of_class(f'{{password: "{text}"}}'), of_table(f'{{password: "{text}"}}')):
        found = problems_in(written, ALLOWING)
        assert any(f": {said}" in each for each in found)
        assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/shop",
        "jdbc:postgresql://db/shop?user=me&password=hunter2",
        "jdbc:sqlserver://db;user=me;password=hunter2",
        "postgresql://${DB_USER}:hunter2@db",
    ],
)
def test_a_password_in_a_url_is_refused(url: str) -> None:
    for written in (of_class(f'{{start: "{url}"}}'), of_table(f'{{url: "{url}"}}')):
        found = problems_in(written, ALLOWING)
        assert any("in its URL, and pipeline.yaml goes onto a topic" in each for each in found)
        assert "hunter2" not in str(found)


def test_what_is_not_a_secret_may_be_written_out() -> None:
    load(
        of_class(
            '{key: a, password: "", token: null, use_password: true, password_file: /x, '
            'max_tokens: 5, url: "https://db/?password=", auth: "Bearer ${DB_PASSWORD}", '
            'dsn: "postgresql://${DB_USER}:${DB_PASSWORD}@db/shop", api_key: "a-${DB_USER}"}'
        ),
        ALLOWING,
    )


def test_references_that_config_yaml_does_not_allow_are_reported() -> None:
    text = of_class('{start: "${KAFKA_PASSWORD}", x: "${file:/etc/shadow}"}')
    found = problems_in(text, ALLOWING)
    assert found == [
        '1:8: "P": config.start: config.yaml does not allow the variable KAFKA_PASSWORD: list it '
        "under secrets: {variables: […]}",
        '1:8: "P": config.x: config.yaml does not allow the file /etc/shadow: list it, or its '
        "folder, under secrets: {files: […]}",
    ]


@pytest.mark.parametrize(
    ("options", "format_"),
    [
        ('{dbtable: "(SELECT ${DB_PASSWORD}) t"}', "jdbc"),
        ('{url: "jdbc:postgresql://db:5432/${DB_PASSWORD}"}', "jdbc"),
        ('{emptyValue: "${DB_PASSWORD}"}', "parquet"),
        ('{url: "${DB_URL}"}', "iceberg"),
        ('{path: "${file:/run/secrets/a}"}', "parquet"),
    ],
)
def test_an_option_that_a_query_can_show_takes_no_reference(options: str, format_: str) -> None:
    assert "takes no reference" in str(problems_in(of_table(options, format_), ALLOWING))


def test_a_url_may_be_a_reference_as_a_whole() -> None:
    load(of_table('{url: "${DB_URL}", user: "x${DB_USER}", password: "${DB_PASSWORD}"}'), ALLOWING)


def test_drivers_of_tests_and_commands_put_values_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    files[0].write_text(
        f"{SMALL_CONFIG}modules: tests.user_code\nsecrets: {{variables: KEY, files: keys}}\n"
    )
    files[1].write_text(
        "- {id: P, type: 'tests.user_code.signing:Sign', to: [sink],\n"
        '   config: {key: "${KEY:-none}${file:keys/a}"}}\n'
    )
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^P\.config\.key: \$\{file:keys/a\}: there is no such"):
        TopologyTestDriver.of_pipeline(*files)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "a").write_text("hunter2\n")
    for variable, expected in ((None, "nonehunter2"), ("${KEY}", "${KEY}hunter2")):
        if variable is not None:
            monkeypatch.setenv("KEY", variable)
        with TopologyTestDriver.of_pipeline(*files) as driver:
            driver.create_input_topic("in").pipe_input(b"k", b"1")
            (record,) = driver.create_output_topic("out").read_records()
        assert record.value == signature(expected, b"1")


def test_validate_says_which_value_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DB_PASSWORD", raising=False)
    (processor,) = load(of_class('{start: "${DB_PASSWORD}"}'), ALLOWING).processors
    assert start_problem(processor, ALLOWING).startswith("P.config.start: the environment variab")
