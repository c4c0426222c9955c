"""Medians, ranges and ratios, and the tables that show them."""

from __future__ import annotations

import json

from benchmarks.report import Row, Table, as_json, as_text, ratios, summarize

_OURS = [{"records_per_s": rate, "peak_mb": 10.0} for rate in (300.0, 100.0, 200.0)]
_THEIRS = [{"records_per_s": rate, "peak_mb": 0.0} for rate in (90.0, 100.0, 500.0)]


def _throughput(rate: float) -> dict[str, float]:
    return {
        "records_per_s": rate,
        "cpu_s_per_million": 2.345,
        "broker_cpu_s_per_million": 1.0,
        "peak_mb": 1234.5,
    }


def test_a_summary_has_the_median_and_the_range() -> None:
    summary = summarize(_OURS)["records_per_s"]

    assert (summary.median, summary.min, summary.max) == (200, 100, 300)


def test_ratios_are_those_of_medians_and_leave_out_what_cannot_be_divided() -> None:
    assert ratios(_OURS, _THEIRS) == {"records_per_s": 2.0}


def test_a_table_shows_median_range_and_ratio_to_our_row() -> None:
    table = Table(
        "forward: 100 records",
        "throughput",
        [
            Row("this engine", [_throughput(400_000), _throughput(600_000)]),
            Row("a peer", [_throughput(250_000), _throughput(250_000)]),
            Row("a peer that failed", []),
        ],
    )

    title, blank, head, rule, ours, peer, failed = as_text(table).splitlines()

    assert (title, blank) == ("forward: 100 records", "")
    assert [cell.strip() for cell in head.split("|")][1:4] == ["", "records/s", "ours ÷ it"]
    assert set(rule) == set("|- ")
    assert "500,000 (400,000..600,000) | 1.00" in ours
    assert "250,000                    | 2.00" in peer
    assert "2.35" in peer or "2.34" in peer
    assert {cell.strip() for cell in failed.split("|")[2:-1]} == {"-"}
    assert len({len(line) for line in (head, rule, ours, peer, failed)}) == 1


def test_json_has_every_round_the_summary_and_the_ratios() -> None:
    table = Table("t", "throughput", [Row("this engine", _OURS), Row("a peer", _THEIRS)])

    found = json.loads(json.dumps(as_json(table)))

    ours, peer = found["rows"]
    assert ours["rounds"] == _OURS
    assert peer["summary"]["records_per_s"] == {"median": 100.0, "min": 90.0, "max": 500.0}
    assert peer["ours_over_this"] == {"records_per_s": 2.0}
