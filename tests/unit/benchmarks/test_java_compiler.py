"""The Kafka Streams peer's error if its Java sources cannot be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.kafka_streams import require_source_launcher
from common.errors import UnavailableError
from common.java import Java


def _java(folder: Path, modules: str) -> Java:
    """Return a Java that lists these modules."""
    executable = folder / "java"
    executable.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    executable.chmod(0o755)
    return Java(executable, home=folder, version=17)


def test_a_java_with_its_compiler_can_run_sources(tmp_path: Path) -> None:
    require_source_launcher(_java(tmp_path, "java.base@17.0.1\\njdk.compiler@17.0.1\\n"))


def test_a_runtime_without_a_compiler_is_refused_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"jdk\.compiler.*openjdk-17-jdk") as error:
        require_source_launcher(_java(tmp_path, "java.base@17.0.1\\njava.compiler@17.0.1\\n"))

    assert str(tmp_path) in str(error.value)
