"""What operators do under load, while commands and JobManagers are killed in the middle of it."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.bulk import read_committed
from tests.chaos.broken_managers import is_all_of, kill_leader
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.ledger import BASE, audit_of, pair_of, value_of
from tests.chaos.load import KEYS
from tests.chaos.pipelines import START, Kind
from tests.chaos.rig import PARTITIONS, Rig, eventually
from tests.engine import Engine, all_run

COMMAND_TIMEOUT_S = 180.0
FLOW_TIMEOUT_S = 60.0
GATED = 2_000
"""How many records are rejected; each gives two dead letters, of a count and of a sum."""
READERS_OF_SOURCE = {
    *("Splitter", "Auditor", "Dsl-Numbered", "Lanes-Numbered"),
    *("Rows", "Parquet", "Iceberg"),
}
"""The processors whose tasks are those of the source or of another topic whose partitions stay."""
RENAMED = START.replace("id: Counter,", "id: Tally, was: Counter,").replace("Counter]", "Tally]")
BACK = START.replace("id: Counter,", "id: Counter, was: Tally,")


_BEHIND = "Wait until these tasks have caught up"
"""What an operator is told who wants windows of tasks together that are far apart in time."""


def command(rig: Rig, name: str, *arguments: str) -> str:
    """Run a `pipeline` command to its end; return what it prints."""
    return run(rig, command_line(rig, name, *arguments))


def command_line(rig: Rig, name: str, *arguments: str) -> list[str]:
    """Return the words of a `pipeline` command on config.yaml."""
    files = [str(rig.engine.config_file)]
    return [str(command_path("pipeline")), *name.split(), *files, *arguments]


def kill_in_the_middle(rig: Rig, words: list[str], most_s: float) -> None:
    """Start a command, and kill it and the JobManager while it works; start a JobManager again."""
    command = subprocess.Popen(
        words, cwd=rig.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(rig.random.uniform(1, most_s))
    victims = rig.random.sample(("the command", "the JobManager"), 2)
    for victim in victims:
        if victim == "the command":
            command.kill()
            command.wait()
        else:
            kill_leader(rig)
        time.sleep(rig.random.uniform(0, 2))
    rig.job_manager = rig.start_job_manager(with_pipeline=False)


def run(rig: Rig, words: list[str], *may_say: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command to its end; return what it prints.

    It may fail if it prints something of `may_say`, such as that all is done already.
    """
    done = subprocess.run(
        words,
        cwd=rig.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    is_done = done.returncode == 0 or any(each in done.stdout for each in may_say)
    assert is_done, f"{words[1:3]} ended with {done.returncode}: {done.stdout}"
    return done.stdout


@fault("drain")
def drain(rig: Rig) -> None:
    """The pipeline is drained and resumed under load, and the JobManager is killed meanwhile."""
    kill_in_the_middle(rig, command_line(rig, "drain"), 3)
    run(rig, command_line(rig, "drain"))
    rig.engine.wait_until(lambda status: all(info.is_held for info in status.tasks))
    rig.mark()
    kill_in_the_middle(rig, command_line(rig, "resume"), 2)
    run(rig, command_line(rig, "resume"))
    seconds = rig.wait_for_flow()
    rig.say(f"drained and resumed; all keys flow after {seconds:.1f} s")


@fault("savepoint")
def savepoint(rig: Rig) -> None:
    """Savepoints are made under load, and commands and JobManagers are killed meanwhile."""
    folder = new_folder(rig, "savepoint")
    words = command_line(rig, "savepoint create", str(folder))
    kill_in_the_middle(rig, words, 5)
    run(rig, words, f"{folder} exists already")
    rig.mark()
    run(rig, command_line(rig, "resume"))
    seconds = rig.wait_for_flow()
    rig.say(f"a savepoint was made; all keys flow after {seconds:.1f} s")


@fault("restore")
def restore(rig: Rig) -> None:
    """A savepoint is restored, while commands and JobManagers are killed; then records flow again.

    Nothing is written between the savepoint and the end of the restore, or results would come
    twice.
    """
    folder = new_folder(rig, "restored")
    assert rig.settle().is_clean
    run(rig, command_line(rig, "savepoint create", str(folder)))
    words = command_line(rig, "savepoint restore", str(folder), "--yes")
    kill_in_the_middle(rig, words, 8)
    run(rig, words)
    rig.load.resume()
    rig.mark()
    seconds = rig.wait_for_flow()
    rig.say(f"a savepoint was restored; all keys flow after {seconds:.1f} s")


@fault("fork")
def fork(rig: Rig) -> None:
    """A savepoint that is made under load becomes a second job; commands are killed meanwhile.

    The second job goes on with the state of the first one. As nothing was on its way between
    processors, all of them go on at one and the same record of each key.
    """
    if rig.times is not None:
        raise SkippedError("the second job does not have the results that windows began with")
    if rig.tables is not None:
        raise SkippedError("the second job has tables of its own, which lack the rows so far")
    folder = new_folder(rig, "forked")
    job_folder = folder.with_name(f"{folder.name}_job")
    job_folder.mkdir()
    run(rig, command_line(rig, "savepoint create", str(folder), "--drain"))
    with rig.another_job(job_folder) as job:
        words = [str(command_path("pipeline")), "savepoint", "fork", str(job.config_file)]
        words += [str(folder), "--yes"]
        for _ in range(2):
            kill_command(rig, words, 4)
        run(rig, words)
        job.start_job_manager(with_pipeline=False)
        job.start_task_manager(0)
        job.wait_until(all_run([0]))
        run(rig, command_line(rig, "resume"))
        rig.mark()
        seconds = rig.wait_for_flow()
        assert rig.settle().is_clean
        eventually(lambda: _has_all(rig, job), FLOW_TIMEOUT_S, "the second job is behind", 0.5)
    rig.say(
        f"forked; all keys of the first job flow after {seconds:.1f} s, the second one is right"
    )


def kill_command(rig: Rig, words: list[str], most_s: float) -> None:
    """Start a command, and kill it while it works."""
    command = subprocess.Popen(
        words, cwd=rig.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(rig.random.uniform(0.5, most_s))
    command.kill()
    command.wait()


def _has_all(rig: Rig, job: Engine) -> bool:
    """Whether a job that began with a savepoint has all results since, each once and in order."""
    rows = [
        (key, int(value or b""))
        for key, value in job.read(job.config.sink_topic)
        if key is not None and key in KEYS
    ]
    first: dict[str, dict[bytes, int]] = {"count": {}, "audit": {}}
    for key, number in rows:
        if number < BASE:
            first["count"].setdefault(key, number)
        elif audit_of(0) < number < pair_of(0):
            first["audit"].setdefault(key, number - audit_of(0))
    if any(len(numbers) < len(KEYS) for numbers in first.values()):
        return False
    assert all(number > 1 for number in first["count"].values()), f"it began with nothing: {first}"
    ledger = rig.new_ledger()
    ledger.begin_after(
        *({key: number - 1 for key, number in numbers.items()} for numbers in first.values())
    )
    for key, number in rows:
        ledger.note(key, b"%d" % number)
    if not ledger.is_complete(rig.load.numbers):
        return False
    assert (found := ledger.tally(rig.load.numbers)).is_clean, found
    return True


@fault("rescale")
def rescale(rig: Rig) -> None:
    """The job gets more tasks under load, and fewer; commands and JobManagers are killed meanwhile.

    Each key's state, and what waits for it, is to be in the task that gets the key.
    """
    if rig.kind is Kind.QUERIES:
        raise SkippedError("a query looks up tables of sources, whose partitions stay")
    for parallelism in (PARTITIONS + 2, PARTITIONS):
        folder = new_folder(rig, "rescaled")
        options = ("--parallelism", str(parallelism), "--savepoint", str(folder), "--yes")
        words = command_line(rig, "rescale", *options, "--by-key", "Pairer")
        kill_in_the_middle(rig, words, 10)
        already = f"the parallelism of this job is {parallelism} already"
        while _BEHIND in run(rig, words, already, _BEHIND):
            rig.say("rescale is refused: tasks are behind others")
            rig.wait_for_flow()
        rig.mark()
        ids = {node.id for node in rig.engine.pipeline.processors}
        outer = ids & READERS_OF_SOURCE
        tasks = len(outer) * PARTITIONS + len(ids - outer) * parallelism
        rig.engine.wait_until(partial(_runs_with, tasks))
        seconds = rig.wait_for_flow()
        rig.say(f"parallelism is {parallelism}; all keys flow after {seconds:.1f} s")


def _runs_with(tasks: int, status: ClusterStatus) -> bool:
    return status.all_run and len(status.tasks) == tasks


@fault("redrive")
def redrive(rig: Rig) -> None:
    """Dead letters are sent back under load; commands and JobManagers are killed meanwhile.

    Each letter is to give one result, whose number of times the ledger counts.
    """
    rig.gate.unlink(missing_ok=True)
    mark = rig.random.randrange(10**12)
    keys = [b"gated-%d-%d" % (mark, number) for number in range(GATED)]
    config = rig.engine.config
    rig.load.add((key, b"%d" % value_of(1)) for key in keys)
    letters = rig.engine.names.dead_letter("Pairer")

    def are_letters() -> bool:
        batches = read_committed(config, letters, config.parallelism)
        found = Counter(key for batch in batches for key in batch.keys if key is not None)
        return all(found[key] == 2 for key in keys)

    eventually(are_letters, FLOW_TIMEOUT_S, f"{letters} does not get the gated records", 0.5)
    assert not any(rig.ledger.others[key, b"%d" % pair_of(1)] for key in keys)
    rig.gate.touch()
    rig.mark()
    words = command_line(rig, "dlq redrive", "--processor", "Pairer", "--reason", "gate", "--yes")
    for _ in range(2):
        kill_in_the_middle(rig, words, 4)
    run(rig, words)

    def are_results() -> bool:
        return all(rig.ledger.others[key, b"%d" % pair_of(1)] for key in keys)

    eventually(are_results, FLOW_TIMEOUT_S, "letters that were sent back have no results", 0.1)
    seconds = rig.wait_for_flow()
    rig.say(f"{2 * GATED} letters were sent back; all keys flow after {seconds:.1f} s")


@fault("rename")
def rename(rig: Rig) -> None:
    """A processor with state is renamed under load, and back; commands and JobManagers are killed.

    Its state, its offsets and what waits for it are to be taken along.
    """
    for name, start in (("Tally", RENAMED), ("Counter", BACK)):
        rig.engine.write_pipeline(rig.pipeline(start))
        ids = {node.id for node in rig.engine.pipeline.processors}
        words = command_line(rig, "apply", str(rig.folder / "pipeline.yaml"), "--yes")
        kill_in_the_middle(rig, words, 8)
        run(rig, words)
        rig.mark()
        rig.engine.wait_until(partial(is_all_of, ids))
        seconds = rig.wait_for_flow()
        rig.say(f"renamed to {name}; all keys flow after {seconds:.1f} s")
        (made,) = rig.folder.glob("savepoints/rename-*")
        made.rename(new_folder(rig, "renamed"))
    rig.engine.write_pipeline(rig.pipeline(START))


def new_folder(rig: Rig, name: str) -> Path:
    """Return a folder that does not exist yet."""
    number = len(list(rig.folder.glob(f"{name}_*")))
    return rig.folder / f"{name}_{number}"
