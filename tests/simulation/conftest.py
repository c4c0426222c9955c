"""Options of the simulation: `pytest tests/simulation --seed 17` replays one cluster."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, metavar="N", help="simulate this cluster only")
    parser.addoption("--seeds", type=int, metavar="N", help="how many clusters to simulate")
