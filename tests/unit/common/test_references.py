"""References in pipeline.yaml, which each TaskManager replaces as its config.yaml allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.references import HostReferences, reference_problems, with_values
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.lookup_tables import TableSpec
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    DataFrameSpec,
    ForwardSpec,
    SqlSpec,
    TableSinkSpec,
)
from tests.unit.common.config_texts import BASE, load, problems_in

ENVIRONMENT = {"DB_PASSWORD": "hunter2", "KAFKA_PASSWORD": "swordfish", "EMPTY": ""}


def here(folder: Path, *files: str) -> HostReferences:
    """Return what a host gives that allows three variables, and files of the folder."""
    settings = SecretSettings(
        ("DB_PASSWORD", "EMPTY", "UNSET"), tuple(folder / each for each in files), folder
    )
    return HostReferences(settings, "TaskManager 0 at host7", ENVIRONMENT)


def refusal(of: HostReferences, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        of.expanded({"a": [{"b": text}]}, "config")
    message = str(caught.value)
    assert message.startswith("TaskManager 0 at host7: config.a[0].b: ")
    assert "hunter2" not in message
    assert "swordfish" not in message
    return message.removeprefix("TaskManager 0 at host7: config.a[0].b: ")


def test_all_texts_of_a_value_are_expanded_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("${DB_PASSWORD}\n")
    value = {
        "${DB_PASSWORD}": ["${DB_PASSWORD}", 1, None, True, {"x": "a${file:key}b"}],
        "y": "${UNSET:-}${EMPTY:-d} $${DB_PASSWORD}",
    }
    assert here(tmp_path, ".").expanded(value, "config") == {
        "${DB_PASSWORD}": ["hunter2", 1, None, True, {"x": "a${DB_PASSWORD}b"}],
        "y": "d ${DB_PASSWORD}",
    }


def test_a_variable_that_is_not_listed_is_never_read(tmp_path: Path) -> None:
    """Whoever commands could have it sent to wherever a class sends what it gets."""
    for text in ("${KAFKA_PASSWORD}", "${KAFKA_PASSWORD:-x}", "x${KAFKA_PASSWORD}"):
        assert refusal(here(tmp_path), text) == (
            "config.yaml does not allow the variable KAFKA_PASSWORD: list it under "
            "secrets: {variables: […]}"
        )
    with pytest.raises(ConfigError, match="does not allow the variable PATH"):
        HostReferences().expanded("${PATH}", "config")


def test_a_variable_without_a_value_is_named(tmp_path: Path) -> None:
    assert refusal(here(tmp_path), "${UNSET}").startswith(
        "the environment variable UNSET is not set: "
    )


def test_files_are_read_from_where_config_yaml_allows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "key").write_text("hunter2\n")
    (tmp_path / "one").write_text("hunter2\n")
    of = here(tmp_path, "in", "one")
    for path in ("in/key", f"{tmp_path}/in/key", "in/../in/./key", "one"):
        assert of.expanded(f"${{file:{path}}}", "config") == "hunter2"
    assert refusal(of, "${file:in}") == "${file:in}: it is a directory"
    assert refusal(of, "${file:in/none}") == "${file:in/none}: there is no such file"


def test_files_elsewhere_are_refused_whether_they_exist_or_not(tmp_path: Path) -> None:
    """Otherwise a command could find out which files a host has."""
    (tmp_path / "in").mkdir()
    (tmp_path / "outside").write_text("hunter2")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "inside").write_text("hunter2")
    (tmp_path / "in" / "loop").symlink_to("loop")
    of = here(tmp_path, "in")
    for path in (
        "/etc/shadow",
        "/etc/none",
        "outside",
        "in/../outside",
        "in/link",
        "inside",
        "in/loop/x",
        "/proc/self/environ",
        "..",
        "a\0b",
    ):
        assert refusal(of, f"${{file:{path}}}") == (
            f"config.yaml does not allow the file {path}: list it, or its folder, under "
            "secrets: {files: […]}"
        ), path
    with pytest.raises(ConfigError, match="does not allow the file"):
        HostReferences().expanded(f"${{file:{tmp_path}/outside}}", "config")


def test_links_as_kubernetes_mounts_secrets(tmp_path: Path) -> None:
    data = tmp_path / "db" / "..2026"
    data.mkdir(parents=True)
    (data / "password").write_text("hunter2")
    (tmp_path / "db" / "..data").symlink_to("..2026")
    (tmp_path / "db" / "password").symlink_to("..data/password")
    for allowed in ("db", "db/password"):
        of = here(tmp_path, allowed)
        assert of.expanded("${file:db/password}", "config") == "hunter2"
    renewed = tmp_path / "db" / "..2027"
    renewed.mkdir()
    (renewed / "password").write_text("correct horse")
    (tmp_path / "db" / "..data").unlink()
    (tmp_path / "db" / "..data").symlink_to("..2027")
    assert of.expanded("${file:db/password}", "config") == "correct horse"


def test_code_gets_values_and_spark_gets_them_later(tmp_path: Path) -> None:
    of, config = here(tmp_path), {"password": "${DB_PASSWORD}"}
    spec = ClassSpec(code="a:B", config=config)
    assert with_values(spec, of, "P").config == {"password": "hunter2"}
    assert spec.config == config
    table = TableSinkSpec(format="postgres", user="ann", password="${DB_PASSWORD}", schema="n INT")
    assert with_values(table, of, "P").password == "hunter2"
    for other in (DataFrameSpec(code="a:b", config=config), ForwardSpec(), ClassSpec(code="a:B")):
        assert with_values(other, None, "P") is other


def test_references_that_config_yaml_does_not_allow_are_listed() -> None:
    tables = {"t": TableSpec(format="jdbc", options={"user": "${A}", "password": "${file:/s}"})}
    settings = SecretSettings(("A",))
    found = [*reference_problems(SqlSpec(query="", tables=tables), settings)]
    assert [each.partition(": config.yaml")[0] for each in found] == ["tables.t.options.password"]
    table = TableSinkSpec(format="postgres", url="${B}", user="${A}", schema="n INT")
    (problem,) = reference_problems(table, settings)
    assert problem.startswith("url: config.yaml does not allow the variable")
    config: dict[str, Any] = {"a": ["${B}"], "b": "${A} ${C:-x} $${D}", "c": 1, "d": "${"}
    problems = [*reference_problems(ClassSpec(code="a:B", config=config), settings)]
    assert [each[:50] for each in problems] == [
        "config.a[0]: config.yaml does not allow the variab",
        "config.b: config.yaml does not allow the variable ",
    ]


def test_section_of_config_yaml(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{BASE}secrets: {{variables: [A, _b1], files: [s, /run/secrets]}}\n")
    assert load_config(file).secrets == SecretSettings(
        ("A", "_b1"), (tmp_path / "s", Path("/run/secrets")), tmp_path
    )
    assert load(BASE).secrets.variables == ()
    assert problems_in(f"{BASE}secrets: {{variables: ['A*', B]}}\n") == [
        '8:22: variables: "A*" is not the name of an environment variable'
    ]
