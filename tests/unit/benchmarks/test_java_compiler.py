"""Where the compiler for the Java programs comes from, and the error if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.streams_java import find_compiler
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import Java


def _java(folder: Path, modules: str) -> Java:
    """Return a Java that lists these modules."""
    executable = folder / "java"
    executable.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    executable.chmod(0o755)
    return Java(executable, home=folder, version=17)


def test_a_java_with_its_compiler_compiles_itself(tmp_path: Path) -> None:
    java = _java(tmp_path, "java.base@17.0.1\\njdk.compiler@17.0.1\\n")

    assert find_compiler(java)[:2] == [str(java.executable), "-m"]


def test_a_runtime_without_a_compiler_takes_the_javac_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    javac = tmp_path / "javac"
    javac.touch(0o755)
    java = _java(tmp_path, "java.base@17.0.1\\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_compiler(java) == [str(javac)]


def test_a_runtime_without_a_compiler_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = _java(tmp_path, "java.base@17.0.1\\njava.compiler@17.0.1\\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UnavailableError, match=r"jdk\.compiler.*openjdk-17-jdk") as error:
        find_compiler(java)

    assert str(tmp_path) in str(error.value)
