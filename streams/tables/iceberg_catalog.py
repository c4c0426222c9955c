"""The catalog of an Iceberg table: where it is, how long it is waited for, what its errors mean.

pyiceberg is imported late: it is an extra.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

MOST_ANSWER_S = 15.0
"""How long a REST catalog may take to accept a connection, and to answer a request."""

_OF_AWS: Mapping[str, Sequence[str]] = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    # What PyIceberg takes for `s3.region` if that is not given.
    "client.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Properties of S3, and the variables of AWS with the same. Arrow reads those with credentials."""

_REGION = "us-east-1"
"""The region of stores that have none, as delta-rs has it. PyIceberg would ask AWS for one."""

_REFUSED = "the catalog does not accept its `token` or `credential`"
_LATER = "the catalog cannot do it now"
_HINTS: Mapping[str, str] = {
    "UnauthorizedError": _REFUSED,
    "OAuthError": _REFUSED,
    "AuthorizationExpiredError": "the catalog says that its `token` has expired",
    "ForbiddenError": "the catalog says that its user lacks a right",
    "BadRequestError": "the catalog does not accept a request; its log may say why",
    "ServiceUnavailableError": _LATER,
    "TooManyRequestsError": _LATER,
    "ServerError": "the catalog has failed; its log may say why",
    "CommitStateUnknownException": "the catalog has failed during a commit, and whether it "
    "succeeded shows at the next start",
}


def open_catalog(given: Mapping[str, str]) -> Any:
    """Return the catalog with these properties, with psycopg 3 as PostgreSQL's driver.

    Where S3 is, if neither `given` nor PyIceberg's own configuration says it, is what variables of
    AWS say, as for Delta tables. Raises `ImportError` without pyiceberg. Other errors, also later
    ones, are PyIceberg's, SQLAlchemy's, `OSError`, `ValueError` or `NotImplementedError`.
    """
    uri = re.sub(r"^postgresql(\+\w+)?://", "postgresql+psycopg://", given["uri"])
    properties = {**given, "uri": uri}
    if given["type"] == "rest":
        catalog = _rest(properties)
    else:
        catalog = import_module("pyiceberg.catalog").load_catalog(**properties)
    for name, variables in _OF_AWS.items():
        if found := [os.environ[each] for each in variables if os.environ.get(each)]:
            catalog.properties.setdefault(name, found[0])
    if "s3.endpoint" in catalog.properties:
        catalog.properties.setdefault("client.region", _REGION)
    return catalog


def named(error: Exception) -> str:
    """Return the class of an error and what it means, without its own words."""
    name = type(error).__name__
    return f"{name}: {_HINTS[name]}" if name in _HINTS else name


def _rest(properties: dict[str, str]) -> Any:
    """Return a REST catalog, of which PyIceberg 0.12 would wait for an answer forever."""
    modules = ("requests.adapters", "pyiceberg.catalog.rest", "pyiceberg.utils.config")
    adapters, rest, config = map(import_module, modules)

    class Adapter(adapters.HTTPAdapter):  # type: ignore[name-defined, misc]
        def send(self, request: Any, **more: Any) -> Any:
            return super().send(request, **{**more, "timeout": MOST_ANSWER_S})

    class Catalog(rest.RestCatalog):  # type: ignore[name-defined, misc]
        def _config_headers(self, session: Any) -> None:
            # The first that each session goes through.
            super()._config_headers(session)
            for scheme in ("http://", "https://"):
                session.mount(scheme, Adapter())

    known = config.Config().get_catalog_config(properties["name"]) or {}
    return Catalog(**config.merge_config(known, properties))
