"""The messages of the driver channel: each is read back unchanged, and all else is refused."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.monitoring.times import BOUNDS_S, Times
from kafka_pipeline.common.protocol.messages import MalformedMessageError
from kafka_pipeline.common.protocol.suspects import Death, Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.common.user_series import UserSeries
from kafka_pipeline.taskmanager.channel_messages import (
    Answer,
    Ask,
    Assign,
    ChannelMessage,
    Closed,
    Die,
    Died,
    Dump,
    Ending,
    Hello,
    Measured,
    Ping,
    Revoke,
    Status,
    Stop,
    Stopped,
    TaskMeasures,
    decode,
    encode,
)
from tests.unit.common.wire import (
    REPLICA,
    RUNNING,
    json_values,
    mutate,
    numbers,
    replica_values,
    statuses,
    tasks,
    texts,
)

times = st.builds(Times, st.tuples(*[numbers] * (len(BOUNDS_S) + 1)), numbers)
counters = st.builds(UserSeries, texts, st.lists(st.tuples(texts, texts), max_size=2).map(tuple))
amounts = st.floats(0, allow_nan=False, allow_infinity=False)
counted = st.lists(st.tuples(counters, amounts), max_size=2).map(tuple)
values = st.floats(allow_nan=False, allow_infinity=False)
gauges = st.lists(st.tuples(counters, values), max_size=2).map(tuple)
measures = st.builds(TaskMeasures, times, times, counted, gauges)
messages: st.SearchStrategy[ChannelMessage] = st.one_of(
    st.builds(Assign, replica_values, numbers),
    st.builds(Revoke, tasks),
    st.builds(Hello, numbers, st.integers(1, 2**22), texts),
    st.builds(Status, st.lists(statuses, max_size=3).map(tuple)),
    st.builds(Measured, numbers, st.dictionaries(tasks, measures, max_size=3)),
    st.builds(
        Ask, numbers, texts, st.none() | tasks, texts, st.dictionaries(texts, texts, max_size=3)
    ),
    # A value that is not a number is not equal to itself.
    st.builds(
        Answer,
        numbers,
        st.integers(100, 599),
        st.dictionaries(texts, json_values).filter(lambda d: json.loads(json.dumps(d)) == d),
    ),
    st.builds(Closed, tasks),
    st.builds(Ending, texts),
    st.builds(
        Died,
        numbers,
        st.integers(1, 99_999),
        st.builds(Death, texts, st.lists(st.tuples(tasks, st.builds(Suspect, texts))).map(tuple)),
        st.booleans(),
    ),
    st.sampled_from([Stop(), Die(), Ping(True), Ping(False), Dump(), Stopped()]),
)
EXAMPLES: dict[str, ChannelMessage] = {
    "assign": Assign(REPLICA, 3),
    "revoke": Revoke(TaskId("Counter", 0)),
    "stop": Stop(),
    "die": Die(),
    "ping": Ping(True),
    "dump": Dump(),
    "hello": Hello(1, 4711, "host pid:[1]"),
    "status": Status((RUNNING,)),
    "measured": Measured(4096, {TaskId("Counter", 0): TaskMeasures(Times(), Times(sum_us=7))}),
    "closed": Closed(TaskId("Counter", 0, 1)),
    "ending": Ending("a call of Counter#0 does not return"),
    "stopped": Stopped(),
    "died": Died(1, 4711, Death("SIGSEGV", ((TaskId("Counter", 0), Suspect("`init`")),)), True),
    "ask": Ask(7, "get", TaskId("Counter", 0), "counts", {"key": "k"}),
    "answer": Answer(7, 200, {"entries": []}),
}
MISSING = object()


def spoiled(kind: str, **fields: object) -> bytes:
    """Return an example as JSON, with some fields replaced, or removed if they are `MISSING`."""
    body = {**json.loads(encode(EXAMPLES[kind])), **fields}
    return json.dumps({n: value for n, value in body.items() if value is not MISSING}).encode()


@given(messages)
def test_every_message_comes_back_as_it_was(message: ChannelMessage) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", EXAMPLES)
def test_type_on_the_wire_is_the_name_of_the_message(kind: str) -> None:
    data = encode(EXAMPLES[kind])
    assert json.loads(data)["type"] == kind == type(EXAMPLES[kind]).__name__.lower()
    assert decode(data) == EXAMPLES[kind]


def test_there_is_an_example_of_each_message() -> None:
    assert {type(message) for message in EXAMPLES.values()} == set(get_args(ChannelMessage))


def test_signs_of_life_take_a_few_bytes() -> None:
    assert encode(Ping(True)) == b'{"type":"ping","is_sure":true}'
    assert encode(Status(())) == b'{"type":"status","tasks":[]}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "message: Expecting value"),
        (b"\x80\x04\x95", "message: 'utf-8' codec"),
        (b"{", "message: Expecting property name"),
        (b"[" * 200_000, r"message: (?:maximum recursion depth|Stack overflow)"),
        (b"9" * 5_000, "message: Exceeds the limit"),
        (b"[]", "message: the JSON: Expected `object`, got `array`"),
        (b"{}", "message: the JSON: Object missing required field `type`"),
        (b'{"type":1}', "message: the JSON: Expected `str`, got `int`"),
        (b'{"type":"\\ud800"}', "message: 'utf-8' codec"),
        (b'{"type":"riddle"}', "riddle: the JSON: Invalid value 'riddle'"),
        (b'{"type":"%s"}' % (b"x" * 10_000), "x{20}…: the JSON: Invalid value"),
    ],
)
def test_what_is_no_message_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=f"^{reason}"):
        decode(data)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("assign", {"replica": MISSING}, "missing required field `replica`"),
        ("assign", {"replica": "Counter_0"}, "Expected `object`, got `str`"),
        ("assign", {"replica": {**REPLICA.to_json(), "type": "X"}}, "unknown processor type"),
        ("assign", {"replica": {**REPLICA.to_json(), "ID": "../x"}}, r"at `\$.ID`"),
        ("assign", {"parameters": MISSING}, "missing required field `parameters`"),
        ("assign", {"parameters": []}, r"Expected `object`, got `array` - at `\$.parameters`"),
        (
            "assign",
            {"parameters": {**REPLICA.parameters(), "on_error": "shrug"}},
            "Invalid enum value 'shrug'",
        ),
        ("assign", {"epoch": MISSING}, "missing required field `epoch`"),
        ("assign", {"epoch": -1}, r"Expected `int` >= 0 - at `\$.epoch`"),
        ("assign", {"epoch": True}, "Expected `int`, got `bool`"),
        ("revoke", {"task": MISSING}, "missing required field `task`"),
        ("revoke", {"task": 7}, r'"7" is not a task id: .* at `\$.task`'),
        ("revoke", {"task": "Counter"}, '"Counter" is not a task id'),
        ("hello", {"thread": MISSING}, "missing required field `thread`"),
        ("hello", {"thread": "1"}, "Expected `int`, got `str`"),
        ("hello", {"thread": -1}, "Expected `int` >= 0"),
        ("hello", {"pid": 1.5}, "Expected `int`, got `float`"),
        ("hello", {"pid": 0}, "Expected `int` >= 1"),
        ("hello", {"place": None}, "Expected `str`, got `null`"),
        ("status", {"tasks": MISSING}, "missing required field `tasks`"),
        ("status", {"tasks": {}}, "Expected `array`, got `object`"),
        ("status", {"tasks": ["Counter_0"]}, r"Expected `object`, got `str` - at `\$.tasks\[0\]`"),
        ("status", {"tasks": [{**as_json(RUNNING), "state": "HAPPY"}]}, "'HAPPY'"),
        ("status", {"tasks": [{**as_json(RUNNING), "figures": {"luck": 1}}]}, "no figures"),
        ("died", {"pid": 0}, "Expected `int` >= 1"),
        ("died", {"death": MISSING}, "missing required field `death`"),
        (
            "died",
            {"death": {"how": "SIGSEGV", "calls": [["Counter"]]}},
            r"at `\$.death.calls\[0\]`",
        ),
        ("closed", {"task": MISSING}, "missing required field `task`"),
        ("closed", {"task": "Counter_0.standby0"}, '"Counter_0.standby0" is not a task id'),
    ],
)
def test_message_with_a_bad_field_is_malformed(
    kind: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MalformedMessageError, match=f"^{kind}: .*{reason}"):
        decode(spoiled(kind, **fields))


def test_reason_is_short_whatever_was_in_the_message() -> None:
    with pytest.raises(MalformedMessageError) as raised:
        decode(spoiled("revoke", task="x" * 1_000_000))
    assert len(str(raised.value)) < 300


@given(messages, st.data())
def test_changed_message_is_read_or_malformed(message: ChannelMessage, data: st.DataObject) -> None:
    body = mutate(json.loads(encode(message)), data)
    try:
        decoded = decode(json.dumps(body).encode())
    except MalformedMessageError:
        return
    assert decode(encode(decoded)) == decoded


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_random_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode(data)
