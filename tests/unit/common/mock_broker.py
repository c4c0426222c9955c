"""librdkafka's own mock brokers, in this process, with chosen errors, leaders and delays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

# Its library is loaded into the process by the import.
from confluent_kafka import Producer

_PRODUCER = 0
LIST_OFFSETS = 2
"""The key of the API (https://kafka.apache.org/protocol#protocol_api_keys)."""


class MockBroker:
    """One broker or several, numbered from 1, for as long as the process runs."""

    def __init__(self, brokers: int = 1) -> None:
        """Start them on free ports of loopback."""
        self._library = library = ctypes.CDLL(_path_of_librdkafka())
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        reason = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(library.rd_kafka_conf_new())
        handle = library.rd_kafka_new(_PRODUCER, settings, reason, len(reason))
        assert handle, reason.value
        cluster = library.rd_kafka_mock_cluster_new(ctypes.c_void_p(handle), brokers)
        assert cluster
        self._cluster = ctypes.c_void_p(cluster)
        self.bootstrap_servers: str = library.rd_kafka_mock_cluster_bootstraps(
            self._cluster
        ).decode()

    def answer(self, api: int, errors: Sequence[int]) -> None:
        """Answer the next requests of one API with these errors, one each; 0 is none."""
        array = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(errors)), array
        )

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, each partition on one broker."""
        assert not self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, 1
        )

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition."""
        assert not self._library.rd_kafka_mock_partition_set_leader(
            self._cluster, topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(broker)
        )

    def coordinate(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group."""
        assert not self._library.rd_kafka_mock_coordinator_set(
            self._cluster, b"group", group.encode(), ctypes.c_int32(broker)
        )

    def stop(self, broker: int) -> None:
        """Break the connections to a broker, and refuse new ones."""
        assert not self._library.rd_kafka_mock_broker_set_down(
            self._cluster, ctypes.c_int32(broker)
        )

    def delay(self, broker: int, milliseconds: int) -> None:
        """Let a broker answer later, from the next request on."""
        assert not self._library.rd_kafka_mock_broker_set_rtt(
            self._cluster, ctypes.c_int32(broker), milliseconds
        )

    def write(self, topic: str, records: int, partition: int = 0) -> None:
        """Write records to a partition of a topic, which is made."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for _ in range(records):
            producer.produce(topic, b"value", partition=partition)
        assert not producer.flush(30)


def _path_of_librdkafka() -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/librdkafka" in path:
            return path
    raise RuntimeError("confluent-kafka has no librdkafka of its own here")
