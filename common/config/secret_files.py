"""Warns of files with secrets that every user of the host can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    read_yaml,
)
from kafka_pipeline.common.security.secret_names import is_secret

logger = structlog.get_logger()


def warn_of_readable_secrets(config_file: Path, config: Config) -> None:
    """Log a warning if every user of the host can read config.yaml or the control key's file.

    config.yaml counts only if it contains a secret; a value from the environment (`${VAR}`) is not
    in the file.
    """
    if _is_readable_by_all(config_file):
        names = sorted({pair.key for pair in _pairs(read_yaml(config_file, Problems(config_file)))})
        if names:
            logger.warning(
                "everyone on this host can read config.yaml, which holds secrets: take the right "
                "to read it from others, or take them from the environment",
                file=str(config_file),
                settings=names,
            )
    if config.control_key_file is not None and _is_readable_by_all(config.control_key_file):
        logger.warning(
            "everyone on this host can read the control key: take the right to read it from others",
            file=str(config.control_key_file),
        )


def _is_readable_by_all(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:  # It was there when it was read.
        return False


def _pairs(value: Value) -> Iterator[Pair]:
    """Yield the settings below a value that are secrets and written out."""
    if isinstance(value, Items):
        for item in value.items:
            yield from _pairs(item)
    elif isinstance(value, Map):
        for pair in value.pairs:
            yield from _pairs(pair.value)
            is_written_out = isinstance(pair.value, Scalar) and not pair.value.text.startswith("${")
            if is_written_out and is_secret(pair.key):
                yield pair
