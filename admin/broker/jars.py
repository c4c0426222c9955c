"""Fetches the jars of Apache Kafka from Maven Central, once, with the Ivy that pyspark ships."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.paths import cache_home
from kafka_pipeline.admin.terminal import last_words
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import Java
from kafka_pipeline.common.process.locks import exclusive

KAFKA_VERSION = "4.2.1"
"""The version that ivy.xml asks for."""

_NAME_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars that an ivy.xml asks for, and how to check that they arrived."""

    title: str
    """Its name for the user: `Kafka 4.2.1`."""
    folder: str
    """Its folder in the cache folder: `kafka-4.2.1`."""
    ivy_file: Path
    main_jar: str
    """The file without which the others are useless."""
    digests: Path
    """The list of what must arrive, and nothing else; see `read_digests`."""


BROKER = JarSet(
    title=f"Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"kafka_2.13-{KAFKA_VERSION}.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)


def fetch_jars(jar_set: JarSet, java: Java, cache_dir: Path | None = None) -> Path:
    """Return the folder of a set of jars, with the digests of its list; fetch missing ones first.

    Fetching takes about a minute, a network and 100 MB of disk, half of it only temporarily; one
    line on stderr announces it. Several processes may call this at once: one fetches, the others
    wait. The folder gets its name only once it is complete, so an interrupted download never
    counts. The digests are checked at each call, which takes about 0.1 s.

    Args:
        jar_set: what to fetch.
        java: the Java that runs Ivy.
        cache_dir: where to keep the jars; `$XDG_CACHE_HOME/kafka-pipeline` by default.

    Raises:
        UnavailableError: no pyspark, no network, a cache folder that cannot be used, or a jar with
            another digest, which is not on the list, or which is missing.
    """
    cache_dir = cache_home() if cache_dir is None else cache_dir
    jars = cache_dir / jar_set.folder
    try:
        if not jars.is_dir():
            with exclusive(cache_dir / f"{jar_set.folder}.lock"):
                if not jars.is_dir():
                    print(
                        f"fetching the {jar_set.title} jars, once, about a minute…",
                        file=sys.stderr,
                        flush=True,
                    )
                    _fetch(jar_set, java, cache_dir)
        if wrong := check_jars(jars, jar_set.digests):
            raise UnavailableError(
                f"The {jar_set.title} jars in {jars} are not those of {jar_set.digests}: {wrong}. "
                "Find out who changed them, or delete that folder to fetch them again."
            )
    except OSError as error:
        raise UnavailableError(
            f"The {jar_set.title} jars cannot be kept in {cache_dir}: {error}. "
            "Make it writable, or set XDG_CACHE_HOME to a folder that is."
        ) from error
    return jars


def _fetch(jar_set: JarSet, java: Java, cache_dir: Path) -> None:
    # Ivy's own cache survives an interrupted download, and the next one continues from there. Each
    # jar set has its own cache, since another set may be fetched at the same time.
    ivy_cache = cache_dir / f"{jar_set.folder}.ivy"
    # Left over by killed processes: only the holder of the lock works here.
    for leftover in cache_dir.glob(f"{jar_set.folder}.part-*"):
        shutil.rmtree(leftover)
    part = Path(tempfile.mkdtemp(prefix=f"{jar_set.folder}.part-", dir=cache_dir))
    try:
        retrieve(jar_set, java, ivy_cache, part)
        if wrong := check_jars(part, jar_set.digests):
            # The next attempt must not find the wrong file there again.
            shutil.rmtree(ivy_cache, ignore_errors=True)
            raise UnavailableError(
                f"The {jar_set.title} jars that arrived are not those of {jar_set.digests}, and "
                f"were deleted: {wrong}."
            )
        # mkdtemp's 0700 would hide the jars from other users of a shared cache folder.
        part.chmod(0o755)
        part.rename(cache_dir / jar_set.folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def retrieve(jar_set: JarSet, java: Java, ivy_cache: Path, target: Path) -> None:
    """Let Ivy put the jars into a folder, whatever their digests. Blocks about a minute.

    Raises `UnavailableError` if they could not be fetched.
    """
    command = [
        *(str(java.executable), "-jar", str(_find_ivy())),
        *("-cache", str(ivy_cache)),
        *("-ivy", str(jar_set.ivy_file)),
        *("-retrieve", f"{target}/{_NAME_PATTERN}"),
        *("-confs", "default"),
    ]
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if run.returncode == 0 and (target / jar_set.main_jar).is_file():
        return
    raise UnavailableError(
        f"The {jar_set.title} jars could not be fetched. Ivy's last words:\n"
        f"{last_words(run.stdout)}\n"
        "Is the network there? Behind a proxy, give Java its address: "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'"
    )


def _find_ivy() -> Path:
    # Only found, not imported: importing pyspark takes half a second, and this module does not run
    # Spark.
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec and spec.submodule_search_locations) or []:
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise UnavailableError(
        "pyspark, which brings the Ivy that fetches Kafka, is not installed in "
        f"{sys.executable}. Install this project's dependencies, for example with ./quickstart.sh"
    )


_COMMENT = "#"


def check_jars(folder: Path, digests: Path) -> str:
    """Return how the files of a folder differ from a list; an empty string if they do not.

    Raises OSError if a file cannot be read.
    """
    expected = read_digests(digests)
    found = digests_of(folder)
    wrong = [
        *(
            f"{name} has the digest {found[name]} instead of {expected[name]}"
            for name in sorted(expected.keys() & found.keys())
            if found[name] != expected[name]
        ),
        *(f"{name} is not on the list" for name in sorted(found.keys() - expected.keys())),
        *(f"{name} is missing" for name in sorted(expected.keys() - found.keys())),
    ]
    return ", ".join(wrong)


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a folder and the folders in it, by its path there."""
    digests = {}
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            digests[file.relative_to(folder).as_posix()] = hashlib.file_digest(
                stream, "sha256"
            ).hexdigest()
    return digests


def read_digests(file: Path) -> dict[str, str]:
    """Return the digest of each file that a list names."""
    lines = file.read_text("utf-8").splitlines()
    pairs = (line.split("  ", 1) for line in lines if not line.startswith(_COMMENT))
    return {name: digest for digest, name in pairs}


def write_digests(file: Path, digests: dict[str, str], comment: str) -> None:
    """Write a list, with a line of comment first."""
    lines = (f"{digests[name]}  {name}\n" for name in sorted(digests))
    file.write_text("".join((f"{_COMMENT} {comment}\n", *lines)), "utf-8")
