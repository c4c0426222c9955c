"""The version of the engine, as pip installed it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "kafka-pipeline"
"""The engine's name for pip."""


def installed_version() -> str:
    """Return the version that is installed now, such as "0.1.0".

    Returns "" where the engine is not installed, such as on the executors of a Spark cluster. Each
    call looks at the files: another version may have been installed since this process started.
    """
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


RUNNING_VERSION = installed_version()
"""The version that this process runs."""
