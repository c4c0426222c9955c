"""The certificates, passwords and client settings of a secured Kafka, in files of one folder."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.ports import LOOPBACK
from kafka_pipeline.admin.broker.properties import admin_properties
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.security.secret_file import write_private

PRINCIPALS = ("jobmanager", "taskmanager", "operator", "maintainer", "writer", "reader")
"""Users without any right at first; `pipeline acls` says which each of them needs."""
ADMIN = "admin"
"""The user who may do everything: makes ACLs."""
BROKER = "broker"
"""How brokers and controllers know each other, by certificates alone."""

MECHANISM = "SCRAM-SHA-512"
FOLDER = "secrets"

PRIVATE_FOLDER = 0o700
# Anything else would need quotes in one of the files that have the password.
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{20,}")


@dataclass(frozen=True, slots=True)
class SecretsFolder:
    """What clients and brokers of one cluster need to trust each other.

    ca.pem              the certificate of the authority
    NAME.pem            the key and the certificate of a user
    NAME.password       the password of a user; a broker has none
    NAME.yaml           the section `kafka:` of config.yaml, with the password
    NAME.tls.yaml       the same, with the certificate instead
    admin.properties    for Kafka's own tools
    """

    path: Path

    @classmethod
    def of(cls, directory: Path) -> SecretsFolder | None:
        """Return the one in a broker's folder; `None` if the Kafka there is not secured."""
        path = directory / FOLDER
        is_ours = (path / f"{BROKER}.pem").is_file() and not path.is_symlink()
        return cls(path) if is_ours else None

    @classmethod
    def make(cls, directory: Path) -> SecretsFolder:
        """Make certificates and passwords, or none of them.

        Raises:
            ConfigError: the library that makes certificates is not installed.
            OSError: the folder cannot be written.
        """
        try:
            # Imported late: only a secured broker needs it, and it is in an extra.
            from kafka_pipeline.admin.broker.certificates import Authority
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("cryptography"):
                raise
            raise ConfigError(
                "--secure makes certificates with the library cryptography, which is not "
                "installed: pip install 'kafka-pipeline[secure]'"
            ) from error
        authority = Authority.make("kafka-pipeline local broker")
        files = {
            "ca.pem": authority.pem,
            f"{BROKER}.pem": authority.issue(BROKER, [LOOPBACK, "localhost"]),
        }
        for user in (ADMIN, *PRINCIPALS):
            files[f"{user}.pem"] = authority.issue(user)
            files[f"{user}.password"] = secrets.token_urlsafe(24) + "\n"
        # The folder gets its name once it is complete: one without all files would never start.
        part = directory / f"{FOLDER}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=PRIVATE_FOLDER)
        for name, text in files.items():
            write_private(part / name, text)
        part.rename(directory / FOLDER)
        return cls(directory / FOLDER)

    def passwords(self) -> Mapping[str, str]:
        """Return the password of each user.

        Raises `UnavailableError` if a file is not as it was made, and OSError if it cannot be read.
        """
        found = {}
        for user in (ADMIN, *PRINCIPALS):
            file = self.path / f"{user}.password"
            password = file.read_text("utf-8").strip()
            if not _PASSWORD.fullmatch(password):
                raise UnavailableError(
                    f"{file} is damaged: delete the data of this broker and start it again "
                    "(`pipeline broker stop --delete-data`)"
                )
            found[user] = password
        return found

    def write_client_files(self, sasl_servers: str, tls_servers: str) -> None:
        """Write the settings of clients, which name the ports of the brokers."""
        for user, password in self.passwords().items():
            sasl = kafka_section(
                {
                    "bootstrap.servers": sasl_servers,
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": MECHANISM,
                    "sasl.username": user,
                    "sasl.password": password,
                    "ssl.ca.location": str(self.path / "ca.pem"),
                }
            )
            tls = kafka_section(
                {
                    "bootstrap.servers": tls_servers,
                    "security.protocol": "SSL",
                    "ssl.certificate.location": str(self.path / f"{user}.pem"),
                    "ssl.key.location": str(self.path / f"{user}.pem"),
                    "ssl.ca.location": str(self.path / "ca.pem"),
                }
            )
            write_private(self.path / f"{user}.yaml", sasl)
            write_private(self.path / f"{user}.tls.yaml", tls)
        write_private(self.path / f"{ADMIN}.properties", admin_properties(self.path))


def kafka_section(settings: Mapping[str, str]) -> str:
    """Return a section `kafka:` of config.yaml that has these settings literally."""
    lines = (f'  {name}: "{_quoted(value)}"\n' for name, value in settings.items())
    return "".join(("kafka:\n", *lines))


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
