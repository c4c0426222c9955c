"""Folders for lasting files of the `pipeline` command, by the XDG Base Directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from kafka_pipeline.common.errors import UnavailableError

_APPLICATION = "kafka-pipeline"


def cache_home() -> Path:
    """Return the folder for files that can be fetched again: `$XDG_CACHE_HOME/kafka-pipeline`.

    Raises `UnavailableError` if that is not set and the user has no home folder.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_home() -> Path:
    """Return the folder for files that should last: `$XDG_STATE_HOME/kafka-pipeline`.

    Raises `UnavailableError` if that is not set and the user has no home folder.
    """
    return _xdg("XDG_STATE_HOME", ".local/state")


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The specification says that a relative path must be ignored.
    if os.path.isabs(value):
        return Path(value, _APPLICATION)
    try:
        return Path.home() / default / _APPLICATION
    except RuntimeError as error:
        raise UnavailableError(
            f"this user has no home folder: set HOME or {variable} to a full path"
        ) from error
