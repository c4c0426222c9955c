"""How many seeds a test runs with: `--seed` chooses one, `--seeds` how many."""

from __future__ import annotations

import pytest

from tests.tiers import long_but_the_first


def parametrize(metafunc: pytest.Metafunc, short: int, count: int, chunk: int) -> None:
    """Give a test that takes `seeds` ranges of them: the first `short` seeds, and the long rest.

    There are `count` in all. The options choose others, and then none of them is long.
    """
    if "seeds" not in metafunc.fixturenames:
        return
    seed: int | None = metafunc.config.getoption("--seed")
    chosen: int | None = metafunc.config.getoption("--seeds")
    if seed is not None:
        chunks = [range(seed, seed + 1)]
    else:
        end = chosen or count
        chunks = [range(first, min(first + chunk, end)) for first in range(0, end, chunk)]
    short_chunks = len(chunks) if seed is not None or chosen else short // chunk
    ids = [f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks]
    metafunc.parametrize("seeds", long_but_the_first(chunks, short_chunks), ids=ids)
