"""The bash scripts that start Spark's JVM, in copies that start nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kafka_pipeline.streams.spark.environment import without_incubator_module

MODULE = "--add-modules=jdk.incubator.vector"
SUBMIT = """#!/usr/bin/env bash
exec "$(dirname "$0")"/spark-class "$@"
"""
CLASS = """#!/usr/bin/env bash
CMD=("$(dirname "$0")"/java -Xmx1g "$@")
exec "${CMD[@]}"
"""
JAVA = """#!/usr/bin/env bash
printf '%s\\n' "$@" "BASH_ENV=$BASH_ENV"
"""


@pytest.fixture
def submit(tmp_path: Path) -> Path:
    """Scripts that call each other as Spark's do, down to a JVM that prints its arguments."""
    for name, text in {"spark-submit": SUBMIT, "spark-class": CLASS, "java": JAVA}.items():
        script = tmp_path / "bin of Spark" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    return tmp_path / "bin of Spark" / "spark-submit"


def start(submit: Path) -> list[str]:
    with without_incubator_module():
        done = subprocess.run(
            [submit, MODULE, "--add-modules=other", "a b", ""],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_jvm_gets_all_arguments_but_the_incubator_module(
    submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASH_ENV", raising=False)
    assert start(submit) == ["-Xmx1g", "--add-modules=other", "a b", "", "BASH_ENV="]
    assert "BASH_ENV" not in os.environ


def test_bash_reads_the_file_that_the_user_wants(
    submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.sh"
    own.write_text("")
    monkeypatch.setenv("BASH_ENV", str(own))
    assert start(submit) == [
        *("-Xmx1g", MODULE, "--add-modules=other", "a b", ""),
        f"BASH_ENV={own}",
    ]
    assert os.environ["BASH_ENV"] == str(own)
