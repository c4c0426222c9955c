"""Deletes from the arcs what has been processed: nobody else reads them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from common.config import Config
from common.kafka.admin import Admin
from common.kafka.clients import HopelessError, Partition, TransactionFailedError
from common.kafka.data import PartitionReader

PURGE_INTERVAL_S = 30.0
_REQUEST_TIMEOUT_S = 30.0

logger = structlog.get_logger()


class ArcPurger:
    """Deletes, every 30 s, the records of arcs that come before the committed input offsets.

    Arcs have no time limit, as their records carry the source's timestamps; without this they
    would grow for ever. Kafka Streams does the same with its repartition topics (KAFKA-6150).
    Deleting twice, or by two JobManagers, does no harm. Runs in a thread of its own, because the
    brokers may take their time.
    """

    def __init__(self, config: Config, group: str, arcs: Sequence[str]) -> None:
        self._admin = Admin(config)
        # Not the admin client: its requests to a coordinator that is slow to answer can abort the
        # process (librdkafka 4605, 5397).
        self._reader = PartitionReader(config, group)
        self._partitions: list[Partition] = [
            (arc, number) for arc in arcs for number in range(config.parallelism)
        ]
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, unless the pipeline has no arcs."""
        if self._partitions:
            threading.Thread(target=self._run, name="purge", daemon=True).start()

    def stop(self) -> None:
        """End after the deletion that is under way, if there is one; does not wait."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(PURGE_INTERVAL_S):
            try:
                offsets = self._reader.committed(self._partitions, _REQUEST_TIMEOUT_S)
                if offsets:
                    self._admin.delete_before(offsets)
            except (HopelessError, TransactionFailedError) as error:
                logger.warning("processed records stay in the arcs for now", reason=str(error))
