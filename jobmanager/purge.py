"""Deletes processed records from the arcs, which have no other readers."""

from __future__ import annotations

import threading
from contextlib import closing

import structlog

from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.pipeline import Pipeline

PURGE_INTERVAL_S = 30.0
_REQUEST_TIMEOUT_S = 30.0

logger = structlog.get_logger()


class ArcPurger:
    """Deletes, every 30 s, the records of arcs that come before the committed input offsets.

    Arcs have no time limit, as their records carry the source's timestamps; without this they
    would grow forever. Kafka Streams does the same with its repartition topics (KAFKA-6150).
    Deleting twice, or from two JobManagers, does no harm while arcs stay. Runs in a thread of its
    own, because the brokers may be slow.
    """

    def __init__(self, config: Config, pipeline: Pipeline) -> None:
        self._config = config
        self._admin = Admin(config)
        self._arcs: dict[str, list[Partition]] = {}
        """Partitions by the consumer group that reads them."""
        for arc, reader in pipeline.arcs.items():
            partitions = self._arcs.setdefault(pipeline.names.consumer_group(reader), [])
            partitions += pipeline.places(arc)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start purging, unless the pipeline has no arcs."""
        if self._arcs:
            threading.Thread(target=self._run, name="purge", daemon=True).start()

    def stop(self) -> None:
        """Stop after the deletion that is in progress, if any; does not wait for it."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(PURGE_INTERVAL_S):
            try:
                offsets = self._find_offsets()
                # A tool that has stopped the job meanwhile may make arcs again, with other offsets.
                if offsets and not self._stopped.is_set():
                    self._admin.delete_before(offsets)
            except (NonRetriableError, TransactionFailedError) as error:
                logger.warning("processed records stay in the arcs for now", reason=str(error))

    def _find_offsets(self) -> dict[Partition, int]:
        # Not with the admin client: its requests to a coordinator that is slow to answer can abort
        # the process (librdkafka 4605, 5397).
        offsets: dict[Partition, int] = {}
        for group, partitions in self._arcs.items():
            with closing(PartitionReader(self._config, group)) as reader:
                offsets |= offsets_of(reader.committed(partitions, _REQUEST_TIMEOUT_S))
        return offsets
