"""Option of the golden transcripts: `pytest tests/transcripts --rewrite-transcripts`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write what is said now into tests/transcripts/*.txt instead of comparing",
    )
