"""The bash scripts that start Spark's JVM, in copies that start nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kafka_pipeline.streams.spark.environment import corrected_launcher

MODULE = "--add-modules=jdk.incubator.vector"
ARGUMENTS = (MODULE, "--add-modules=other", "a b", "")
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


def start(submit: Path, *arguments: str) -> list[str]:
    with corrected_launcher():
        done = subprocess.run(
            [submit, *arguments],
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
    assert start(submit, *ARGUMENTS) == ["-Xmx1g", "--add-modules=other", "a b", "", "BASH_ENV="]
    assert "BASH_ENV" not in os.environ


@pytest.mark.parametrize(
    ("class_path", "expected"),
    [
        ("/c/conf:/s p/jars/slf4j-api-2.0.17.jar:/s p/jars/*", "/c/conf:/s p/jars/*"),
        # Others may have another version of it, so the order counts.
        ("/c:/s/jars/slf4j-api-2.jar:/s/jars/*:/d/*", "/c:/s/jars/slf4j-api-2.jar:/s/jars/*:/d/*"),
        ("/c:/own/slf4j-api-2.jar:/s/jars/*", "/c:/own/slf4j-api-2.jar:/s/jars/*"),
        ("/c:/own/slf4j-api-1.jar:/s/slf4j-api-2.jar:/s/*", "/c:/own/slf4j-api-1.jar:/s/*"),
    ],
)
def test_jvm_gets_no_jar_twice(
    submit: Path, monkeypatch: pytest.MonkeyPatch, class_path: str, expected: str
) -> None:
    monkeypatch.delenv("BASH_ENV", raising=False)
    assert start(submit, "-cp", class_path) == ["-Xmx1g", "-cp", expected, "BASH_ENV="]


def test_bash_reads_the_file_that_the_user_wants(
    submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.sh"
    own.write_text("")
    monkeypatch.setenv("BASH_ENV", str(own))
    assert start(submit, *ARGUMENTS) == [
        *("-Xmx1g", MODULE, "--add-modules=other", "a b", ""),
        f"BASH_ENV={own}",
    ]
    assert os.environ["BASH_ENV"] == str(own)
