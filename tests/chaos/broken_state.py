"""Local state that is damaged, foreign or short of disk space."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

from tests.chaos import small_disk
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.rig import FIRST, Rig, eventually

NOTICE_TIMEOUT_S = 60.0
FIRST_BYTES = 32


def _stores(rig: Rig, tm_id: int) -> list[Path]:
    """Return the folders of a TaskManager's stores, of which there must be some."""
    stores = sorted(path.parent for path in rig.state_folder(tm_id).glob("*/*/CURRENT"))
    assert stores, f"TaskManager {tm_id} has no stores"
    return stores


def _kill_and_settle(rig: Rig, victim: int) -> None:
    rig.mark()
    rig.kill(victim)
    rig.wait_for_flow()


def _restart_and_look(rig: Rig, victim: int, wiped: str) -> int:
    """Start the TaskManager and return how many of its tasks report that they wiped their state."""
    rig.start_task_manager(victim)
    rig.wait_until_whole()
    return len(re.findall(wiped, _log(rig, victim)))


@fault("full-disk")
def full_disk(rig: Rig) -> None:
    """The disk with the state of a TaskManager is full: nothing is acknowledged and lost."""
    if rig.small_disk is None:
        raise SkippedError("this machine lets us mount no small disk")
    small_disk.fill(rig.small_disk)
    # An open store has reserved space for some minutes; opening a store requires new space.
    os.kill(rig.worker_pid(FIRST), signal.SIGKILL)
    log = rig.task_managers[FIRST].log_file
    found_before = log.read_text(errors="replace").count("No space left")
    eventually(
        lambda: log.read_text(errors="replace").count("No space left") > found_before,
        NOTICE_TIMEOUT_S,
        "nobody complains about the full disk",
    )
    time.sleep(rig.random.uniform(0, 3))
    rig.mark()
    small_disk.free(rig.small_disk)
    seconds = rig.wait_for_flow(90)
    rig.say(f"disk of TaskManager {FIRST} was full; all keys flow {seconds:.1f} s after it is not")


@fault("corrupt-state")
def corrupt_state(rig: Rig) -> None:
    """Bytes of a killed TaskManager's stores are overwritten: found, wiped, restored."""
    victim = rig.some_task_manager()
    _kill_and_settle(rig, victim)
    for store in _stores(rig, victim):
        for file in [*store.glob("*.sst"), *store.glob("*.log"), *store.glob("MANIFEST-*")]:
            _overwrite(rig, file)
    wiped = _restart_and_look(rig, victim, "state wiped|was damaged")
    assert wiped, "nobody noticed"
    rig.say(f"state of TaskManager {victim} overwritten; {wiped} tasks wiped theirs")


@fault("flipped-bit")
def flipped_bit(rig: Rig) -> None:
    """One bit of each valid table of a killed TaskManager's stores flips: found, restored."""
    victim = rig.some_task_manager()
    _kill_and_settle(rig, victim)
    # Opening a store writes what is in its log to a table. Those of former versions stay closed.
    began_s = time.time()
    rig.start_task_manager(victim)
    rig.wait_until_whole()
    _kill_and_settle(rig, victim)
    tables = [
        file
        for store in _stores(rig, victim)
        if (store / "LOG").stat().st_mtime >= began_s
        for file in store.glob("*.sst")
    ]
    assert tables, f"TaskManager {victim} has no tables"
    for file in tables:
        content = bytearray(file.read_bytes())
        # The block of the identity and the offset comes first, and is read whenever a store opens.
        bit = rig.random.randrange(8 * FIRST_BYTES)
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
    _restart_and_look(rig, victim, "was damaged")
    log, stores = _log(rig, victim), {file.parent for file in tables}
    opened = {
        store for store in stores if re.search(rf"(runs|follows) .*{store.parent.name}\b", log)
    }
    for store in opened:
        path = re.escape(str(store))
        assert re.search(rf"state wiped: .*{path}|{path} was damaged", log), (
            f"a bit flipped in {store}, and nobody noticed"
        )
    rig.say(
        f"a bit flipped in {len(tables)} tables of TaskManager {victim}; {len(opened)} of "
        f"{len(stores)} stores were opened, and wiped"
    )


@fault("truncated-state")
def truncated_state(rig: Rig) -> None:
    """Files of a killed TaskManager's stores are cut short: restored from the state topic."""
    victim = rig.some_task_manager()
    _kill_and_settle(rig, victim)
    for store in _stores(rig, victim):
        for file in store.iterdir():
            if file.is_file() and rig.random.random() < 0.5:
                size = file.stat().st_size
                with file.open("r+b") as stream:
                    stream.truncate(rig.random.randint(0, size))
    wiped = _restart_and_look(rig, victim, "state wiped|was damaged")
    rig.say(f"state of TaskManager {victim} cut short; {wiped} tasks wiped theirs")


@fault("foreign-state")
def foreign_state(rig: Rig) -> None:
    """A killed TaskManager's stores get another one's content: found, wiped, restored."""
    victim = rig.some_task_manager()
    other = rig.random.choice([tm_id for tm_id in rig.task_managers if tm_id != victim])
    _kill_and_settle(rig, victim)
    rig.kill(other)
    others = _stores(rig, other)
    stores = _stores(rig, victim)
    for store in stores:
        shutil.rmtree(store)
        of_others = [path for path in others if path.parent.name != store.parent.name]
        shutil.copytree(rig.random.choice(of_others), store)
    rig.start_task_manager(other)
    _restart_and_look(rig, victim, "state wiped")
    lines = _log(rig, victim).splitlines()
    running = [
        store
        for store in stores
        if any(
            re.search(rf"(task runs|standby follows) .*task={store.parent.name}\b", line)
            for line in lines
        )
    ]
    assert running, "none of the stores was opened"
    for store in running:
        # The reason may also be another kind of store, or a file that RocksDB cannot open.
        wiped = rf"state wiped: .*{re.escape(str(store))}(/|\s|$)"
        assert any(re.search(wiped, line) for line in lines), (
            f"{store} was used though it is another's"
        )
    rig.say(
        f"{len(stores)} stores of TaskManager {victim} got content of TaskManager {other}; "
        f"{len(running)} were opened, and wiped"
    )


def _log(rig: Rig, tm_id: int) -> str:
    return rig.task_managers[tm_id].log_file.read_text(errors="replace")


def _overwrite(rig: Rig, file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as stream:
        for _ in range(4):
            stream.seek(rig.random.randrange(max(size, 1)))
            stream.write(rig.random.randbytes(16))
