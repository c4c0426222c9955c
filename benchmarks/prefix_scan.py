"""How long the first hit of a prefix scan takes: `python -m benchmarks.prefix_scan [--keys N]`.

A persistent store has this many keys, and an overlay of keys that its open transaction has written.
The benchmark scans random prefixes, each of which 100 keys share, and compares every scan with a
model.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from kafka_pipeline import serdes, stores

HITS = 100
SCANS = 1000
UNCOMMITTED = 10_000


def key_of(number: int) -> str:
    """Return a key; a hundred consecutive numbers share a prefix of seven digits."""
    return f"{number // HITS:07d}/{number % HITS:02d}"


def main() -> None:
    """Measure, and print the percentiles in ms."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    definition = stores.key_value("Scanned", serdes.string, serdes.int64)
    with tempfile.TemporaryDirectory() as folder:
        opened = definition.open(Path(folder), {})
        store = definition.build(opened)
        assert isinstance(store, stores.KeyValueStore)
        numbers = random.sample(range(keys), keys)
        for start in range(0, keys, 100_000):
            store.put_all((key_of(number), number) for number in numbers[start : start + 100_000])
            opened.commit(start)
        store.put_all((key_of(number), -number) for number in numbers[:UNCOMMITTED])
        written = set(numbers[:UNCOMMITTED])
        first_ms, all_ms = [], []
        for _ in range(SCANS):
            group = random.randrange(keys // HITS)
            began = time.perf_counter()
            with store.prefix_scan(f"{group:07d}/", serdes.string) as found:
                first = next(found)
                first_ms.append((time.perf_counter() - began) * 1000)
                hits = [first, *found]
            all_ms.append((time.perf_counter() - began) * 1000)
            members = range(group * HITS, (group + 1) * HITS)
            assert hits == [(key_of(n), -n if n in written else n) for n in members]
        opened.close()
    for what, figures in (("the first hit", first_ms), (f"all {HITS} hits", all_ms)):
        figures.sort()
        p50, p99 = figures[SCANS // 2], figures[SCANS * 99 // 100]
        print(
            f"{keys:,} keys, {what}: p50 {p50:.3f} ms, p99 {p99:.3f} ms, max {figures[-1]:.3f} ms"
        )


if __name__ == "__main__":
    main()
