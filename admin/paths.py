"""Folders for lasting files of the `pipeline` command, by the XDG Base Directory specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kafka_pipeline.common.errors import UnavailableError

_APPLICATION = "kafka-pipeline"


def cache_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for files that can be fetched again: `$XDG_CACHE_HOME/kafka-pipeline`.

    Raises `UnavailableError` if that is not set and the user has no home folder.
    """
    return _xdg("XDG_CACHE_HOME", ".cache", environ)


def state_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for files that should last: `$XDG_STATE_HOME/kafka-pipeline`.

    Raises `UnavailableError` if that is not set and the user has no home folder.
    """
    return _xdg("XDG_STATE_HOME", ".local/state", environ)


def _xdg(variable: str, default: str, environ: Mapping[str, str] | None) -> Path:
    value = (os.environ if environ is None else environ).get(variable, "")
    # The specification says that a relative path must be ignored.
    if os.path.isabs(value):
        return Path(value, _APPLICATION)
    try:
        return Path.home() / default / _APPLICATION
    except RuntimeError as error:
        raise UnavailableError(
            f"this user has no home folder: set HOME or {variable} to a full path"
        ) from error
