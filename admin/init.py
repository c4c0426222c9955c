"""`pipeline init`: the sample files to start from."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from common.errors import ConfigError, UnavailableError

SAMPLE_NAMES = ("config.yaml", "pipeline.yaml")


def sample(name: str) -> str:
    """Return the text of a sample file, one of `SAMPLE_NAMES`."""
    return files("admin").joinpath("templates", name).read_text(encoding="utf-8")


def write_samples(folder: Path) -> list[Path]:
    """Write the samples into `folder`, which is created if missing, and return their paths.

    Raises ConfigError and writes neither if one of them exists, and UnavailableError if the folder
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
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            # "x" does not overwrite a file that appeared since the check above.
            with path.open("x", encoding="utf-8") as file:
                file.write(sample(path.name))
    except OSError as error:
        raise UnavailableError(f"cannot write to {folder}: {error.strerror}") from error
    return paths
