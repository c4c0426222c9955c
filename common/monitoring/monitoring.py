"""What a daemon does to be monitored, if config.yaml asks for that."""

from __future__ import annotations

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.monitoring.exposition import Samples
from kafka_pipeline.common.monitoring.health import LoopWatch
from kafka_pipeline.common.monitoring.pages import Pages, Problems

logger = structlog.get_logger()


class Monitoring:
    """The pages of a daemon; without a `metrics_port` there are none, and nothing happens."""

    def __init__(self, config: Config) -> None:
        """Listen, before anything that takes long. Raises as `Pages`."""
        self._watch = LoopWatch(config)
        self._pages: Pages | None = None
        if config.metrics_port is not None:
            host = config.metrics_host
            self._pages = Pages(host, config.metrics_port, self._watch.problems)
            logger.info("metrics are shown", host=host, port=self._pages.port)

    def begin(self, samples: Samples, ready: Problems) -> None:
        """Show the daemon, which now runs."""
        if self._pages is not None:
            self._pages.show(samples, ready)

    def turned(self) -> None:
        """Record that the main loop has begun another round."""
        self._watch.turned()

    def close(self) -> None:
        """Stop listening."""
        if self._pages is not None:
            self._pages.close()
