"""Another user of this host tries Spark's ports and folders, and gets nothing that Spark keeps."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.spec import Queries, QuerySpec
from tests.listening import listeners

pytestmark = pytest.mark.integration

SECRET = b"sasl.password=a-password-of-kafka"
TIMEOUT_S = 5.0
# Spark's network protocol: types of messages.
CHUNK_REQUEST, REQUEST, RESPONSE, FAILURE = 0, 3, 4, 5
OPEN_BLOCKS, STREAM = 0, 3


def asked_for_block(port: int, application: str, block: str) -> bytes:
    """Return all that a port answers to somebody who asks for a block, as an executor would."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        wanted = bytes([OPEN_BLOCKS]) + text(application) + text("driver")
        wanted += struct.pack(">i", 1) + text(block)
        send(connection, bytes([REQUEST]) + struct.pack(">qi", 7, len(wanted)) + wanted)
        answer = receive(connection)
        if answer[:1] != bytes([RESPONSE]) or answer[13:14] != bytes([STREAM]):
            return answer
        (stream,) = struct.unpack(">q", answer[14:22])
        send(connection, bytes([CHUNK_REQUEST]) + struct.pack(">qi", stream, 0))
        return answer + receive(connection)


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">q", len(body) + 8) + body)


def receive(connection: socket.socket) -> bytes:
    """Return an answer, or what has come of it when no more comes."""
    found = b""
    try:
        while len(found) < 8 or len(found) < struct.unpack(">q", found[:8])[0]:
            some = connection.recv(65536)
            if not some:
                break
            found += some
    except (TimeoutError, ConnectionError):
        pass
    return found[8:]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="it reads /proc, of Linux")
def test_nobody_else_gets_a_block_from_spark(queries: Queries) -> None:
    queries.open(QuerySpec("SELECT key, value FROM input"))
    session = SparkSession.getActiveSession()
    assert session is not None
    context = session.sparkContext
    gateway: Any = context._gateway
    kept: Any = context._jsc.broadcast(bytearray(SECRET))
    ports = sorted({each.port for each in listeners(gateway.proc.pid)})
    assert len(ports) >= 2  # RPC and blocks, besides the one of Py4J
    block = f"broadcast_{kept.id()}"
    answers = {
        (port, name): asked_for_block(port, context.applicationId, name)
        for port in ports
        for name in (block, f"{block}_piece0")
    }
    assert all(SECRET not in answer for answer in answers.values())
    refused = [port for (port, _), answer in answers.items() if answer[:1] == bytes([FAILURE])]
    assert len(set(refused)) >= 2, answers
    assert all(b"Expected SaslMessage" in answers[p, block] for p in set(refused)), answers


def test_nobody_else_may_read_what_spark_writes_to_the_disk(queries: Queries) -> None:
    queries.open(QuerySpec("SELECT key, value FROM input"))
    session = SparkSession.getActiveSession()
    assert session is not None
    # A JVM keeps to the folder of its first Spark, which another test may have started.
    batches = Path(str(session.sparkContext._temp_dir))
    (folder,) = [each for each in batches.parents if each.name.startswith("pipeline-jvm-")]
    assert folder.stat().st_mode & 0o077 == 0
    assert any(path.name.startswith("blockmgr-") for path in folder.iterdir())
    written = os.urandom(100)
    spilled = session.sparkContext.parallelize([written]).persist(StorageLevel.DISK_ONLY)
    spilled.count()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name.startswith("rdd_") for path in files)
    assert not any(written in path.read_bytes() for path in files)
    spilled.unpersist()


AS_ANOTHER_USER = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""


def test_nobody_else_may_have_spark_run_plans(queries: Queries) -> None:
    query = queries.open(QuerySpec("SELECT key, value FROM input"))
    path = Path(query.socket_path)  # type: ignore[attr-defined]
    query.close()
    assert path.is_socket()
    assert (path.parent.stat().st_mode & 0o777, path.parent.stat().st_uid) == (0o700, os.getuid())
    if os.getuid() == 0:
        command = [sys.executable, "-c", AS_ANOTHER_USER, str(path)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
        assert "PermissionError" in done.stderr
