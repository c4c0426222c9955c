"""New versions under load, while commands and JobManagers are killed in the middle of it.

One that fails, one that computes state again, and one that is only rehearsed.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.desired_state import PipelineVersion
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.operations.rehearsal.shadow import shadow_name
from tests.chaos.broken_managers import is_all_of
from tests.chaos.broken_operations import (
    command_line,
    kill_command,
    kill_in_the_middle,
    new_folder,
    run,
)
from tests.chaos.catalog import SkippedError, fault
from tests.chaos.pipelines import START, Kind
from tests.chaos.rig import Rig

CONFIRM_WITHIN_S = 5
_ADDER, _RAISES = "{id: Adder, type: sum,", "type: 'tests.user_code.trials:NeverStarts',"
FAILING: Mapping[str, Sequence[tuple[str, str]]] = {
    "Adder raises": [(_ADDER, f"{{id: Adder, {_RAISES}")],
    # What the Adder added would be wrong: it is to wait until the Pairer has come up.
    "Pairer raises in one partition": [
        ("tests.user_code.pairing:Pairing", "tests.user_code.trials:StartsInPart"),
        (_ADDER, "{id: Adder, type: sum, config: {constant: 5},"),
    ],
    "Prices raises, in the place of Adder": [
        (_ADDER, f"{{id: Prices, {_RAISES}"),
        ("[Adder, Counter]", "[Prices, Counter]"),
    ],
}
"""Versions that do not come up: what is replaced in the pipeline, by what."""
RECOUNTED = START.replace(
    "{id: Counter, type: count,",
    "{id: Counter, type: 'tests.user_code.recounting:Recounting', "
    "stores: [{name: Recounted, value: json}],",
)
REBUILD_S = 25.0
"""How long a rebuild may take before it is killed."""
REBUILD_TIMEOUT_S = 600.0
REHEARSED = ("--for", "10 s", "--json")
REHEARSAL_S = 60.0
"""How long a rehearsal may take before it is killed."""
REHEARSAL_TIMEOUT_S = 600.0
WRONG = ("different", "only_old", "only_new")
"""What no result of the same version may be."""
_REQUEST_TIMEOUT_S = 30
_ROLLED_BACK = "was rolled back to version"


@fault("failing-version")
def failing_version(rig: Rig) -> None:
    """A version whose code raises in `init` is applied: rolled back, whoever is killed meanwhile.

    What its other tasks have processed counts, and nothing of it is processed again.
    """
    before = _current(rig)
    what = rig.random.choice([*FAILING])
    text = rig.pipeline(START)
    for old, new in FAILING[what]:
        assert old in text, f"the pipeline has no {old}"
        text = text.replace(old, new)
    file = rig.folder / "failing.yaml"
    file.write_text(text)
    line = command_line(rig, "apply", str(file), "--yes", "--confirm-within", str(CONFIRM_WITHIN_S))
    victims = rig.random.choice(("nobody", "the command", "the command and the JobManager"))
    if victims == "the command":
        kill_command(rig, line, 15)
    elif victims != "nobody":
        kill_in_the_middle(rig, line, 15)
    said = run(rig, line, _ROLLED_BACK)
    assert _ROLLED_BACK in said, f"the version was not rolled back: {said}"
    rig.mark()
    rig.engine.wait_until(partial(_runs, rig))
    after = _current(rig)
    assert after.takes_back is not None, f"version {after.number} is not a way back"
    assert after.text == before.text, f"not what ran before: {after.text}"
    seconds = rig.wait_for_flow()
    rig.say(f"{what}, killed: {victims}; rolled back, all keys flow after {seconds:.1f} s")


def _current(rig: Rig) -> PipelineVersion:
    """Return the version that the job runs."""
    config = rig.engine.config
    current = read_deployment(config, Admin(config)).current
    assert current is not None
    return current


def _runs(rig: Rig, status: ClusterStatus) -> bool:
    """Whether all tasks of the harness's pipeline run, and no others."""
    return is_all_of({node.id for node in rig.engine.pipeline.processors}, status)


@fault("rebuild")
def rebuild(rig: Rig) -> None:
    """State is computed again for another class, and back; commands and JobManagers are killed.

    Neither has the state of the other, or has it as it was long ago: so results go on only if all
    of it was computed, up to the record where the former version stopped.
    """
    if rig.kind is Kind.SLOW:
        raise SkippedError("the Splitter would sleep for each record of the past again")
    savepoint = rig.folder / "savepoints" / "rebuild-chaos-Counter"
    already = f"{savepoint} exists already, perhaps as the savepoint of a rebuild that is done"
    for name, start in (("a class", RECOUNTED), ("count", START)):
        rig.engine.write_pipeline(rig.pipeline(start))
        file = str(rig.folder / "pipeline.yaml")
        line = command_line(rig, "apply", file, "--rebuild", "Counter", "--yes")
        kill_in_the_middle(rig, line, REBUILD_S)
        kill_command(rig, line, REBUILD_S)
        run(rig, line, already, timeout_s=REBUILD_TIMEOUT_S)
        rig.mark()
        rig.engine.wait_until(partial(_runs, rig))
        assert _current(rig).text == rig.pipeline(start), "not the version that was applied"
        seconds = rig.wait_for_flow()
        rig.say(f"the state of {name} was computed; all keys flow after {seconds:.1f} s")
        savepoint.rename(new_folder(rig, "rebuilt"))


@fault("rehearsal")
def rehearsal(rig: Rig) -> None:
    """The version that runs is rehearsed; command and JobManager are killed. Nothing of it stays.

    The Merger forwards what comes first, so results may be in another order; no other difference
    is right.
    """
    if rig.kind is Kind.QUERIES:
        raise SkippedError("queries keep two cores busy without a shadow that has them, too")
    if rig.tables is not None:
        raise SkippedError("pipelines with tables are not rehearsed")
    line = command_line(rig, "rehearse", str(rig.folder / "pipeline.yaml"), *REHEARSED)
    if rig.random.random() < 0.5:
        kill_command(rig, line, REHEARSAL_S)
    else:
        kill_in_the_middle(rig, line, REHEARSAL_S)
    rig.mark()
    discard, busy = command_line(rig, "rehearse", "--discard"), "its processes are still ending"
    while busy in run(rig, discard, busy):
        time.sleep(1)
    _require_no_shadow(rig, is_published=False)
    seconds = rig.wait_for_flow()
    rig.wait_until_whole()
    report = json.loads(_rehearse(rig, line))
    _require_no_shadow(rig, is_published=True)
    assert not report["failed"]["new"], report
    found: Counter[str] = Counter()
    for output in report["outputs"].values():
        found.update({kind: output[kind] for kind in ("equal", "reordered", *WRONG)})
    if rig.times is None:
        # Which of two tables is first decides what joins of these give.
        assert not any(found[kind] for kind in WRONG), report
    shown = ", ".join(f"{count} {kind}" for kind, count in found.items())
    rig.say(f"killed, all keys flow after {seconds:.1f} s; then rehearsed to the end: {shown}")


def _rehearse(rig: Rig, words: list[str]) -> str:
    """Rehearse to the end; return the report. It may find differences, or nothing to compare."""
    done = subprocess.run(
        words,
        cwd=rig.folder,
        capture_output=True,
        text=True,
        timeout=REHEARSAL_TIMEOUT_S,
        check=False,
    )
    assert done.stdout, f"no report, exit code {done.returncode}: {done.stderr}"
    return done.stdout


def _require_no_shadow(rig: Rig, *, is_published: bool) -> None:
    """Raise AssertionError if topics, offsets, processes or files of a rehearsal are left.

    What it found stays `is_published`, until it is discarded.
    """
    config = rig.engine.config
    name = shadow_name(config.job_name)
    client = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    groups = client.list_consumer_groups(request_timeout=_REQUEST_TIMEOUT_S).result().valid
    topics = Admin(config).topics()
    assert (config.topic_names.rehearsal in topics) is is_published, sorted(topics)
    left = [topic for topic in topics if topic.endswith(name)]
    left += [group.group_id for group in groups if group.group_id.endswith(name)]
    files = (f".{name}.yaml", f".{name}/savepoint", f".{name}/.savepoint.part", f".{name}/state")
    left += [file for file in files if (rig.folder / file).exists()]
    left += [path.name for path in _processes_with(str(rig.folder / f".{name}"))]
    assert not left, f"left of the shadow: {left}"


def _processes_with(word: str) -> Iterator[Path]:
    """Yield the processes with this in their command lines."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes():
                yield process
