"""Changes of a pipeline while records flow, also such as do not come up: nothing is lost."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from kafka_pipeline.common.kafka.data import PartitionReader
from tests.engine import START_TIMEOUT_S, Engine, all_run, engine, run_on_two, signal_session
from tests.in_process import run_pipeline
from tests.steady_load import KEYS, Writer, check_counts, counts_by_key, wait_for_counts

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CHAIN = """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
# Another way from Forwarder to Counter, with one processor more.
REPLACED = """
- {id: Forwarder, type: forward, to: [Summer]}
- {id: Summer, type: sum, to: [Relay]}
- {id: Relay, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
# Values between the processors are text, or JSON; each reader fails at the other one.
FORMED = """
- {id: Writes, type: "tests.user_code.reforming:Writes", config: {form: FORM},
   serdes: {value: integer, out_value: FORM}, to: [Passes]}
- {id: Passes, type: forward, to: [Reads]}
- {id: Reads, type: "tests.user_code.reforming:Reads", config: {form: FORM},
   serdes: {value: FORM, out_value: integer}, to: [sink]}
"""
BACKLOG = 20_000
# Its arcs are other ones, and the processor between them cannot start.
WRONG = """
- {id: Forwarder, type: forward, to: [Prices]}
- {id: Prices, type: "tests.user_code.trials:NeverStarts", to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
OTHER = "- {id: Raw, type: forward, to: [sink]}\n"
REASON = "no table of prices"
SETTINGS = {
    "heartbeat_interval_ms": 500,
    "modules": "[tests.user_code.trials, tests.user_code.reforming]",
    "python_path": f"[{ROOT}]",
}

_job_numbers = itertools.count()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A chain of three processors, for two TaskManagers."""
    name = f"changes_{os.getpid()}_{next(_job_numbers)}"
    with engine(tmp_path, bootstrap_servers, name, CHAIN, **SETTINGS) as made:
        yield made


@dataclass
class Changing:
    """A job that runs on TaskManager 0, and how many rounds of records were written to it."""

    job: Engine
    rounds: int = 0


@pytest.fixture(scope="module")
def changing(
    tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str
) -> Iterator[Changing]:
    """A job that tests change one after the other; to start one takes longer than any change."""
    folder = tmp_path_factory.mktemp("changing")
    settings = SETTINGS | {"tm_number": 1}
    with engine(folder, bootstrap_servers, f"changing_{os.getpid()}", CHAIN, **settings) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        yield Changing(made)


def wait_for(daemon: Daemon, event: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while event not in daemon.log_file.read_text():
        assert time.monotonic() < deadline_s, f"{event!r} is not logged"
        time.sleep(0.01)


def taken_in(job: Engine, processor: str) -> int:
    """Return the offsets that Forwarder or Adder has committed; the source has no markers."""
    arc = job.names.arc("Forwarder", "Adder")
    topic = job.config.source_topic if processor == "Forwarder" else arc
    partitions = [(topic, number) for number in range(job.config.parallelism)]
    group = job.names.consumer_group(processor)
    with closing(PartitionReader(job.config, group)) as reader:
        committed = reader.committed(partitions, START_TIMEOUT_S)
    return sum(at.offset for at in committed.values())


def begin(job: Engine, *options: str) -> subprocess.Popen[str]:
    """Begin to apply pipeline.yaml."""
    files = [str(job.config_file), str(job.config_file.with_name("pipeline.yaml"))]
    words = [str(command_path("pipeline")), "apply", *files, "--yes", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def versions(job: Engine) -> dict[int, tuple[str, str]]:
    listed = json.loads(job.run_command("versions", "--json"))
    return {each["version"]: (each["state"], each["reason"]) for each in listed}


def check_that_it_was_rolled_back(job: Engine, good: int = 1) -> None:
    """Assert that the version after the good one was rolled back, and that the job says so."""
    status = job.wait_until(lambda status: status.all_run and bool(status.job_manager.findings))
    assert {info.task.processor for info in status.tasks} == {"Forwarder", "Adder", "Counter"}
    (finding,) = status.job_manager.findings
    assert f"version {good + 1} was rolled back to version {good}: Prices_" in finding
    assert REASON in finding
    found = versions(job)
    assert [*found] == [*range(1, good + 3)]
    assert [state for state, _ in found.values()][-3:] == ["FORMER", "ROLLED BACK", "CURRENT"]
    assert REASON in found[good + 1][1]
    assert found[good + 2][1] == f"instead of version {good + 1}"


def states(job: Engine) -> dict[int, str]:
    return {number: state for number, (state, _) in versions(job).items()}


def test_processors_are_replaced_and_brought_back_while_records_flow(
    changing: Changing,
) -> None:
    job = changing.job
    with Writer(job, rounds=changing.rounds) as writer:
        writer.go_on(80)
        job.write_pipeline(REPLACED)
        shown = job.run_command("plan", with_pipeline=True)
        assert '"Adder" is removed' in shown
        said = job.run_command("apply", "--yes", with_pipeline=True)
        assert "done: version 2, 8 of 8 tasks run" in said
        writer.go_on(80)
        said = job.run_command("rollback", "--yes")
        assert "done: version 3, 6 of 6 tasks run" in said
        writer.go_on(40)
    said = job.run_command("status", "--wait", "--for", "drained", "--timeout", "60")
    assert "the job is drained" in said
    changing.rounds = writer.rounds
    check_counts(job, writer.rounds)
    assert states(job) == {1: "FORMER", 2: "FORMER", 3: "CURRENT"}
    left = [job.names.arc("Forwarder", "Summer"), job.names.arc("Summer", "Relay")]
    left.append(job.names.arc("Relay", "Counter"))
    listed = json.loads(job.run_command("topics", "--orphaned", "--delete", "--yes", "--json"))
    assert [each["topic"] for each in listed] == sorted(left)
    assert json.loads(job.run_command("topics", "--orphaned", "--json")) == []


@pytest.mark.long
def test_version_whose_class_cannot_start_is_rolled_back_and_one_that_starts_is_not(
    changing: Changing,
) -> None:
    job = changing.job
    good = max(states(job))
    with Writer(job, rounds=changing.rounds) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        command = begin(job, "--confirm-within", "10")
        said = command.communicate(timeout=START_TIMEOUT_S)[0]
        assert command.returncode == 1, said
        assert f"version {good + 1} was rolled back to version {good}: Prices_" in said
        assert REASON in said
        check_that_it_was_rolled_back(job, good)
        writer.go_on(40)
        job.write_pipeline(CHAIN.replace("type: sum", "type: forward"))
        said = job.run_command("apply", "--yes", with_pipeline=True)
        assert f"version {good + 3} is on trial, 6 of 6 tasks run" in said
        assert f"done: version {good + 3}, 6 of 6 tasks run" in said
        writer.go_on(20)
    changing.rounds = writer.rounds
    check_counts(job, writer.rounds)
    assert [state for state, _ in versions(job).values()][-1] == "CURRENT"


# The last test of this job, whose counts go back.
def test_job_goes_on_after_a_savepoint_and_goes_back_to_it(
    changing: Changing, tmp_path: Path
) -> None:
    job = changing.job
    current = max(states(job))
    folder = tmp_path / "saved"
    with Writer(job, rounds=changing.rounds) as writer:
        writer.go_on(80)
        said = job.run_command("savepoint create", str(folder))
        assert "records of state" in said
        writer.go_on(80)
    rounds = writer.rounds
    check_counts(job, rounds)
    (listed,) = json.loads(run_pipeline("savepoint", "list", str(tmp_path), "--json"))
    assert listed["job"] == job.config.job_name

    said = job.run_command("savepoint restore", str(folder), "--yes")
    assert f"done: version {current} is the pipeline of the job" in said
    # What came after the savepoint is counted again, from the state of the savepoint on.
    assert len(counts_by_key(job)) == KEYS
    job.wait_until(all_run([0]))
    wait_for_counts(job, rounds, rounds)


@pytest.mark.long
def test_change_goes_on_after_its_job_manager_was_killed(job: Engine) -> None:
    job_manager = run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(REPLACED)
        job.run_command("apply", "--yes", "--no-wait", with_pipeline=True)
        wait_for(job_manager, "arcs will be drained")
        job_manager.kill()
        assert states(job) == {1: "CURRENT", 2: "COMING"}
        job.start_job_manager()
        job.wait_until(lambda status: all_run([0, 1])(status) and len(status.tasks) == 8)
        writer.go_on(40)
    check_counts(job, writer.rounds)
    assert states(job) in ({1: "FORMER", 2: state} for state in ("ON TRIAL", "CURRENT"))


@pytest.mark.long
def test_job_manager_with_the_wrong_file_leads_what_runs(job: Engine) -> None:
    """Without a JobManager, the job would not survive the loss of a TaskManager."""
    first = run_on_two(job)
    before = job.wait_until(all_run([0, 1]))
    first.kill()
    job.write_pipeline(OTHER)
    second = job.start_job_manager()
    after = job.wait_until(lambda status: leads_anew(status, before) and all_run([0, 1])(status))
    log = second.log_file.read_text()
    assert "the file is not used: the job keeps running its current version" in log
    assert '"Counter" is removed, and its state in' in log
    assert [info.task for info in after.tasks] == [info.task for info in before.tasks]
    assert states(job) == {1: "CURRENT"}


def leads_anew(status: ClusterStatus, before: ClusterStatus) -> bool:
    """Return whether another JobManager leads."""
    found, former = status.job_manager, before.job_manager
    return found.presence is Presence.UP and found.epoch not in (None, former.epoch)


@pytest.mark.long
def test_processors_are_paused_resumed_and_restarted_while_records_flow(job: Engine) -> None:
    job_manager = run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        assert "4 of 4 tasks run, 2 held" in job.run_command("pause", "Adder")
        taken = taken_in(job, "Adder")
        job_manager.kill()
        job.start_job_manager()
        job.wait_until(
            lambda status: status.job_manager.epoch not in (None, 0) and not status.without_owner
        )
        writer.go_on(40)
        assert taken_in(job, "Adder") == taken < taken_in(job, "Forwarder")
        said = job.run_command("resume", "Adder")
        assert "done: version 1, 6 of 6 tasks run" in said
        said = job.run_command("restart", "Counter")
        assert "done: version 1, 6 of 6 tasks run" in said
        assert "5 of 5 tasks run, 1 held" in job.run_command("pause", "Counter_1")
        said = job.run_command("restart", "Counter_0")
        assert "done: version 1, 5 of 5 tasks run, 1 held" in said
        assert "done: version 1, 6 of 6 tasks run" in job.run_command("resume", "Counter_1")
    check_counts(job, writer.rounds)


@pytest.mark.long
def test_drained_pipeline_has_nothing_in_flight_and_goes_on_when_it_is_resumed(job: Engine) -> None:
    run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        assert "done: version 1, 6 of 6 tasks rest" in job.run_command("drain")
        results = len(job.read(job.config.sink_topic))
        assert taken_in(job, "Forwarder") == results > 0
        job.write_pipeline(REPLACED)
        said = job.run_command("apply", "--yes", with_pipeline=True)
        assert "done: version 2, 8 of 8 tasks rest" in said
        assert taken_in(job, "Forwarder") == results
        assert "done: version 2, 8 of 8 tasks run" in job.run_command("resume")
    check_counts(job, writer.rounds)


@pytest.mark.long
def test_backlog_of_another_serde_is_drained_first_although_a_task_manager_is_killed(
    job: Engine,
) -> None:
    """Nine of ten records have one key, and go to one partition."""
    job.write_pipeline(FORMED.replace("FORM", "string"))
    job_manager = job.start_job_manager()
    _, second = (job.start_task_manager(tm_id) for tm_id in (0, 1))
    job.wait_until(all_run([0, 1]))
    rows = [(b"k%d" % (n % 20 if n % 10 == 0 else 0), b"%d" % n) for n in range(2 * BACKLOG)]
    job.run_command("pause", "Reads")
    job.write(rows[:BACKLOG])
    job.write_pipeline(FORMED.replace("FORM", "json"))
    shown = job.run_command("plan", with_pipeline=True)
    assert "its values were string, and now are json" in shown
    job.run_command("apply", "--no-wait", with_pipeline=True)
    wait_for(job_manager, "arcs will be drained")
    job.write(rows[BACKLOG:])
    job.run_command("resume", "Reads")
    wait_for(job_manager, "an arc is being drained")
    signal_session(second, signal.SIGKILL)
    job.wait_until_done({job.config.sink_topic: len(rows)})
    found = job.read(job.config.sink_topic)
    assert states(job) in ({1: "FORMER", 2: state} for state in ("ON TRIAL", "CURRENT"))
    for key in {key for key, _ in rows}:
        assert [row for row in found if row[0] == key] == [row for row in rows if row[0] == key]


@pytest.mark.long
def test_it_is_rolled_back_although_the_command_was_killed(job: Engine) -> None:
    job_manager = run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        with begin(job, "--confirm-within", "10") as command:
            wait_for(job_manager, "arcs will be drained")
            command.kill()
        check_that_it_was_rolled_back(job)
        writer.go_on(20)
    check_counts(job, writer.rounds)


@pytest.mark.long
def test_it_is_rolled_back_although_the_job_manager_was_killed(job: Engine) -> None:
    job_manager = run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        with begin(job, "--no-wait", "--confirm-within", "10"):
            wait_for(job_manager, "the version is on trial")
            job_manager.kill()
        job.start_job_manager(with_pipeline=False)
        check_that_it_was_rolled_back(job)
        writer.go_on(20)
    check_counts(job, writer.rounds)
