"""The image of deploy/Containerfile: built by podman, and run as containers that are killed.

`BASE_IMAGE` in the environment names the base to build on. Without it, debootstrap makes one of the
packages of the host's Debian, so that no registry is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed

NEEDED = ("podman", "runc")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
BUILD_S = 3600
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(BUILD_S),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="builds and runs containers as root"),
]

ROOT = Path(__file__).parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
IN_BASE = "python3,python3-venv,ca-certificates"
MOST_MB = 1100
MOST_SLIM_MB = 900
TIMEOUT_S = 240
ON_HOST = (
    "--network", "host", "--cgroups", "enabled",
    "--ulimit", "nofile=10000:10000", "--ulimit", "nproc=20000:20000",
)  # fmt: skip
"""A container on the host's network, within limits that a host without all rights can set."""
KEYS = [b"%d" % number for number in range(12)]
PIPELINE = """\
- {id: Counter, type: count, to: [Doubled]}
- id: Doubled
  type: sql
  query: SELECT key, CAST(2 * CAST(value AS INT) AS STRING) AS value FROM Counter
  to: [sink]
"""


class Podman:
    """Images and containers in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._options = (
            "--root", str(folder / "images"), "--runroot", str(folder / "run"),
            "--runtime", "runc", "--cgroup-manager", "cgroupfs",
        )  # fmt: skip

    def __call__(self, *arguments: object, timeout_s: float = TIMEOUT_S) -> str:
        """Run a command; return what it prints."""
        done = subprocess.run(
            ["podman", *self._options, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def inspect(self, name: str) -> Any:
        (found,) = json.loads(self("inspect", name))
        return found


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    folder = tmp_path_factory.mktemp("podman")
    made = Podman(folder)
    yield made
    made("rm", "--all", "--force", "--time", "0")
    made("rmi", "--all", "--force")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an image with a Python."""
    if given := os.environ.get("BASE_IMAGE"):
        return given
    if shutil.which("debootstrap") is None:
        pytest.skip("needs debootstrap, or BASE_IMAGE in the environment")
    sources = "$(CODENAME) $(REPO_URI)"
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", sources, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    codename, address = found.stdout.splitlines()[0].split()
    folder = tmp_path_factory.mktemp("base") / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={IN_BASE}", codename, folder, address],
        check=True,
        timeout=BUILD_S,
    )
    packed = folder.parent / "base.tar"
    left_out = ["--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*"]
    subprocess.run(["tar", "-C", folder, *left_out, "-cf", packed, "."], check=True)
    shutil.rmtree(folder)
    podman("import", packed, "localhost/base")
    packed.unlink()
    return "localhost/base"


def built(podman: Podman, base: str, name: str, *options: str) -> str:
    """Build an image, which takes minutes; return its name."""
    podman(
        "build", "--isolation", "chroot", "--network", "host",
        "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--build-arg", f"BASE_IMAGE={base}",
        "--file", ROOT / "deploy" / "Containerfile", "--tag", name, *options, ROOT,
        timeout_s=BUILD_S,
    )  # fmt: skip
    return name


@pytest.fixture(scope="module")
def slim(podman: Podman, base: str) -> str:
    """The name of the image without a class archive."""
    return built(podman, base, "localhost/kafka-pipeline-slim", "--target", "slim")


@pytest.fixture(scope="module")
def image(podman: Podman, base: str, slim: str) -> str:
    """The name of the image, which has one layer more."""
    return built(podman, base, "localhost/kafka-pipeline")


class Host:
    """Runs the containers of a job as `deploy/kubernetes.yaml` has them, on the host's network."""

    def __init__(self, podman: Podman, image: str, folder: Path, bootstrap_servers: str) -> None:
        self._podman, self._image, self._folder = podman, image, folder
        host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
        job = f"image_{os.getpid()}"
        (folder / "conf").mkdir()
        (folder / "conf" / "config.yaml").write_text(
            f"server_ip: {host}\nserver_port: {port}\njob_name: {job}\ntm_number: 2\n"
            f"parallelism: 2\nreplication_factor: 1\nsource_topic: source_{job}\n"
            f"sink_topic: sink_{job}\nstate_dir: /state\nlog_format: json\n"
        )
        (folder / "conf" / "pipeline.yaml").write_text(PIPELINE)
        self.config: Config = load_config(folder / "conf" / "config.yaml")

    def start(self, name: str, *words: object) -> None:
        """Start a container: no root, a file system that cannot be written, and no rights."""
        state = self._folder / f"state_{name}"
        state.mkdir(exist_ok=True)
        os.chown(state, 10001, 10001)
        self._podman(
            "run", "--detach", "--name", name, *ON_HOST,
            "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "all",
            "--security-opt", "no-new-privileges",
            "--volume", f"{state}:/state", "--volume", f"{self._folder / 'conf'}:/etc/pipeline:ro",
            self._image, *words,
        )  # fmt: skip

    def start_task_manager(self, number: int) -> None:
        self.start(f"taskmanager{number}", "taskmanager", number, 2, "/etc/pipeline/config.yaml")

    def start_job_manager(self) -> None:
        files = ("/etc/pipeline/config.yaml", "/etc/pipeline/pipeline.yaml")
        self.start("jobmanager", "jobmanager", *files)

    def log(self, name: str) -> str:
        return self._podman("logs", name)


@pytest.fixture
def host(podman: Podman, slim: str, tmp_path: Path, bootstrap_servers: str) -> Iterator[Host]:
    made = Host(podman, slim, tmp_path, bootstrap_servers)
    yield made
    podman("rm", "--all", "--force", "--time", "0")


def written(host: Host, rounds: int) -> None:
    writer = BulkWriter(host.config, host.config.source_topic)
    writer.write([(key, b"x") for _ in range(rounds) for key in KEYS])
    writer.flush(TIMEOUT_S)


def wait_for_counts(host: Host, up_to: int) -> None:
    """Wait until each key was counted from 1 to `up_to`, and each number doubled once."""
    wanted: Counter[tuple[bytes | None, bytes | None]] = Counter(
        (key, b"%d" % (2 * count)) for key in KEYS for count in range(1, up_to + 1)
    )
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        batches = read_committed(host.config, host.config.sink_topic, host.config.parallelism)
        found = Counter(
            pair for each in batches for pair in zip(each.keys, each.values, strict=True)
        )
        assert not found - wanted
        if found == wanted:
            return
        if time.monotonic() > deadline_s:
            logs = "\n".join(host.log(name)[-2000:] for name in ("taskmanager0", "jobmanager"))
            pytest.fail(f"{len(found)} of {len(wanted)} counts came\n{logs}")
        time.sleep(0.5)


def test_images_are_small_and_have_a_user_and_labels(podman: Podman, image: str, slim: str) -> None:
    for name, most in ((image, MOST_MB), (slim, MOST_SLIM_MB)):
        found = podman.inspect(name)
        assert found["Config"]["User"] == "10001"
        assert found["Config"]["Labels"]["org.opencontainers.image.licenses"]
        megabytes = found["Size"] / 1_000_000
        print(f"{name} has {megabytes:.0f} MB")
        assert megabytes <= most


def test_commands_of_the_image_say_what_they_do(podman: Podman, image: str) -> None:
    began_s = time.monotonic()
    said = podman("run", "--rm", *ON_HOST, image)
    assert "Usage: pipeline" in said
    print(f"`pipeline --help` took {time.monotonic() - began_s:.1f} s in a container")


def test_only_the_larger_image_has_the_class_archive(podman: Podman, image: str, slim: str) -> None:
    find = ("run", "--rm", *ON_HOST, "--entrypoint", "find")
    archive = ["/opt/environment", "-maxdepth", "1", "-name", "spark-classes.jsa"]
    assert podman(*find, image, *archive).endswith(".jsa")
    assert podman(*find, slim, *archive) == ""


def test_killed_and_stopped_containers_lose_and_repeat_nothing(podman: Podman, host: Host) -> None:
    for number in range(2):
        host.start_task_manager(number)
    host.start_job_manager()
    written(host, 5)
    wait_for_counts(host, 5)
    podman("kill", "taskmanager0")
    written(host, 5)
    wait_for_counts(host, 10)
    podman("rm", "taskmanager0")
    host.start_task_manager(0)
    podman("kill", "jobmanager")
    podman("rm", "jobmanager")
    written(host, 5)
    wait_for_counts(host, 15)
    host.start_job_manager()
    podman("stop", "--time", "60", "taskmanager1")
    assert podman.inspect("taskmanager1")["State"]["ExitCode"] == 0, host.log("taskmanager1")
    written(host, 5)
    wait_for_counts(host, 20)
    for name in ("taskmanager0", "jobmanager"):
        podman("stop", "--time", "60", name)
        assert podman.inspect(name)["State"]["ExitCode"] == 0, host.log(name)
