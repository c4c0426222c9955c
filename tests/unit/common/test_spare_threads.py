"""Threads for calls that may never return: which are used again, and which are left behind."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from kafka_pipeline.common.process import spare_threads
from kafka_pipeline.common.process.spare_threads import SpareThreads

_TIMEOUT_S = 10


def test_calls_one_after_another_use_one_thread() -> None:
    threads = SpareThreads("spare")
    made_by = {threads.submit(threading.get_ident).result(_TIMEOUT_S) for _ in range(100)}
    assert len(made_by) == 1


def test_a_call_that_hangs_delays_no_other_and_its_thread_is_used_again_if_it_returns() -> None:
    threads = SpareThreads("spare")
    may_return = threading.Event()

    def hang() -> int:
        assert may_return.wait(_TIMEOUT_S)
        return threading.get_ident()

    hanging = threads.submit(hang)
    other = threads.submit(threading.get_ident).result(_TIMEOUT_S)
    assert not hanging.done()
    may_return.set()
    late = hanging.result(_TIMEOUT_S)
    assert late != other
    assert threads.submit(threading.get_ident).result(_TIMEOUT_S) == late


def test_what_a_call_raises_reaches_its_caller_and_the_thread_goes_on() -> None:
    threads = SpareThreads("spare")

    def fail() -> None:
        raise ValueError("a reason")

    with pytest.raises(ValueError, match="a reason"):
        threads.submit(fail).result(_TIMEOUT_S)
    assert threads.submit(lambda: 7).result(_TIMEOUT_S) == 7


def test_a_thread_without_calls_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_threads, "IDLE_S", 0.01)
    threads = SpareThreads("spare")
    for _ in range(2):
        thread = threads.submit(threading.current_thread).result(_TIMEOUT_S)
        thread.join(_TIMEOUT_S)
        assert not thread.is_alive()


def test_nothing_of_a_call_is_kept_once_it_has_returned() -> None:
    class Client:
        def work(self) -> None:
            pass

    threads, client = SpareThreads("spare"), Client()
    was_freed = threading.Event()
    weakref.finalize(client, was_freed.set)
    threads.submit(client.work).result(_TIMEOUT_S)
    del client
    # The thread may still be on its way out of the call.
    assert was_freed.wait(_TIMEOUT_S)
    gc.collect()
