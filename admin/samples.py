"""The sample files to start from, and the schemas that editors check them by."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from admin.schema import SchemaName, schema_file, schema_text
from common.errors import ConfigError, UnavailableError

_SCHEMAS = {schema_file(name): name for name in SchemaName}
SAMPLE_NAMES = ("config.yaml", "pipeline.yaml", *_SCHEMAS)


def sample(name: str) -> str:
    """Return the text of a sample file, one of `SAMPLE_NAMES`."""
    if name in _SCHEMAS:
        return schema_text(_SCHEMAS[name])
    return files("admin").joinpath("templates", name).read_text(encoding="utf-8")


def write_samples(folder: Path) -> list[Path]:
    """Write the samples into `folder`, which is created if missing, and return their paths.

    Raises ConfigError and writes none if one of them exists, and UnavailableError if the folder
    cannot be written.
    """
    paths = [folder / name for name in SAMPLE_NAMES]
    existing = [str(path) for path in paths if os.path.lexists(path)]
    if existing:
        raise ConfigError(
            f"already there: {', '.join(existing)}; nothing was written, "
            "move them away or name another folder"
        )
    try:
        for name, path in zip(SAMPLE_NAMES, paths, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x" does not overwrite a file that appeared since the check above.
            with path.open("x", encoding="utf-8") as file:
                file.write(sample(name))
    except OSError as error:
        raise UnavailableError(f"cannot write to {folder}: {error.strerror}") from error
    return paths
