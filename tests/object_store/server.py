"""A real object store with the API of S3, on this machine: S3Proxy, with its objects in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyarrow.fs import S3FileSystem

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.common.process.java import find_java
from tests.servers import free_port, serving, takes_connections

VERSION = "4.0.0"
"""The version of S3Proxy in ivy.xml."""

JARS = JarSet(
    title=f"S3Proxy {VERSION}",
    folder=f"s3proxy-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"s3proxy-{VERSION}-jar-with-dependencies.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)

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
    store = ObjectStore(free_port())
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
    with serving(command, partial(takes_connections, store.port), folder / "s3proxy.log"):
        store.files.create_dir(BUCKET)
        yield store
