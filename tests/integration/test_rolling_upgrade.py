"""A running job is upgraded from a former version of the engine, host by host, and back again.

The steps are those of `docs/how-to/upgrade.md`. `--upgrade-from COMMIT` plays another version.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from tests.chaos.broken_operations import run as run_words
from tests.chaos.broken_records import expect_dead_letter, write
from tests.chaos.pipelines import Kind
from tests.chaos.report import Timeline
from tests.chaos.rig import TASK_MANAGERS, Rig, require_unaffected
from tests.chaos.verify import explain, verify
from tests.engine import END_TIMEOUT_S
from tests.versions import reading
from tests.versions import sample as samples
from tests.wheels import ROOT, install, run, wheel_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

FORMER = "v0.1.0"
"""The tag of the former version."""
SAMPLE = ROOT / "tests" / "versions" / "0.1.0.json.gz"
RECORDS_PER_S = 100
"""Enough for records to be on their way at each moment; more would only cost CPU time."""
USER_CODE = ("tests/user_code", "tests/chaos/lanes.py")


@pytest.fixture(scope="module")
def former(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of the former version, in an environment of its own."""
    given = request.config.getoption("--upgrade-from")
    found = commit(given) if given else commit(FORMER) or commit_of_sample()
    if not found:
        pytest.skip(f"the history has no {given or FORMER}: `git fetch --unshallow --tags`")
    folder = tmp_path_factory.mktemp("former")
    archive = folder / "source.tar"
    git("archive", "--output", str(archive), found)
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "source", filter="data")
    tell_apart(folder / "source" / "pyproject.toml")
    return install(wheel_of(folder / "source"), folder / "environment")


def tell_apart(former: Path) -> None:
    """Give the former version another number in its heartbeats, while both have the same."""
    number = re.compile(r'^version = "(.+)"$', re.MULTILINE)
    text = former.read_text()
    if number.findall(text) == number.findall((ROOT / former.name).read_text()):
        former.write_text(number.sub(r'version = "\1.dev0"', text))


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of this version, installed in the same way."""
    folder = tmp_path_factory.mktemp("current")
    files = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in files:
        if (ROOT / name).exists():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name, follow_symlinks=False)
    return install(wheel_of(folder / "source"), folder / "environment")


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def commit(name: str) -> str:
    """Return the id of a commit; "" if the clone does not have it, or is none."""
    words = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit_of_sample() -> str:
    """Return the last commit that changed the sample; "" if the clone does not have it.

    Until the version is released, what it writes may change, and the sample with it.
    """
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        return ""
    return git("log", "-1", "--format=%H", "--", str(SAMPLE)).strip()


def test_former_version_understands_what_this_one_writes(former: Path, tmp_path: Path) -> None:
    """The same facts, by which managers act, as this version reads in it.

    The pipelines are those of the version: it need not know what came later.
    """
    known = reading.load(SAMPLE)["pipelines"]
    samples.write(tmp_path / "sample.json.gz", {name: its["text"] for name, its in known.items()})
    folders = [tmp_path / "former", tmp_path / "current"]
    for folder in folders:
        folder.mkdir()
    words = (former / "python", reading.__file__, tmp_path / "sample.json.gz", folders[0])
    found: Any = json.loads(run(*words, cwd=tmp_path))
    here = reading.understood(reading.load(tmp_path / "sample.json.gz"), folders[1])
    assert found == json.loads(json.dumps(here))


class RollingRig(Rig):
    """A rig whose daemons are of several versions."""

    def __init__(self, folder: Path, say: Callable[[str], None], begin: Path) -> None:
        """`begin` has the commands of the first daemons."""
        draws = Random(random.randrange(10**6))
        super().__init__(folder, draws, say, kind=Kind.DSL, records_per_s=RECORDS_PER_S)
        self.commands = begin
        """The folder of the commands of daemons that start from now on."""
        self.user_code = folder.with_name(f"{folder.name}_user_code")
        for name in USER_CODE:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (self.user_code / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, self.user_code / name)

    def _settings(self, task_managers: int) -> dict[str, object]:
        # The folder of the clone has an engine in it, which is not that of the daemons.
        return super()._settings(task_managers) | {"python_path": f"[{self.user_code}]"}

    def start_job_manager(self, *, with_pipeline: bool = True) -> Daemon:
        """Start an additional JobManager, of the version that is to be started."""
        self.engine.commands = self.commands
        return super().start_job_manager(with_pipeline=with_pipeline)

    def make_task_manager(self, tm_id: int, config_file: Path | None = None) -> Daemon:
        """Start a TaskManager, of the version that is to be started."""
        self.engine.commands = self.commands
        return super().make_task_manager(tm_id, config_file)

    def command(self, name: str, *words: str) -> str:
        """Run a `pipeline` command of the version that is to be started."""
        line = [str(self.commands / "pipeline"), *name.split(), str(self.engine.config_file)]
        return run_words(self, [*line, *words])


def replace_task_manager(rig: RollingRig, tm_id: int, whose: str) -> None:
    """Stop a TaskManager, start one of the other version with its id, and wait until all run."""
    rig.mark()
    old = rig.task_managers[tm_id]
    old.terminate()
    seconds = rig.wait_for_flow()
    assert old.wait(END_TIMEOUT_S), "the TaskManager does not end"
    assert old.exit_code == 0
    rig.mark()
    rig.start_task_manager(tm_id)
    rig.wait_until_whole()
    back = rig.wait_for_flow()
    rig.say(f"TaskManager {tm_id} is of the {whose} version: {seconds:.1f} s, {back:.1f} s back")


def replace_job_manager(rig: RollingRig, whose: str) -> None:
    """Stop the JobManager and start one of the other version: no task starts again or moves."""
    before = rig.wait_until_whole()
    rig.mark()
    old = rig.job_manager
    assert old.pid is not None
    old.terminate()
    assert old.wait(END_TIMEOUT_S), "the JobManager does not end"
    # Without the file, of which another version might make another pipeline.
    rig.job_manager = rig.start_job_manager(with_pipeline=False)

    def leads(status: ClusterStatus) -> bool:
        return (status.job_manager.epoch or 0) > (before.job_manager.epoch or 0)

    rig.engine.wait_until(leads)
    # Whatever it does about what runs, it does after the reports of some heartbeats.
    seconds = rig.wait_for_flow()
    require_unaffected(before, rig.wait_until_whole())
    rig.say(f"the JobManager is of the {whose} version: {seconds:.1f} s")


def put_bad_record(rig: RollingRig, at: str) -> None:
    """Write a record that cannot be added up: one dead letter, and no more at the end."""
    key = b"poison-" + at.replace(" ", "-").encode()
    write(rig, key, b"poison")
    expect_dead_letter(rig, "Adder", (key, b"poison"), [b"the value is not an integer"])


def require_versions(rig: RollingRig, wanted: int) -> None:
    """Raise AssertionError unless the heartbeats show so many versions of the engine."""
    engines = rig.now().engines
    assert len(engines) == wanted, engines


def restore_of_other(rig: RollingRig, makes: Path, restores: Path, name: str) -> None:
    """A savepoint that one version makes is restored by the other one, while all rests."""
    assert rig.settle().is_clean, explain(rig)
    folder = str(rig.folder / f"savepoint_{name}")
    rig.commands = makes
    rig.command("savepoint create", folder)
    rig.commands = restores
    rig.command("savepoint restore", folder, "--yes")
    rig.load.resume()
    rig.mark()
    rig.say(f"{name}: flows {rig.wait_for_flow():.1f} s after the restore")


@pytest.mark.timeout(2400)
def test_job_is_upgraded_host_by_host_and_back(former: Path, current: Path, tmp_path: Path) -> None:
    """Nothing is lost or repeated, and no task is away for longer than a restart takes.

    The job has built-in types, a class with state, windows and joins of the DSL, and dead letters.
    On the way there, TaskManagers of this version run under a JobManager of the former one; on the
    way back, it is the other way round.
    """
    timeline = Timeline()
    rig = RollingRig(tmp_path / "rig", timeline.say, former)
    names: Mapping[Path, str] = {former: "former", current: "current"}
    with rig.open():
        rig.load.resume()
        rig.mark()
        rig.wait_for_flow()
        put_bad_record(rig, "all former")
        for now, before in ((current, former), (former, current)):
            rig.commands = now
            for tm_id in range(TASK_MANAGERS):
                replace_task_manager(rig, tm_id, names[now])
                put_bad_record(rig, f"{names[now]} {tm_id}")
                require_versions(rig, 2)
            replace_job_manager(rig, names[now])
            put_bad_record(rig, f"all {names[now]} again")
            require_versions(rig, 1)
            restore_of_other(rig, before, now, names[now])
        rig.require_alive()
        assert rig.settle().is_clean, "\n".join((*timeline.lines, *explain(rig)))
        assert verify(rig) == []
