"""A real object store with the API of S3, on this machine: S3Proxy, with its objects in memory."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import S3FileSystem

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.common.process.java import find_java

VERSION = "4.0.0"
"""The version of S3Proxy in ivy.xml."""

JARS = JarSet(
    title=f"S3Proxy {VERSION}",
    folder=f"s3proxy-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"s3proxy-{VERSION}-jar-with-dependencies.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)

MOST_START_S = 120.0
BUCKET, REGION = "lake", "eu-central-1"
_ACCESS_KEY, _SECRET_KEY = "ann", "correct-horse"


class ObjectStore:
    """A store that runs, with the bucket `BUCKET`; its objects are gone when it ends."""

    def __init__(self, port: int) -> None:
        self.port = port

    def environment(self, port: int | None = None) -> Mapping[str, str]:
        """Return the variables by which clients find it, perhaps through a relay on `port`."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            # Otherwise, those without credentials ask the host that they are on.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def files(self) -> S3FileSystem:
        """Its objects, by paths that begin with a bucket."""
        return S3FileSystem(
            access_key=_ACCESS_KEY,
            secret_key=_SECRET_KEY,
            region=REGION,
            endpoint_override=f"http://127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )


@contextmanager
def running(folder: Path, *, checks_logins: bool = True) -> Iterator[ObjectStore]:
    """Run a store with its settings and its log in a folder, once it answers.

    Raises `UnavailableError` if there is no Java, or no network for the jar.
    """
    java = find_java()
    jars = fetch_jars(JARS, java)
    with socket.create_server(("127.0.0.1", 0)) as free:
        store = ObjectStore(free.getsockname()[1])
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{store.port}",
        "s3proxy.authorization": "aws-v4" if checks_logins else "none",
        "s3proxy.identity": _ACCESS_KEY,
        "s3proxy.credential": _SECRET_KEY,
        "jclouds.provider": "transient-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
    }
    file = folder / "s3proxy.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [
        *(str(java.executable), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
        *("-jar", str(jars / JARS.main_jar), "--properties", str(file)),
    ]
    with listening(command, store.port, folder / "s3proxy.log"):
        store.files.create_dir(BUCKET)
        yield store


@contextmanager
def listening(command: Sequence[str], port: int, log_file: Path) -> Iterator[None]:
    """Run a server, once it takes connections, and kill it at the end."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until_s = time.monotonic() + MOST_START_S
        while not _takes_connections(port):
            assert process.poll() is None, f"the server has ended: {log_file.read_text()}"
            assert time.monotonic() < until_s, f"nobody listens on port {port}"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait(30)


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
