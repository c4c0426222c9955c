"""What all tests share: which Kafka they talk to."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import structlog
from hypothesis import settings

import kafka_pipeline
from kafka_pipeline.common.errors import UnavailableError
from tests import leftovers, scheduling, tiers
from tests.brokers import docker_cluster, shared_cluster
from tests.postgres import Database, Server, installed, running

# Machines are shared: the duration of an example means nothing. Each run draws other examples.
settings.register_profile("shared machine", deadline=None, max_examples=25)
settings.register_profile("all", deadline=None, max_examples=400)
# A shell lets what it starts in the background ignore SIGINT, and what tests start would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:  # few tests need them, and they load much
    from tests.object_store.server import ObjectStore
    from tests.rest_catalog.server import RestCatalog

T = TypeVar("T")
_FOLDERS = {link.name for link in Path(kafka_pipeline.__file__).parent.iterdir() if link.is_dir()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        default="local",
        metavar="local|docker|HOST:PORT",
        help="the Kafka of the integration tests: one started for them on free ports (local, the "
        "default), the containers of docker-compose.yaml (docker), or one that runs already",
    )
    parser.addoption("--seed", type=int, metavar="N", help="run simulations with this seed only")
    parser.addoption("--seeds", type=int, metavar="N", help="with how many seeds they run")
    leftovers.add_option(parser)
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("all" if config.getoption("--all") else "shared machine")
    leftovers.start_guard(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    leftovers.release_guard(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector: all that is made then stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.leave_out_long(config, items)
    scheduling.sort_by_need(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    is_ours = config.getoption("dist") == "loadfile"
    return scheduling.FromBothEnds(config, log) if is_ours else None


@pytest.fixture(autouse=True)
def _one_import_name() -> Iterator[None]:
    """In a checkout, the engine's folders can be imported as well: somebody else's cannot."""
    yield
    twice = [folder for folder in _FOLDERS if folder in sys.modules]
    assert not twice, f"imported by the name of a folder: {twice}"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """What commands run in this process configure is not for the tests behind them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture(scope="session")
def bootstrap_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Addresses of a Kafka that runs for the whole session; give each test topics of its own.

    Topics of several processes need a part of their names that only this process has, as its id.
    """
    broker: str = request.config.getoption("--broker")
    if broker == "local":
        folder = tmp_path_factory.getbasetemp()
        if leftovers.is_worker(request.config):
            folder = folder.parent
        with ExitStack() as stack:
            with leftovers.left_to_the_run(request.config):
                servers = stack.enter_context(shared_cluster(folder / "kafka"))
            yield servers
    elif broker == "docker":
        with docker_cluster() as servers:
            yield servers
    elif ":" in broker:
        yield broker
    else:
        raise pytest.UsageError(f"--broker takes local, docker or HOST:PORT, not {broker!r}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL on this machine."""
    binaries = installed()
    if binaries is None:
        pytest.skip("needs PostgreSQL: initdb and postgres, as in Debian's package postgresql")
    with running(binaries) as server:
        yield server


@pytest.fixture
def database(postgres: Server) -> Database:
    """An empty database in PostgreSQL."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An object store on this machine; give each test names of its own."""
    from tests.object_store.server import running

    with ExitStack() as stack:
        yield _or_skip(stack, running(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="session")
def rest_catalog(
    object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestCatalog]:
    """A REST catalog of Iceberg, with its data in the object store; the same goes for its names."""
    from tests.rest_catalog.server import running

    with ExitStack() as stack:
        yield _or_skip(stack, running(tmp_path_factory.mktemp("catalog"), object_store))


def _or_skip(stack: ExitStack, server: AbstractContextManager[T]) -> T:
    try:
        return stack.enter_context(server)
    except UnavailableError as error:
        pytest.skip(str(error))
