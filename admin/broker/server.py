"""The two Kafka commands that a local broker needs: format its storage, run the server."""

from __future__ import annotations

import base64
import re
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.admin.broker.processes import BrokerProcess
from kafka_pipeline.admin.terminal import last_words
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java
from kafka_pipeline.common.security.secret_file import write_private

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_META_FILE = "meta.properties"
_HEAP = ("-Xms256m", "-Xmx1g")
_COLLECTOR = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# In its first minutes, a broker takes two thirds of the CPU time without the second compiler (C2),
# and to format its storage takes 2.1 s instead of 3.4.
_SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: 22 characters of URL-safe base64."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's tools take a leading dash for an option.
        if not cluster_id.startswith("-"):
            return cluster_id


def read_cluster_id(data_dir: Path) -> str | None:
    """Return the id of the cluster that a data folder was formatted for; None if unformatted."""
    try:
        meta = (data_dir / _META_FILE).read_text(encoding="latin-1")
    except FileNotFoundError:
        return None
    found = re.search(r"^cluster\.id=(\S+)", meta, re.MULTILINE)
    return found[1] if found else None


class KafkaServer:
    """Java and Kafka's jars, found and ready to use."""

    def __init__(self, jar_set: JarSet) -> None:
        """Find Java and the jars; fetch missing jars, which takes a minute.

        Raises `UnavailableError` if Java or the jars are not available.
        """
        self._java = find_java()
        self._jars = fetch_jars(jar_set, self._java)

    def format(
        self, properties_file: Path, cluster_id: str, passwords: Mapping[str, str] = {}
    ) -> None:
        """Prepare the data folder that a server.properties names. Blocks about one second.

        `passwords` are those of users, who come into being with the cluster. They have neither
        spaces nor quotes. Raises `UnavailableError` with Kafka's output if Kafka refuses.
        """
        command = [
            *self._command("kafka.tools.StorageTool", *_SHORT_LIVED),
            *("format", "--cluster-id", cluster_id, "--config", str(properties_file)),
            "--ignore-formatted",
        ]
        for user, password in passwords.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        if not passwords:
            self._run_format(command)
            return
        # Everybody on this machine can read the arguments of a process, so Java reads them itself.
        arguments = properties_file.with_suffix(".arguments")
        write_private(arguments, "".join(f"{_java_quoted(word)}\n" for word in command[1:]))
        try:
            self._run_format([command[0], f"@{arguments}"])
        finally:
            arguments.unlink(missing_ok=True)

    def _run_format(self, command: list[str]) -> None:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if run.returncode != 0:
            raise UnavailableError(
                "Kafka could not format its storage:\n" + last_words(run.stdout + run.stderr)
            )

    def launch(
        self,
        properties_file: Path,
        log_file: Path,
        *,
        is_short_lived: bool = False,
        within: Sequence[str] = (),
    ) -> BrokerProcess:
        """Start the server in its own session and return at once.

        `within` is a command, with the path of its program, that becomes the one that follows it,
        such as `nsenter`. Raises `UnavailableError` if its log or Java cannot be opened.
        """
        crash_report = f"-XX:ErrorFile={log_file.with_suffix('.crash')}"
        machine = _SHORT_LIVED if is_short_lived else _COLLECTOR
        options = (*_HEAP, *machine, "-XX:+ExitOnOutOfMemoryError", crash_report)
        java = self._command("kafka.Kafka", *options)
        command = [*within, *java, str(properties_file)]
        try:
            return BrokerProcess.spawn(command, log_file=log_file)
        except OSError as error:
            # The operating system does not say which of the two failed.
            raise UnavailableError(
                f"Kafka could not be started: {error.strerror}. Is {log_file} a file that can be "
                f"written, and {command[0]} a program?"
            ) from error

    def _command(self, main_class: str, *options: str) -> list[str]:
        return [
            str(self._java.executable),
            *options,
            "-Djava.awt.headless=true",
            # As a URI, because a plain path with a space in it would not be read.
            f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
            *("-cp", f"{self._jars}/*"),
            main_class,
        ]


def _java_quoted(word: str) -> str:
    """Return a word as Java takes it in a file of arguments."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
