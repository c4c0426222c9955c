"""The `schema_registry:` section of config.yaml: where schemas are, and how they are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Number, Section, Text
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError

MOCK = "mock://"
_HTTP = r"https?://[^\s,@/?#]+(?:/[^\s,@?#]*)?"
_FORM = rf"{MOCK}[A-Za-z0-9._-]+|{_HTTP}(?:,{_HTTP})*"

_URL = Text(
    name="url",
    doc="the address of a Confluent schema registry, or several of one cluster, separated by "
    "commas; `mock://NAME` is one in memory, for tests",
    about='such as "https://registry:8081"',
    required=True,
    pattern=f"^(?:{_FORM})$",
)
_USER = Text(
    name="user",
    doc="the user, without a colon",
    about="the user",
    required=True,
    pattern=r"^[^:]*[^:\s][^:]*$",
)
_PASSWORD = Text(name="password", doc="the password", about="the password", required=True)
_AUTH = Section(name="auth", doc="HTTP's basic authentication", keys=(_USER, _PASSWORD))
_CA_FILE = Text(
    name="ca_file",
    doc="authorities that the registry's certificate is checked by; default: those of Python's "
    "package certifi",
)
_FILE = Text(name="file", doc="the certificate", about="the certificate", required=True)
_KEY_FILE = Text(name="key_file", doc="the private key, if it is in a file of its own")
_KEY_PASSWORD = Text(name="key_password", doc="the password of the private key")
_CERTIFICATE = Section(
    name="certificate",
    doc="the client's certificate for TLS",
    keys=(_FILE, _KEY_FILE, _KEY_PASSWORD),
)
_TIMEOUT = Number(
    name="timeout_ms",
    doc="how long one request may take; it is made up to three times",
    low=100,
    high=60_000,
    default=5000,
)
SCHEMA_REGISTRY = Section(
    name="schema_registry",
    doc="where the serdes `avro`, `json_schema` and `protobuf` find schemas; files are PEM, and "
    "relative to the folder of config.yaml",
    keys=(_URL, _AUTH, _CA_FILE, _CERTIFICATE, _TIMEOUT),
)
"""The section of config.yaml."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The address of a schema registry and the credentials for it; passwords are not shown.

    `url` may be several, separated by commas. The paths are absolute, and `timeout_ms` limits one
    request.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: str = field(default="", repr=False)
    timeout_ms: int = 5000

    @property
    def is_mock(self) -> bool:
        """Whether the registry is in the memory of this process."""
        return self.url.startswith(MOCK)

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files that hold a private key, or may."""
        return tuple(filter(None, (self.cert_file, self.key_file)))


def require_shared(settings: RegistrySettings | None) -> None:
    """Raise ConfigError for a registry in memory, of which each process would have another."""
    if settings is not None and settings.is_mock:
        raise ConfigError(
            f"schema_registry: {settings.url} is in the memory of one process, for tests: give "
            "the address of a registry"
        )


def read_registry_settings(
    fields: Fields, folder: Path, problems: Problems
) -> RegistrySettings | None:
    """Return the settings of a config.yaml in `folder`; each mistake is added to `problems`."""
    if fields.get(SCHEMA_REGISTRY.name) is None:
        return None
    given = fields.submap(SCHEMA_REGISTRY)
    url = given.text(_URL)
    if url and re.fullmatch(_FORM, url) is None:
        problems.add(given.at(_URL.name), f"url {_url_problem(url)}")
    found = RegistrySettings(
        url,
        ca_file=given.optional_path(_CA_FILE, folder),
        timeout_ms=given.number(_TIMEOUT),
    )
    if given.get(_AUTH.name) is not None:
        auth = given.submap(_AUTH)
        found = replace(found, user=auth.text(_USER), password=auth.text(_PASSWORD))
        if ":" in found.user:
            problems.add(auth.at(_USER.name), "user must not have a colon, which HTTP forbids")
    if given.get(_CERTIFICATE.name) is not None:
        certificate = given.submap(_CERTIFICATE)
        found = replace(
            found,
            cert_file=certificate.optional_path(_FILE, folder),
            key_file=certificate.optional_path(_KEY_FILE, folder),
            key_password=certificate.text(_KEY_PASSWORD),
        )
    return found


def _url_problem(url: str) -> str:
    """Return what is wrong with a URL, as the end of a sentence that quotes no password."""
    if url.startswith(MOCK):
        return "must name a registry by letters and digits, such as mock://orders"
    if "@" in url:
        return "has a user in it: write auth: {user: …, password: …}"
    return 'must be the address of a registry, such as "https://registry:8081"'
