"""The settings of a config.yaml as they are written there, to make another config.yaml of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kafka_pipeline.common.security.secret_file import write_private


def read_settings(config: Path) -> dict[str, Any]:
    """Return the settings of a config.yaml that was loaded before, with references as they are."""
    given = yaml.safe_load(config.read_text(encoding="utf-8"))
    if isinstance(given, list):  # the original's form: a list of maps with one key each
        return {key: value for item in given for key, value in item.items()}
    return dict(given)


def write_settings(file: Path, settings: Mapping[str, Any], top: str) -> None:
    """Write a config.yaml; `top` is the comment that it begins with. Raises `OSError`.

    Only its owner can read it: the one that it is made of may have passwords.
    """
    text = f"# {top}\n" + yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    write_private(file, text)
