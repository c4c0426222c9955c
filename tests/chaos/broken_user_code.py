"""User code that ends or holds its thread: it is to harm nothing but its own records."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.protocol.status import TaskState
from tests.chaos.broken_operations import command
from tests.chaos.broken_records import expect_dead_letter, some_key, write
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.control_group import NoControlGroupError, limited, memory
from tests.chaos.pipelines import Kind
from tests.chaos.rig import Rig, require_unaffected

ISOLATED_S = 40.0
"""How long two results of a record may take to be set aside, one after the other."""
OUT_OF_MEMORY_S = 15.0
"""How long the kernel may take to find that memory cannot be freed; each result has it twice."""
SMALL_MEMORY_BYTES = 1_500_000_000
_NUMBER = 7
_PAIR = (b"%d" % (_NUMBER + 1), b"1")
"""What the pairer gets for a record with that number: its sum and its count."""


def _is_rejected(rig: Rig, kind: str, why: bytes) -> None:
    """Write a record that the pairer must reject, as its code raises something unusual."""
    before, key = rig.now(), some_key(rig, kind)
    write(rig, key, b"%d" % _NUMBER)
    rig.mark()
    _expect(rig, "Pairer", key, _PAIR, why)
    seconds = rig.wait_for_flow()
    require_unaffected(before, rig.now())
    rig.say(f"{why.decode()} put its records aside; all keys flow after {seconds:.1f} s")


def _expect(rig: Rig, processor: str, key: bytes, values: Sequence[bytes], why: bytes) -> None:
    for value in values:
        expect_dead_letter(rig, processor, (key, value), [why])


@fault("user-panic")
def user_panic(rig: Rig) -> None:
    """User code raises what is no `Exception`, as extensions in Rust do: its record is rejected."""
    _is_rejected(rig, "panic", b"Panic")


@fault("user-exit")
def user_exit(rig: Rig) -> None:
    """User code calls `sys.exit`: its record is rejected, and nothing ends."""
    _is_rejected(rig, "exit", b"SystemExit")


def _is_isolated(rig: Rig, kind: str, why: bytes, within_s: float = ISOLATED_S) -> None:
    """Write a record that ends the worker process of the pairer: it is set aside, siblings go on.

    The record gives the pairer two inputs, its sum and its count, and each ends the process. All
    tasks of the worker start again once, for the first of them.
    """
    before, key = rig.now(), some_key(rig, kind)
    began_s = time.monotonic()
    write(rig, key, b"%d" % _NUMBER)
    rig.mark()
    _expect(rig, "Pairer", key, _PAIR, why)
    isolated_s = time.monotonic() - began_s
    seconds = rig.wait_for_flow()
    assert isolated_s <= within_s, f"put aside after {isolated_s:.1f} s"
    again = {
        str(task.task): task.status.count("restarts") - then.status.count("restarts")
        for then, task in zip(before.tasks, rig.now().tasks, strict=True)
        if then.status and task.status and task.task.processor != "Pairer"
    }
    assert max(again.values()) <= 1, f"siblings started more than once again: {again}"
    rig.say(f"put aside after {isolated_s:.1f} s; all keys flow after {seconds:.1f} s")


@fault("native-crash")
def native_crash(rig: Rig) -> None:
    """User code ends its process by SIGSEGV: its record is put aside, siblings start once again."""
    _is_isolated(rig, "crash", b"ended the process: SIGSEGV in native code")


@fault("exit")
def exit_(rig: Rig) -> None:
    """User code ends its process by `os._exit`: its record is put aside like that of a crash."""
    _is_isolated(rig, "end", b"ended the process: exit code 3")


@fault("memory-bomb")
def memory_bomb(rig: Rig) -> None:
    """User code takes memory until the kernel ends its process: put aside like a crash."""
    try:
        with limited(rig.python_of_spark, memory(SMALL_MEMORY_BYTES)):
            why = b"ended the process: the kernel ended it, as memory ran out"
            _is_isolated(rig, "bomb", why, ISOLATED_S + 4 * OUT_OF_MEMORY_S)
    except NoControlGroupError as error:
        raise SkippedError(str(error)) from error


@fault("user-cancel")
def user_cancel(rig: Rig) -> None:
    """A coroutine of an `AsyncProcessor` is cancelled by its own code: its record is rejected."""
    if rig.kind is not Kind.SLOW:
        raise SkippedError("only --kind slow has an AsyncProcessor")
    before, key, why = rig.now(), some_key(rig, "cancel"), b"CancelledError"
    write(rig, key, b"%d" % _NUMBER)
    rig.mark()
    _expect(rig, "Auditor", key, [b"%d" % _NUMBER], why)
    _expect(rig, "Pairer", key, _PAIR, why)
    seconds = rig.wait_for_flow()
    require_unaffected(before, rig.now())
    rig.say(f"a cancelled call put its record aside; all keys flow after {seconds:.1f} s")


@fault("user-hang")
def user_hang(rig: Rig) -> None:
    """A call of user code never returns: its task FAILS, and runs again after a restart."""
    key = some_key(rig, "hang")
    rig.may_hang.touch()
    write(rig, key, b"%d" % _NUMBER)

    def has_failed(status: ClusterStatus) -> bool:
        return any(t.status and t.status.state is TaskState.FAILED for t in status.tasks)

    status = rig.engine.wait_until(has_failed)
    (failed,) = (t for t in status.tasks if t.status and t.status.state is TaskState.FAILED)
    assert failed.owner is not None
    assert failed.status is not None
    assert "wild.py" in failed.status.reason, failed.status.reason
    worker = rig.worker_pid(failed.owner)
    rig.may_hang.unlink()
    rig.mark()
    command(rig, "restart", failed.task.processor)
    seconds = rig.wait_for_flow()
    assert rig.worker_pid(failed.owner) != worker, "the call still keeps a core busy"
    rig.say(f"{failed.task} hung and was started again; all keys flow after {seconds:.1f} s")
