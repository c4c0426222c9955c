"""How delta-rs uses an object store, wherever the engine opens a Delta table."""

from __future__ import annotations

_OF_STORES = {
    # By default, delta-rs repeats a request for three minutes, and the task could not say why.
    "retry_timeout": "10s",
    "backoff_config.max_backoff": "2s",
}


def storage_options(path: str) -> dict[str, str]:
    """Return the options for a table at a path or a URI, next to variables of the environment."""
    return {**_OF_STORES} if "://" in path else {}
