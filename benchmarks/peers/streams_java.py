"""Java programs on jars from Maven Central, such as those of Kafka Streams, and a compiler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.admin.broker.server import LOG_SETTINGS
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import MIN_JAVA_VERSION, Java, find_java

VERSION = "4.3.0"
"""The version of Kafka Streams in ivy.xml."""

JARS = JarSet(
    title=f"Kafka Streams {VERSION}",
    folder=f"kafka-streams-test-utils-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"kafka-streams-test-utils-{VERSION}.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A compiled program, ready to run."""

    java: Java
    jars: Path
    classes: Path
    main_class: str
    more_jars: tuple[Path, ...] = ()
    """Folders of jars that come after the `jars`."""

    def command(self, *options: str) -> list[str]:
        """Return the command that runs it with these options of the JVM; arguments follow."""
        return [
            *(str(self.java.executable), *options),
            f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
            *("-cp", self._class_path(), self.main_class),
        ]

    def _class_path(self) -> str:
        jars = [f"{folder}/*" for folder in (self.jars, *self.more_jars)]
        return ":".join([*jars, str(self.classes)])


def build_program(sources: Sequence[Path], classes: Path, jar_set: JarSet = JARS) -> JavaProgram:
    """Fetch the jars, if they are not there, and compile sources into a folder.

    The first source is the one with the main class.

    Raises:
        UnavailableError: there is no Java, no Java compiler or no network, or the sources have
            errors; the message says which.
    """
    java = find_java()
    compiler = find_compiler(java)
    jars = fetch_jars(jar_set, java)
    # Only the launchers `java` and `javac` replace a star, and not for the compiler's module.
    class_path = ":".join(map(str, sorted(jars.glob("*.jar"))))
    command = [
        *(*compiler, "--release", str(MIN_JAVA_VERSION), "-d", str(classes)),
        *("-cp", class_path, *map(str, sources)),
    ]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        names = ", ".join(source.name for source in sources)
        raise UnavailableError(f"{names} could not be compiled:\n{run.stdout}{run.stderr}")
    return JavaProgram(java, jars, classes, sources[0].stem)


def find_compiler(java: Java) -> list[str]:
    """Return the command of a Java compiler: the one of `java`, or the javac on the PATH.

    Raises `UnavailableError` if there is neither, as with a JRE.
    """
    run = subprocess.run(
        [str(java.executable), "--list-modules"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if any(line.startswith("jdk.compiler@") for line in run.stdout.splitlines()):
        return [str(java.executable), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    if on_path := shutil.which("javac"):
        return [on_path]
    raise UnavailableError(
        "the programs for Kafka Streams are Java sources, and there is neither a javac nor the "
        f"module jdk.compiler in {java.home}: install a JDK (Debian, Ubuntu: `apt install "
        f"openjdk-{MIN_JAVA_VERSION}-jdk-headless`)"
    )
