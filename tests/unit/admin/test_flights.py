"""The files of the quickstart's flights; no network here."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.admin.quickstart.flights import fetch_flights
from kafka_pipeline.common.errors import UnavailableError


@pytest.mark.parametrize("name", ["file/cache", "x" * 300])
def test_a_cache_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME"):
        fetch_flights(tmp_path / name)
