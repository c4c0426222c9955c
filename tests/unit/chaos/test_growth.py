"""What processes use over time, as the harness shows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.chaos.growth import SETTLED_S, SPAN_S, Growth, growth_table, to_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# Takes more memory, one more file and one more thread with each line that it gets.
_GROWING = """
import sys, threading, time
kept = []
print("ready", flush=True)
for _ in sys.stdin:
    kept.append((bytearray(20_000_000), open("/dev/null")))
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    print("more", flush=True)
"""


class _Growing:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def grow(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "more\n"


@pytest.fixture
def growing() -> Iterator[_Growing]:
    with subprocess.Popen(
        [sys.executable, "-c", _GROWING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield _Growing(process)
        process.kill()


def test_growth_after_a_process_has_settled_is_shown(growing: _Growing) -> None:
    growth = Growth(lambda: {"grower": growing.pid})
    growth.look(1000.0)
    growth.look(1000.0 + SETTLED_S)
    for _ in range(3):
        growing.grow()
    growth.look(1000.0 + SETTLED_S + 2 * SPAN_S)

    (curve,) = growth.curves()
    first, last = curve.around(SETTLED_S), curve.around(curve.age_s - SPAN_S)
    assert 50 < last.memory_mb - first.memory_mb < 80
    assert (last.threads - first.threads, last.files - first.files) == (3, 3)
    row = growth_table([curve]).splitlines()[-1]
    assert row.startswith("| grower, python")
    assert f"| {curve.age_s:.0f} s |" in row
    (plain,) = to_json([curve])
    assert plain["process"] == curve.process
    assert [point[0] for point in plain["points"]] == [0, 300, 540]


def test_growth_before_a_process_has_settled_is_not_shown(growing: _Growing) -> None:
    growth = Growth(lambda: {"grower": growing.pid})
    growth.look(0.0)
    growing.grow()
    growth.look(SETTLED_S)
    growth.look(SETTLED_S + 2 * SPAN_S)

    (curve,) = growth.curves()
    assert curve.around(SETTLED_S) == curve.around(curve.age_s - SPAN_S)


def test_young_processes_and_those_that_have_ended_are_not_shown(growing: _Growing) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as gone:
        pass
    sessions = {"grower": growing.pid, "gone": gone.pid}
    growth = Growth(lambda: sessions)
    growth.look(0.0)
    growth.look(SETTLED_S)

    assert growth.curves() == []
