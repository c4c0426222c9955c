"""Links that are replaced while a daemon runs, as by Kubernetes and git-sync."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.config.table_paths import location_of
from kafka_pipeline.console.access import read_token
from kafka_pipeline.streams.engine.code_snapshot import snapshot
from tests.unit.common.config_texts import BASE

SETTINGS = f"""{BASE}
python_path: [code]
console_token_file: token
control_key_file: key
secrets: {{files: [password]}}
tables: {{paths: [".", ../shared]}}
schema_registry:
  url: https://registry
  ca_file: ca.pem
  certificate: {{file: client.pem, key_file: client.key}}
"""
FILES = ("token", "key", "password", "ca.pem", "client.pem", "client.key", "rates.csv")


def content(release: str) -> str:
    return f"{release}-{'x' * 32}"


def publish(root: Path, release: str) -> None:
    """Replace the link `current`, and delete what it led to before."""
    link, new = root / "current", root / "releases" / release
    (new / "code").mkdir(parents=True)
    (new / "config.yaml").write_text(SETTINGS)
    for name in (*FILES, "code/shop.py"):
        (new / name).write_text(content(release))
    former = link.resolve() if link.is_symlink() else None
    link.unlink(missing_ok=True)
    link.symlink_to(new)
    if former is not None:
        former.rename(root / "gone")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The configuration of a process that began before the link was replaced."""
    (tmp_path / "releases" / "shared").mkdir(parents=True)
    publish(tmp_path, "first")
    found = load_config(tmp_path / "current" / "config.yaml")
    publish(tmp_path, "second")
    return found


def registry_file(name: str) -> Callable[[Config], str]:
    def read(config: Config) -> str:
        file = getattr(config.schema_registry, name)
        assert isinstance(file, Path)
        return file.read_text()

    return read


@pytest.mark.parametrize(
    "read",
    [
        registry_file("ca_file"),
        registry_file("cert_file"),
        registry_file("key_file"),
        lambda config: read_token(config.console_token_file),
        lambda config: HostReferences(config.secrets).expanded("${file:password}", "config"),
        lambda config: location_of("rates.csv", config.tables.folder).path.read_text(),
    ],
    ids=["ca_file", "certificate", "its key", "token", "secret", "table"],
)
def test_the_file_that_is_there_now_is_read(config: Config, read: Callable[[Config], str]) -> None:
    assert read(config) == content("second")


def test_code_is_read_again_from_where_the_link_leads_now(config: Config, tmp_path: Path) -> None:
    (copy,) = snapshot(config.python_path, tmp_path / "copy")
    assert (copy / "shop.py").read_text() == content("second")


def test_no_table_may_be_read_from_the_secrets_that_are_there_now(config: Config) -> None:
    tables = config.tables
    for name in ("key", "token", "password", "client.key"):
        problem = tables.path_problem(location_of(name, tables.folder))
        assert "belongs to the configuration" in (problem or ""), name
    assert tables.path_problem(location_of("rates.csv", tables.folder)) is None


def test_what_goes_up_by_dots_begins_where_the_link_leads(config: Config, tmp_path: Path) -> None:
    rates = tmp_path / "releases" / "shared" / "rates.csv"
    rates.touch()
    found = location_of("../shared/rates.csv", config.tables.folder)
    assert found.path == rates
    assert config.tables.path_problem(found) is None


def test_state_stays_where_it_was(config: Config, tmp_path: Path) -> None:
    assert config.state_dir == tmp_path / "releases" / "first" / "state"
