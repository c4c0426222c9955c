"""Reports on the wire: full, partial, in parts, and with parts that are not read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.protocol import reports as reports_on_the_wire
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.messages import (
    MAX_RECORD_BYTES,
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    MalformedMessageError,
    Report,
    Threads,
)
from kafka_pipeline.common.protocol.reports import decode_report, encode_report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager import events as jobmanager
from kafka_pipeline.jobmanager.state import JobManagerState
from tests.unit.common.wire import (
    NAMES,
    REPLICA,
    REPORT,
    SENT_AT_MS,
    decode,
    encode,
    is_malformed,
    mutate,
    reports,
    statuses,
    with_headers,
)


def document(report: Report) -> dict[str, object]:
    """Return what is acted on of a report, as JSON has it."""
    (record,) = encode(Heartbeat(report))
    read = json.loads(dict(record.headers)["report"])
    assert isinstance(read, dict)
    return read


def large_report(tasks: int = 12_000, incarnation: str = "i", beat: int = 3) -> Report:
    """Return a report that no record can hold."""
    listed = tuple(
        TaskStatus(
            TaskId("Processor", n),
            TaskState.RUNNING,
            fingerprint=f"{n:012}",
            figures={"records_in": n},
        )
        for n in range(tasks)
    )
    closed = tuple(TaskId("Gone", n) for n in range(tasks))
    return Report(1, incarnation, 4, beat, 2, 3, tasks=listed, base=2, closed=closed)


def decoded(records: list[ControlRecord], codec: Codec | None = None) -> list[object]:
    """Return the messages that come out."""
    codec = codec or Codec(NAMES)
    found = [codec.decode(record) for record in records]
    return [message for message in found if message is not None]


# The content of a report.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("beat", None),
        ("beat", "7"),
        ("beat", 7.5),
        ("beat", True),
        ("base", "7"),
        ("base", -1),
        ("threads", 0),
        ("threads", -1),
        ("sequence", -1),
        ("epoch", float("inf")),
        ("incarnation", 5),
        ("incarnation", "\ud800"),
        ("leaving", 0),
        ("thread_states", "RUNNING"),
        ("thread_states", ["TIRED"]),
        ("tasks", []),
        ("tasks", {}),
        ("tasks", {"task": ["A_0"], "state": [], "fingerprint": []}),
        ("tasks", {"task": [[]], "state": ["RUNNING"], "fingerprint": [""]}),
        ("tasks", {"task": ["A"], "state": ["RUNNING"], "fingerprint": [""]}),
        ("tasks", {"task": ["A_0"], "state": ["TIRED"], "fingerprint": [""]}),
        ("tasks", {"task": ["A_0"], "state": ["RUNNING"], "fingerprint": [None]}),
        ("closed", {}),
        ("closed", ["A"]),
        ("closed", [0]),
    ],
)
@pytest.mark.parametrize("reads_figures", [True, False])
def test_report_with_a_field_of_another_kind_is_malformed(
    field: str, value: object, reads_figures: bool
) -> None:
    (record,) = encode(Heartbeat(REPORT))
    report = json.dumps({**document(REPORT), field: value}).encode()
    codec = Codec(NAMES, reads_figures)
    assert is_malformed(with_headers(record, report=report), codec)


@pytest.mark.parametrize("field", sorted(document(REPORT)))
def test_report_without_a_field_is_malformed(field: str) -> None:
    (record,) = encode(Heartbeat(REPORT))
    left = {name: value for name, value in document(REPORT).items() if name != field}
    assert is_malformed(with_headers(record, report=json.dumps(left).encode()))


COLUMNS = '"thread","reason","activity","dropped"'


def table(names: str, *rows: str, rejected: str = "") -> bytes:
    """Return a document of figures."""
    more = f',"rejected":{rejected}' if rejected else ""
    return f'{{"names":[{names}],"rows":[{",".join(rows)}]{more}}}'.encode()


@pytest.mark.parametrize(
    "figures",
    [
        None,
        b"",
        b"[]",
        b"{}",
        table(""),
        table("", "[]"),
        table(COLUMNS),
        table(COLUMNS, '[0,"","",{}]', '[0,"","",{}]'),
        table(COLUMNS, '"x"'),
        table(COLUMNS, '[0,"",""]'),
        table(COLUMNS, '[0,"","",{},3]'),
        table(COLUMNS, '["","","",{}]'),
        table(COLUMNS, '[0,null,"",{}]'),
        table(COLUMNS, '[0,"","",{"late":-1}]'),
        table('"reason","thread","activity","dropped"', '["",0,"",{}]'),
        table(f"{COLUMNS},0", '[0,"","",{},3]'),
        table(f'{COLUMNS},"lag"', '[0,"","",{}]'),
        table(f'{COLUMNS},"lag"', '[0,"","",{},"3"]'),
        table(f'{COLUMNS},"lag"', '[0,"","",{},-1]'),
        table(f'{COLUMNS},"lag"', '[0,"","",{},true]'),
        table(f'{COLUMNS},"lag"', '[0,"","",{},1.5]'),
        table(COLUMNS, '[0,"","",{}]', rejected="[{},{}]"),
        table(COLUMNS, '[0,"","",{}]', rejected='[{"E":-1}]'),
        table(COLUMNS, '[0,"","",{}]', rejected='{"E":1}'),
        table(COLUMNS, '[0,"","",{}]', rejected="[3]"),
    ],
)
def test_figures_of_another_shape_are_malformed(figures: bytes | None) -> None:
    (record,) = encode(Heartbeat(REPORT))
    assert is_malformed(with_headers(record, figures=figures))


def test_figures_are_a_table_of_those_that_any_task_has() -> None:
    """A missing count is written as 0, which is shorter; a missing gauge is unknown."""
    counts = TaskStatus(TaskId("P", 0), TaskState.RUNNING, "slow", figures={"restarts": 2})
    lags = TaskStatus(TaskId("P", 1), TaskState.RUNNING, thread=1, figures={"lag": 0})
    message = Heartbeat(replace(REPORT, tasks=(counts, lags)))
    (record,) = encode(message)
    assert dict(record.headers)["figures"] == table(
        f'{COLUMNS},"restarts","lag"', '[0,"","",{},2,null]', '[1,"","",{},0,0]'
    )
    assert decode([record]) == message


def test_figures_of_a_later_version_are_left_out() -> None:
    (record,) = encode(Heartbeat(REPORT))
    figures = table(f'{COLUMNS},"lags","lag"', '[0,"","",{},true,3]')
    read = decode([with_headers(record, figures=figures)])
    assert isinstance(read, Heartbeat)
    assert [status.figures for status in read.report.tasks] == [{"lag": 3}]


def test_errors_are_a_field_that_only_reports_with_rejected_records_have() -> None:
    """Earlier versions read a table of the columns that they know, and ignore other fields."""
    good = TaskStatus(TaskId("P", 0), TaskState.RUNNING)
    bad = TaskStatus(TaskId("P", 1), TaskState.RUNNING, rejected={"shop.SoldOutError": 3})
    message = Heartbeat(replace(REPORT, tasks=(good, bad)))
    (record,) = encode(message)
    rows = '[0,"","",{}]', '[0,"","",{}]'
    expected = table(COLUMNS, *rows, rejected='[{},{"shop.SoldOutError":3}]')
    assert dict(record.headers)["figures"] == expected
    assert decode([record]) == message


def test_warnings_of_keys_are_a_field_that_only_reports_with_them_have() -> None:
    good = TaskStatus(TaskId("P", 0), TaskState.RUNNING)
    warning = KeyWarning("a", KeyProblem.BYTES, "Joined", ("b", "c"), "json")
    bad = TaskStatus(TaskId("P", 1), TaskState.RUNNING, key_warnings=(warning,))
    message = Heartbeat(replace(REPORT, tasks=(good, bad)))
    (record,) = encode(message)
    figures = dict(record.headers)["figures"]
    warned = (
        b',"key_warnings":[[],[{"topic":"a","problem":"bytes","step":"Joined",'
        b'"others":["b","c"],"found":"json"}]]'
    )
    assert warned in figures
    assert decode([record]) == message
    for wrong in (b"[[],[3]]", b"[[]]", b'[[],[{"topic":"a"}]]', warned.partition(b":")[2][:-2]):
        assert is_malformed(
            with_headers(record, figures=figures.replace(warned, b',"key_warnings":' + wrong))
        )


@given(reports, st.data())
def test_report_that_decodes_can_do_no_harm(report: Report, data: st.DataObject) -> None:
    (record,) = encode(Heartbeat(report))
    body = json.dumps(mutate(document(report), data)).encode()
    try:
        message = Codec(NAMES).decode(with_headers(record, report=body))
    except MalformedMessageError:
        return
    assert isinstance(message, Heartbeat)
    core = JobManagerState([REPLICA], 20_000, 1000)
    core.handle(Tick(0))
    core.handle(jobmanager.LeadershipBegan(1))
    said = [*core.handle(jobmanager.Reported(message.report)), *core.handle(Tick(3000))]
    for answer in said:
        encode(answer)
    assert decode(encode(message)) == message


@given(statuses)
def test_every_figure_of_a_status_is_reported(status: TaskStatus) -> None:
    message = decode(encode(Heartbeat(replace(REPORT, tasks=(status,)))))
    assert isinstance(message, Heartbeat)
    assert message.report.tasks == (status,)


def test_reader_that_acts_leaves_figures_and_owners_unread() -> None:
    codec = Codec(NAMES, reads_figures=False)
    (record,) = encode(Heartbeat(REPORT))
    bare = TaskStatus(TaskId("Counter", 0), TaskState.RUNNING, fingerprint="f00d")
    expected = Heartbeat(replace(REPORT, tasks=(bare,)))
    assert codec.decode(record) == expected
    assert codec.decode(with_headers(record, figures=b"not looked at")) == expected
    (record,) = encode(JobManagerBeat(2, SENT_AT_MS, {TaskId("Counter", 0): 1}))
    assert codec.decode(record) == JobManagerBeat(2, SENT_AT_MS, {})


def test_owners_come_with_what_nobody_is_to_run() -> None:
    beat = JobManagerBeat(
        2,
        SENT_AT_MS,
        {TaskId("Counter", 0): 1, TaskId("Counter", 1): None},
        held=frozenset({"Adder"}),
        held_tasks=frozenset({TaskId("Counter", 1)}),
        findings=("clicks has 3 partitions", "a" * 1_000),
        unread={"Count": 14},
    )
    (record,) = encode(beat)
    assert Codec(NAMES).decode(record) == beat


# Parts.


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 24 tasks need four records."""
    monkeypatch.setattr(reports_on_the_wire, "PART_BYTES", 850)


@pytest.mark.parametrize("kind", [Heartbeat, Threads])
def test_report_that_is_too_long_comes_in_parts_and_out_whole(
    kind: type[Heartbeat | Threads],
) -> None:
    message = kind(large_report())
    records = encode(message)
    assert len(records) > 1
    for record in records:
        used = sum(len(name) + len(value) for name, value in record.headers)
        assert len(record.value) + used < MAX_RECORD_BYTES * 0.6
    assert decode(records) == message


def test_owners_of_very_many_tasks_come_in_parts_and_out_whole() -> None:
    owners = {TaskId("Processor", n): n % 1000 if n % 7 else None for n in range(100_000)}
    message = JobManagerBeat(2, SENT_AT_MS, owners)
    records = encode(message)
    assert len(records) > 1
    assert all(len(dict(record.headers)["report"]) < MAX_RECORD_BYTES * 0.6 for record in records)
    assert decode(records) == message
    (echo,) = decoded(records, Codec(NAMES, reads_figures=False))
    assert echo == JobManagerBeat(2, SENT_AT_MS, {})


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.usefixtures("small_parts")
def test_report_of_which_a_part_is_missing_never_comes_out(lost: int) -> None:
    records = encode(Heartbeat(large_report(24)))
    assert len(records) == 4
    whole = encode(Heartbeat(large_report(24, beat=4)))
    left = records[:lost] + records[lost + 1 :]
    assert decoded([*left, *whole]) == [Heartbeat(large_report(24, beat=4))]


@pytest.mark.usefixtures("small_parts")
def test_parts_in_another_order_or_doubled_do_not_come_out() -> None:
    first, second, *others = encode(Heartbeat(large_report(24)))
    assert decoded([second, first, *others]) == []
    assert decoded([first, first, second, second, *others]) == []
    again = [first, first, second, *others]
    assert decoded(again) == [Heartbeat(large_report(24))]


@pytest.mark.usefixtures("small_parts")
def test_parts_of_different_senders_may_alternate() -> None:
    messages = [Heartbeat(large_report(24, incarnation=name)) for name in ("a", "b")]
    records = [encode(message) for message in messages]
    alternating = [record for pair in zip(*records, strict=True) for record in pair]
    assert decoded(alternating) == messages


def test_parts_whose_end_never_comes_do_not_pile_up() -> None:
    codec = Codec(NAMES)
    first, *_ = encode(Heartbeat(replace(large_report(2), host="x" * 600_000)))
    document = dict(first.headers)["report"]
    for number in range(100):
        renamed = document.replace(b'"incarnation":"i"', b'"incarnation":"%d"' % number)
        assert codec.decode(with_headers(first, report=renamed)) is None
    kept = sum(waiting.size for waiting in codec._waiting.values())
    assert kept == codec._waiting_bytes
    assert 20_000_000 < kept < 40_000_000
    whole = Heartbeat(large_report(6_000))
    assert decoded(encode(whole), codec) == [whole]


@pytest.mark.parametrize("part", [b"1/1", b"2/2", b"-1/2", b"0/0", b"0", b"0/1/2", b"a/b", b""])
def test_impossible_part_is_malformed(part: bytes) -> None:
    (record,) = encode(Heartbeat(REPORT))
    assert is_malformed(with_headers(record, part=part))


def test_report_that_cannot_be_cut_small_enough_has_a_task_in_each_part() -> None:
    report = replace(large_report(tasks=3), host="x" * 800_000)
    records = encode(Heartbeat(report))
    assert len(records) == 3
    assert decode(records) == Heartbeat(report)


def test_suspects_are_among_what_the_job_manager_reads() -> None:
    suspects = (Suspect("`process`", "in", 1, 7, 9), Suspect("`init`"))
    accused = TaskStatus(TaskId("P", 0), TaskState.RESTARTING, suspects=suspects)
    report = Report(1, "me", 2, 3, tasks=(accused, TaskStatus(TaskId("P", 1), TaskState.RUNNING)))
    ((acted_on, figures),) = encode_report(report)
    assert decode_report(acted_on, None).tasks == report.tasks
    assert decode_report(acted_on, figures).tasks == report.tasks
    ((without, _),) = encode_report(replace(report, tasks=report.tasks[1:]))
    assert "suspects" not in json.loads(without)
