"""`pipeline init` and `pipeline schema`: the files that they write."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.admin.samples import Template, samples
from kafka_pipeline.common.config.config import load_config
from tests.in_process import invoke


def pipeline(*args: str | Path) -> Result:
    return invoke(*args)


def test_init_writes_the_samples_and_says_where(tmp_path: Path) -> None:
    result = pipeline("init", tmp_path / "new" / "folder")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"wrote {tmp_path}/new/folder/config.yaml",
        f"wrote {tmp_path}/new/folder/pipeline.yaml",
        f"wrote {tmp_path}/new/folder/schemas/config.schema.json",
        f"wrote {tmp_path}/new/folder/schemas/pipeline.schema.json",
    ]
    for name, text in samples(job="folder").items():
        assert (tmp_path / "new" / "folder" / name).read_text() == text


def test_init_writes_to_the_current_folder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pipeline("init").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "pipeline.yaml", "schemas"}


def test_init_takes_a_tilde_in_quotes_for_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made a folder with that name, which `rm -r ~` would not delete."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pipeline("init", "~/shop").exit_code == 0
    assert (tmp_path / "shop" / "pipeline.yaml").exists()
    missing = pipeline("init", "~no_user/shop")
    assert (missing.exit_code, missing.stdout) == (2, "")


@pytest.mark.parametrize(
    ("folder", "job"),
    [
        ("shop", "shop"),
        ("My Shop (2)", "My_Shop_2"),
        (".hidden", "hidden"),
        ("café", "caf"),
        ("x" * 200, "x" * 60),
        ("¿?", "job_1"),
    ],
)
def test_the_job_has_the_name_of_the_folder(folder: str, job: str, tmp_path: Path) -> None:
    """With one name, a second project on the same Kafka would be a new version of the first."""
    assert pipeline("init", tmp_path / folder).exit_code == 0
    made = load_config(tmp_path / folder / "config.yaml")
    assert made.job_name == job


def test_the_version_is_printed() -> None:
    result = pipeline("--version")
    assert (result.exit_code, result.stdout) == (0, f"{version('kafka-pipeline')}\n")


@pytest.mark.parametrize(
    "template",
    [
        Template.CLASS,
        Template.DSL,
        pytest.param(Template.JOIN, marks=pytest.mark.long),
        pytest.param(Template.SQL, marks=pytest.mark.long),
    ],
)
def test_a_template_is_a_valid_pipeline_whose_tests_pass(
    template: Template, tmp_path: Path
) -> None:
    made = pipeline("init", tmp_path, "--template", template)
    assert made.exit_code == 0, made.stderr
    # In a process of their own, as they import the code next to them, and may start a Spark.
    for arguments in (["validate", "config.yaml", "pipeline.yaml"], ["test", "tests.yaml"]):
        done = subprocess.run(
            [command_path("pipeline"), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    count = yaml.safe_load((tmp_path / "tests.yaml").read_text())["tests"]
    assert f"{len(count)} passed, 0 failed" in done.stdout


@pytest.mark.parametrize("name", ["config", "pipeline"])
def test_schema_prints_what_init_writes(name: str) -> None:
    result = pipeline("schema", name)
    assert (result.exit_code, result.stdout) == (0, samples()[f"schemas/{name}.schema.json"])


def test_schema_of_another_file_is_refused() -> None:
    result = pipeline("schema", "suite")
    assert result.exit_code == 2
    assert "suite" in result.stderr


def test_init_overwrites_nothing_and_names_what_is_there(tmp_path: Path) -> None:
    existing = tmp_path / "pipeline.yaml"
    existing.write_text("mine")
    result = pipeline("init", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == (
        f"already there: {existing}; nothing was written, move them away or name another folder\n"
    )
    assert existing.read_text() == "mine"
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("file/x", "Not a directory"), ("x" * 300, "File name too long")]
)
def test_init_into_what_is_no_folder_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    result = pipeline("init", tmp_path / name)
    assert result.exit_code == 3
    assert result.stderr == f"cannot write to {tmp_path / name}: {reason}\n"
