"""A committed offset and its time, as brokers keep them."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.committed import Committed, InputProgress, offsets_of


@pytest.mark.parametrize("time_ms", [-1, 0, 1, 1_732_280_000_000, 2**59])
@pytest.mark.parametrize("counts", [(0, 0), (0, 1), (2**59, 12)])
def test_position_is_read_as_it_was_written(time_ms: int, counts: tuple[int, int]) -> None:
    committed = Committed(7, time_ms, *counts)
    assert Committed.read(7, committed.metadata) == committed


def test_format_is_a_contract() -> None:
    assert Committed(7, 1_732_280_000_000, 3, 12).metadata == "2:1732280000000:3:12"
    assert Committed(7).metadata == ""
    progress = InputProgress(9, 1_732_280_060_000, 1_732_280_120_000, True, (("0a1b2c3d", 60_001),))
    known = Committed(7, 1_732_280_000_000, 3, 12, progress)
    assert known.metadata == ("3:1732280000000:3:12:9:1732280060000:1732280120000:1:0a1b2c3d=60001")
    assert Committed.read(7, known.metadata) == known
    dropped = (("expired", 20_933), ("null key", 2), ("a:b=c,d", 1))
    told = Committed(7, 1_732_280_000_000, 3, 12, dropped=dropped)
    assert told.metadata == "4:1732280000000:3:12:a:b=c,d=1,expired=20933,null key=2".replace(
        "a:b=c,d", "a%3Ab%3Dc%2Cd"
    )
    assert Committed.read(7, told.metadata) == told._replace(dropped=tuple(sorted(dropped)))
    both = known._replace(dropped=(("expired", 1),))
    assert both.metadata == known.metadata.replace("3:", "4:", 1).replace(":9:", ":expired=1:9:")
    assert Committed.read(7, both.metadata) == both
    for at in (both, Committed(7)):
        assert at._replace(leader_epoch=3).metadata == at.metadata
        marked = at._replace(is_being_reset=True)
        assert marked.metadata == f"reset {at.metadata}"
        assert Committed.read(7, marked.metadata) == marked


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "1",
        "1:",
        ":5",
        "2:5",
        "2:5:6",
        "2:5:6:7:8",
        "2:-2:0:0",
        "2:5:-1:0",
        "3:5:0:0",
        "4:5:0:0",
        "4:5:0:0:expired",
        "4:5:0:0:expired=1:9",
        "1:5",
        "2:5:0:0 ",
        "2:5:0:0\n",
        "2:\u0665:0:0",
        "AQAAAZ",
        "2:" + "9" * 19 + ":0:0",
    ],
)
def test_what_others_wrote_is_an_unknown_time(metadata: str | None) -> None:
    assert Committed.read(7, metadata) == Committed(7, -1)


def test_all_metadata_fits_into_what_brokers_take() -> None:
    """`offset.metadata.max.bytes` is 4096; a longer commit would be refused."""
    holds = tuple((f"{n:08x}", 10**9) for n in range(50))
    dropped = tuple((f"{n:03} " + "x" * 36, 10**10) for n in range(21))
    assert all(len(reason) == 40 for reason, _ in dropped)
    at = Committed(2**59, 2**50, 10**10, 10**10, InputProgress(2**59, 2**50, 2**50, False, holds))
    metadata = at._replace(dropped=dropped).metadata
    assert len(metadata) < 4096
    assert Committed.read(at.offset, metadata).dropped == dropped


def test_offsets_come_without_their_times() -> None:
    assert offsets_of({("in", 0): Committed(7, 5), ("in", 1): Committed(0)}) == {
        ("in", 0): 7,
        ("in", 1): 0,
    }
