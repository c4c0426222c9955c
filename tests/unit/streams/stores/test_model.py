"""Stores against plain models: any operations, in any order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.stores import PUT_RETURN_CODE_NOT_PUT
from kafka_pipeline.streams.stores.segments import MIN_SEGMENT_MS
from tests.unit.streams.stores.backends import Backend

KINDS = pytest.mark.parametrize("kind", ["memory", "rocksdb"])

KEYS = [b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff", b"new", b"never"]
keys = st.sampled_from(KEYS[:7])
bounds = st.tuples(keys, st.none() | keys, st.booleans())
no_key, no_bounds = st.just(b""), st.just((b"", None, False))
transaction_steps = st.sampled_from(["commit", "rollback", "mark", "undo", "reopen"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.none() | st.binary(max_size=2), no_bounds),
        st.tuples(st.just("put"), keys, st.binary(max_size=2), no_bounds),
        st.tuples(st.just("put_many"), keys, st.none() | st.binary(max_size=2), no_bounds),
        st.tuples(st.just("scan"), no_key, st.none(), bounds),
        st.tuples(transaction_steps, no_key, st.none(), no_bounds),
    ),
    max_size=40,
)
Step = tuple[str, bytes, bytes | None, tuple[bytes, bytes | None, bool]]
Content = dict[bytes, bytes | None]


class Model:
    """Three dicts: what is committed, the open transaction, and that at the undo mark."""

    def __init__(self) -> None:
        self.committed: Content = {}
        self.changes: Content = {}
        self.saved: Content = {}

    def scan(self, low: bytes, high: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
        content = {**self.committed, **self.changes}
        return [
            (key, value)
            for key, value in sorted(content.items(), reverse=reverse)
            if value is not None and key >= low and (high is None or key < high)
        ]

    def step(self, action: str) -> None:
        if action == "undo":
            self.changes = dict(self.saved)
        elif action == "mark":
            self.saved = dict(self.changes)
        elif action != "scan":
            if action == "commit":
                self.committed |= self.changes
            self.changes, self.saved = {}, {}


@KINDS
@given(steps=steps)
def test_bytes_store_behaves_as_dicts(
    kind: str, steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    backend = Backend(kind, tmp_path_factory.mktemp("model"))
    store, model = backend.open(), Model()
    open_scans: list[tuple[Any, Any]] = []
    offset: int | None = None
    assert store.offset is None
    for number, (action, key, value, scanned) in enumerate(steps):
        if action == "put":
            store.put(key, value)
            model.changes[key] = value
        elif action == "put_many":
            changes = {b"a": value, key: None, b"ab": value, b"new": value}
            model.changes |= changes
            store.put_many(changes)
        elif action == "scan":
            open_scans.append((store.scan(*scanned), model.scan(*scanned)))
        elif action == "commit":
            store.commit(number)
            offset = number
        elif action == "reopen":
            for scan, wanted in open_scans:
                assert list(scan) == wanted
            open_scans.clear()
            store = backend.reopen()
        else:
            getattr(store, action)()
        if not action.startswith("put"):
            model.step(action)
        assert store.uncommitted == model.changes
        assert store.offset == offset
        now = {**model.committed, **model.changes}
        assert store.get_many(KEYS) == [now.get(each) for each in KEYS]
        with store.scan(b"", None) as entries:
            assert list(entries) == model.scan(b"", None, False)
    for key in KEYS:
        assert store.get(key) == {**model.committed, **model.changes}.get(key)
    for scan, wanted in open_scans:
        assert list(scan) == wanted
    backend.close()


RETENTION = 2 * MIN_SEGMENT_MS
times = st.integers(0, 12).map(lambda number: number * MIN_SEGMENT_MS // 2)
texts = st.text("ab", max_size=2)
window_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), texts, times, st.none() | st.integers(0, 9)),
        st.tuples(transaction_steps, st.just(""), st.just(0), st.none()),
    ),
    max_size=30,
)
WindowStep = tuple[str, str, int, int | None]


@KINDS
@given(steps=window_steps, key=texts, last_key=texts, time_from=times, time_to=times)
def test_window_store_behaves_as_a_dict_of_what_has_not_expired(
    kind: str,
    steps: list[WindowStep],
    key: str,
    last_key: str,
    time_from: int,
    time_to: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    definition = stores.window(
        "w", serdes.string, serdes.int64, retention_ms=RETENTION, window_size_ms=1
    )
    backend = Backend(kind, tmp_path_factory.mktemp("model"))
    store: Any = backend.build(definition)
    # Stream time is in the model as a window of its own, with a key that is not used.
    states: dict[str, dict[Any, int]] = {name: {} for name in ("now", "saved", "committed")}
    for number, (action, put_key, time, value) in enumerate(steps):
        now = states["now"]
        if action == "put":
            store.put(put_key, value, time)
            latest = now["clock"] = max(now.get("clock", -1), time)
            if time > latest - RETENTION:
                now.pop((put_key, time), None)
                if value is not None:
                    now[put_key, time] = value
        elif action == "mark":
            backend.store.mark()
            states["saved"] = dict(now)
        elif action == "undo":
            backend.store.undo()
            states["now"] = dict(states["saved"])
        else:
            if action == "commit":
                backend.store.commit(number)
                states["committed"] = now
            elif action == "rollback" or kind == "memory":
                backend.store.rollback()
            else:  # memory would forget stream time where its last window is deleted
                store = definition.build(backend.reopen())
            states["now"], states["saved"] = dict(states["committed"]), dict(states["committed"])
        latest = states["now"].get("clock", -1)
        live = {
            window: value
            for window, value in states["now"].items()
            if window != "clock" and window[1] > latest - RETENTION
        }
        assert {(found.key, found.window.start): value for found, value in store.all()} == live
    fetched = [(time, live[at, time]) for at, time in sorted(live) if at == key] if steps else []
    wanted = [pair for pair in fetched if time_from <= pair[0] <= time_to]
    assert list(store.fetch(key, time_from, time_to)) == wanted
    assert list(store.backward_fetch(key, time_from, time_to)) == wanted[::-1]
    assert store.fetch_list(key, time_from, time_to) == wanted
    if steps:
        with store.fetch_range(key, last_key, time_from, time_to) as entries:
            found = {(window.key, window.window.start) for window, _ in entries}
        assert found == {
            (at, time)
            for at, time in live
            if key <= at <= last_key and time_from <= time <= time_to
        }
    backend.close()


versions = st.lists(
    st.tuples(st.sampled_from(["", "k", "kk"]), st.integers(0, 30), st.none() | st.integers(0, 9)),
    max_size=30,
)
HISTORY = 10


@KINDS
@given(puts=versions, commit_after=st.integers(0, 30))
def test_versioned_store_behaves_as_a_dict_of_times(
    kind: str,
    puts: list[tuple[str, int, int | None]],
    commit_after: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    definition = stores.versioned_key_value(
        "v", serdes.string, serdes.int64, history_retention_ms=HISTORY
    )
    backend = Backend(kind, tmp_path_factory.mktemp("model"))
    store: Any = backend.build(definition)
    model: dict[str, dict[int, int | None]] = {"": {}, "k": {}, "kk": {}}
    now = -1
    for number, (key, time, value) in enumerate(puts):
        now = max(now, time)
        returned = store.put(key, value, time)
        if time < now - HISTORY:
            assert returned == PUT_RETURN_CODE_NOT_PUT
        else:
            model[key][time] = value
            assert returned == min((later for later in model[key] if later > time), default=-1)
        if number == commit_after:
            backend.store.commit(1)
    for key, history in model.items():
        line = [(since, None) for since in sorted(history)][-1:]
        spans: list[tuple[int, int | None]] = [*pairwise(sorted(history)), *line]
        for as_of in range(32):
            held = [span for span in spans if span[0] <= as_of and (span[1] or 99) > as_of]
            wanted = None
            for since, until in held:
                value = history[since]
                if value is not None and (until is None or as_of >= now - HISTORY):
                    wanted = (value, since, until)
            assert store.get(key, as_of) == wanted
        for first, last in ((0, 31), (0, 10), (9, 9), (11, 20), (15, 16), (30, 31)):
            found = store.get_serialized(key.encode(), first, last)
            seen = [
                [
                    each
                    for each in found
                    if each.visible_from <= as_of and as_of < (each.visible_until or 99)
                ]
                for as_of in range(first, last + 1)
            ]
            assert [
                [(serdes.int64.deserialize(each.value), each.timestamp) for each in versions]
                for versions in seen
            ] == [
                [] if (version := store.get(key, as_of)) is None else [version[:2]]
                for as_of in range(first, last + 1)
            ]
            assert all(any(each in versions for versions in seen) for each in found)
    backend.close()
