"""The JVM that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.peers.streams_java import find_compiler
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java
from tests.differential.java_side import JavaSide, compile_runner


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSide]:
    """Kafka Streams' side; tests that need it are skipped on machines without a JDK."""
    try:
        find_compiler(find_java())
    except UnavailableError as error:
        pytest.skip(f"no comparison with Kafka Streams: {error}")
    folder = tmp_path_factory.mktemp("differential")
    with JavaSide(compile_runner(folder / "classes"), folder) as side:
        yield side
