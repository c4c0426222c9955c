"""`schema_registry:` in config.yaml: where schemas are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.registry_settings import RegistrySettings, require_shared
from kafka_pipeline.common.errors import ConfigError
from tests.unit.common.config_texts import BASE, load, problems_in


def test_without_the_section_there_is_no_registry() -> None:
    assert load(BASE).schema_registry is None


def test_all_keys_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "geheim")
    file = tmp_path / "config.yaml"
    file.write_text(
        f"""{BASE}
schema_registry:
  url: "https://one:8081,https://two:8081/path"
  auth: {{user: job, password: "${{REGISTRY_PASSWORD}}"}}
  ca_file: certs/ca.pem
  certificate: {{file: certs/job.pem, key_file: certs/job.key, key_password: quiet}}
  timeout_ms: 1500
"""
    )
    config = load_config(file)
    found = config.schema_registry
    assert found == RegistrySettings(
        "https://one:8081,https://two:8081/path",
        "job",
        "geheim",
        tmp_path / "certs" / "ca.pem",
        tmp_path / "certs" / "job.pem",
        tmp_path / "certs" / "job.key",
        "quiet",
        1500,
    )
    assert "geheim" not in repr(config)
    assert "quiet" not in repr(config)
    # No lookup table may be read from the files with the client's key.
    assert {found.cert_file, found.key_file} <= {*config.tables.private}


def test_registry_in_memory_is_a_mock() -> None:
    found = load(f"{BASE}schema_registry: {{url: 'mock://orders'}}").schema_registry
    assert found is not None
    assert found.is_mock


def test_daemons_refuse_a_registry_in_memory() -> None:
    require_shared(None)
    require_shared(RegistrySettings("http://registry"))
    with pytest.raises(ConfigError, match="mock://orders is in the memory of one process"):
        require_shared(RegistrySettings("mock://orders"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{}", 'missing key "url"'),
        ("{url: registry}", "url must be the address of a registry, such as"),
        ("{url: 'http://'}", "url must be the address of a registry"),
        ("{url: 'mock://'}", "url must name a registry by letters and digits"),
        ("{url: 'http://a,ftp://b'}", "url must be the address of a registry"),
        ("{url: 'http://a', urls: b}", 'unknown key "urls", did you mean "url"?'),
        ("{url: 'http://a', auth: {user: job}}", 'missing key "password"'),
        ("{url: 'http://a', auth: {user: 'a:b', password: c}}", "user must not have a colon"),
        ("{url: 'http://a', certificate: {key_file: a}}", 'missing key "file"'),
        ("{url: 'http://a', timeout_ms: 5}", "timeout_ms must be 100 to 60000, got 5"),
    ],
)
def test_mistakes_are_reported(given: str, expected: str) -> None:
    (problem,) = problems_in(f"{BASE}schema_registry: {given}")
    assert expected in problem


def test_user_in_the_url_is_refused_without_its_password() -> None:
    (problem,) = problems_in(f"{BASE}schema_registry: {{url: 'http://job:geheim@registry'}}")
    assert "url has a user in it: write auth: {user: …, password: …}" in problem
    assert "geheim" not in problem
