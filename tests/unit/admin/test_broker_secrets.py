"""The secrets of a secured Kafka: who can read them, and what they say."""

from __future__ import annotations

import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from kafka_pipeline.admin.broker.certificates import Authority
from kafka_pipeline.admin.broker.properties import (
    BrokerNode,
    security_properties,
    server_properties,
)
from kafka_pipeline.admin.broker.secrets_folder import ADMIN, PRINCIPALS, SecretsFolder
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.security.secret_file import write_private


@pytest.fixture
def secrets(tmp_path: Path) -> SecretsFolder:
    made = SecretsFolder.make(tmp_path)
    made.write_client_files("127.0.0.1:1", "127.0.0.1:2")
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_read_them(secrets: SecretsFolder) -> None:
    assert mode(secrets.path) == 0o700
    assert {mode(file) for file in secrets.path.iterdir()} == {0o600}


def test_each_user_has_a_section_with_a_password_and_one_with_a_certificate(
    secrets: SecretsFolder,
) -> None:
    passwords = secrets.passwords()
    assert set(passwords) == {ADMIN, *PRINCIPALS}
    assert len(set(passwords.values())) == len(passwords)
    for user, password in passwords.items():
        sasl = yaml.safe_load((secrets.path / f"{user}.yaml").read_text())["kafka"]
        assert (sasl["sasl.username"], sasl["sasl.password"]) == (user, password)
        assert sasl["bootstrap.servers"] == "127.0.0.1:1"
        tls = yaml.safe_load((secrets.path / f"{user}.tls.yaml").read_text())["kafka"]
        assert tls["bootstrap.servers"] == "127.0.0.1:2"
        pem = Path(tls["ssl.certificate.location"]).read_bytes()
        certificate = x509.load_pem_x509_certificate(pem)
        assert certificate.subject.rfc4514_string() == f"CN={user}"


def test_later_starts_find_the_same_secrets(tmp_path: Path, secrets: SecretsFolder) -> None:
    found = SecretsFolder.of(tmp_path)
    assert found == secrets
    assert found is not None
    assert found.passwords() == secrets.passwords()


def test_a_folder_of_somebody_else_is_not_taken_for_secrets(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    assert SecretsFolder.of(tmp_path) is None


def test_password_that_was_damaged(secrets: SecretsFolder) -> None:
    write_private(secrets.path / "writer.password", "]\n")
    with pytest.raises(UnavailableError, match=r"writer\.password is damaged"):
        secrets.passwords()


def test_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kafka_pipeline.admin.broker.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-pipeline\[secure\]'"):
        SecretsFolder.make(tmp_path)
    assert not list(tmp_path.iterdir())


def test_certificates_are_of_the_authority_that_issued_them() -> None:
    authority, other = Authority.make("one"), Authority.make("two")
    certificate = x509.load_pem_x509_certificate(authority.issue("writer").encode())
    certificate.verify_directly_issued_by(authority.certificate)
    with pytest.raises(ValueError, match=r"[Ii]ssuer"):
        certificate.verify_directly_issued_by(other.certificate)


def test_a_negative_time_has_expired() -> None:
    issued = Authority.make("one").issue("writer", valid=timedelta(days=-1))
    certificate = x509.load_pem_x509_certificate(issued.encode())
    assert certificate.not_valid_before_utc < certificate.not_valid_after_utc < datetime.now(UTC)


def test_every_listener_is_secured_and_on_loopback() -> None:
    node = BrokerNode(1, 9001, 9101, 9201)
    text = server_properties(node, [node], Path("/d"), security_properties(node, Path("/s")))
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert "PLAINTEXT" not in text
    assert settings["listeners"] == (
        "CLIENTS://127.0.0.1:9001,TLS://127.0.0.1:9201,CONTROLLER://127.0.0.1:9101"
    )
    assert settings["allow.everyone.if.no.acl.found"] == "false"
    for listener in ("tls", "controller"):
        assert settings[f"listener.name.{listener}.ssl.client.auth"] == "required"
