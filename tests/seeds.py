"""How many seeds a test runs with: `--seed` chooses one, `--seeds` how many."""

from __future__ import annotations

import pytest


def parametrize(metafunc: pytest.Metafunc, count: int, chunk: int) -> None:
    """Give a test that takes `seeds` ranges of them; `count` in all, unless options say more."""
    if "seeds" not in metafunc.fixturenames:
        return
    seed: int | None = metafunc.config.getoption("--seed")
    if seed is not None:
        chunks = [range(seed, seed + 1)]
    else:
        count = metafunc.config.getoption("--seeds") or count
        chunks = [range(first, min(first + chunk, count)) for first in range(0, count, chunk)]
    ids = [f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks]
    metafunc.parametrize("seeds", chunks, ids=ids)
