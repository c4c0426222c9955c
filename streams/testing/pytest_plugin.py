"""The pytest plugin for tests of topologies and pipelines; pytest finds it by itself.

Tests import from the `python_path` of config.yaml, which is looked for in pytest's rootdir and then
in the folder where pytest was started. If it is elsewhere, the option `pipeline_config` says where:

    [tool.pytest.ini_options]
    pipeline_config = ["deploy/config.yaml"]
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import read_python_path
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.dsl.streams_builder import StreamsBuilder
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from kafka_pipeline.streams.testing.driver_topics import READ_TOO_EARLY

_OPTION = "pipeline_config"
_DEFAULT = "config.yaml"
_HEADER = pytest.StashKey[list[str]]()


class DriverMaker:
    """Makes drivers; they are closed when the test ends."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(
        self, topology: Topology | TopologyBuilder | StreamsBuilder, **options: Any
    ) -> TopologyTestDriver:
        """Return a driver of a topology; see `TopologyTestDriver` for the options and errors."""
        return self._stack.enter_context(TopologyTestDriver(topology, **options))

    def of_pipeline(
        self, config: Path | str, pipeline: Path | str, **options: Any
    ) -> TopologyTestDriver:
        """Return a driver of a pipeline.yaml; see `TopologyTestDriver.of_pipeline`."""
        driver = TopologyTestDriver.of_pipeline(config, pipeline, **options)
        return self._stack.enter_context(driver)


@pytest.fixture
def topology_test_driver() -> Iterator[DriverMaker]:
    """Return a function that makes drivers; they are closed when the test ends.

    def test_words(topology_test_driver):
        driver = topology_test_driver(topology, partitions={"words": 4})

    def test_shop(topology_test_driver):
        driver = topology_test_driver.of_pipeline("config.yaml", "pipeline.yaml")
    """
    with ExitStack() as stack:
        yield DriverMaker(stack)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that names config.yaml."""
    parser.addini(
        _OPTION,
        type="paths",
        help="paths of config.yaml, whose python_path tests import from; default: config.yaml in "
        "the rootdir, or in the folder where pytest was started",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Let tests, and conftest.py, import from the `python_path` of config.yaml."""
    header = early_config.stash.setdefault(_HEADER, [])
    named: list[Path] = early_config.getini(_OPTION)
    for path in named or _found(early_config):
        try:
            folders = read_python_path(path)
        except ConfigError as error:
            if named:
                raise pytest.UsageError(f"{_OPTION}: {error}") from error
            # It may be the file of another program.
            header.append(f"without the python_path of a config.yaml: {error}")
            continue
        UserCode(python_path=folders)
        if folders:
            header.append(f"python_path of {path}: {', '.join(map(str, folders))}")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return where user code is looked for."""
    return config.stash[_HEADER]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Say with a failure which topics were read while records for them were held back."""
    noted: list[str] = []
    token = READ_TOO_EARLY.set(noted)
    try:
        yield
    finally:
        READ_TOO_EARLY.reset(token)
        item.add_report_section("call", "held back", "\n".join(dict.fromkeys(noted)))


def _found(config: pytest.Config) -> list[Path]:
    paths = (folder / _DEFAULT for folder in (config.rootpath, config.invocation_params.dir))
    return [path for path in paths if path.is_file()][:1]
