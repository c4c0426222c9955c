"""Which engine runs which job in a comparison, and in which order."""

from __future__ import annotations

import pytest

from benchmarks import plan
from benchmarks.compare import parse
from benchmarks.dsl_jobs import CLOSING_MS
from benchmarks.plan import Entry, distinct, groups, order_of
from benchmarks.records import KEYS, STRIDE
from benchmarks.runs.throughput import CHECKS, window_of
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.record_batch import RecordBatch


def test_all_workloads_of_the_comparison_have_this_engine_first_and_its_peers() -> None:
    for workload in plan.COMPARED:
        peers = {plan.KAFKA_STREAMS} if workload in plan.DSL else set(plan.PEERS)
        for group in groups([workload], plan.PEERS):
            contenders = [entry.contender for entry in group.entries]
            assert contenders[0] == plan.OURS
            assert peers == set(contenders) & set(plan.PEERS)


def test_counting_is_held_against_kafka_streams_without_and_with_its_cache() -> None:
    (group,) = groups(["count"], [plan.KAFKA_STREAMS])

    kinds = [entry.kind for entry in group.entries if entry.contender == plan.KAFKA_STREAMS]
    assert kinds == ["count", "cached-count"]


def test_what_two_workloads_share_runs_once_a_round() -> None:
    entries = distinct(list(groups(["processor", "batch"], plan.PEERS)))

    shared = Entry(plan.KAFKA_STREAMS, "throughput", "processor")
    assert entries.count(shared) == 1
    assert len(entries) == len(set(entries)) == 6


def test_latency_is_measured_at_both_rates() -> None:
    found = list(groups(["latency"], []))

    assert [group.entries[0].rate for group in found] == [1_000, 10_000]
    assert {group.measurement for group in found} == {"latency"}


def test_workloads_without_a_peer_keep_this_engine_and_the_bare_loops() -> None:
    (group,) = groups(["sum"], plan.PEERS)

    contenders = [entry.contender for entry in group.entries]
    assert contenders == [plan.OURS, plan.TRANSACTIONAL, plan.AT_LEAST_ONCE]


def test_every_throughput_job_has_a_model() -> None:
    entries = distinct(list(groups(plan.WORKLOADS, plan.PEERS)))

    assert {entry.kind for entry in entries if entry.measurement == "throughput"} == set(CHECKS)


def test_each_round_begins_with_another_run_and_has_all_of_them() -> None:
    entries = distinct(list(groups(["forward"], plan.PEERS)))

    orders = [order_of(entries, number) for number in range(len(entries))]

    assert {order[0] for order in orders} == set(entries)
    assert all(set(order) == set(entries) for order in orders)


def test_by_default_everything_is_compared_in_five_rounds_of_six_million_records() -> None:
    arguments = parse([])

    assert arguments.peer == list(plan.PEERS)
    assert arguments.workload == list(plan.COMPARED)
    assert arguments.rounds >= 5
    assert arguments.records >= 6_000_000
    assert arguments.warm_up_seconds == 30
    assert arguments.json is None


def test_options_choose_peers_workloads_sizes_and_where_the_json_goes() -> None:
    arguments = parse(["--peer", "quix", "--workload", "count", "--records", "2_000", "--json"])

    assert (arguments.peer, arguments.workload) == (["quix"], ["count"])
    assert (arguments.records, arguments.json) == (2000, "-")
    assert parse(["--json", "file"]).json == "file"


@pytest.mark.parametrize("words", [["--rounds", "0"], ["--records", "x"], ["--peer", "flink"]])
def test_what_cannot_be_measured_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert words[0] in capsys.readouterr().err


def test_the_window_follows_the_warm_up_and_leaves_out_the_end() -> None:
    window = window_of(1_000, 2_000)

    assert (window.start, window.stop) == (1_000, 2_900)


def test_the_model_of_closed_windows_needs_all_partitions_to_be_past_the_same_end() -> None:
    check = CHECKS["suppressed"](4 * CLOSING_MS)
    assert check.missing() == f"the last outputs of {KEYS:,} keys have not come"
    last = 3 * CLOSING_MS
    numbers = range(last - KEYS, last)
    keys, values = [b"%d" % (n * STRIDE % KEYS) for n in numbers], [b"%d" % n for n in numbers]
    check.add(RecordBatch("sink", 0, keys, values, [0] * KEYS, range(KEYS)))
    assert check.is_complete

    with pytest.raises(PipelineError, match="give a multiple of 50,000 records"):
        CHECKS["suppressed"](4 * CLOSING_MS + 1)


def test_the_model_of_two_topics_needs_as_many_records_of_each_key() -> None:
    with pytest.raises(PipelineError, match="give a multiple of 10,000"):
        CHECKS["cogroup"](KEYS + 1)
