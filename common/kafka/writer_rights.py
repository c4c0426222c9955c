"""Names the right that a transactional writer lacks, since Kafka's errors do not."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.admin import WRITE, Admin
from kafka_pipeline.common.kafka.clients import MissingRightError


def named(
    error: EngineError, config: Config, transactional_id: str, topics: Iterable[str] = ()
) -> EngineError:
    """Return the error of a writer to these topics; one about a missing right names that right.

    May ask a broker, and blocks for 6 s at most.
    """
    if not isinstance(error, MissingRightError):
        return error
    if error.is_on_a_transactional_id:
        return error.naming(f"{WRITE} of transactional id {transactional_id}")
    missing = Admin(config).missing_rights({topic: [WRITE] for topic in topics})
    return error.naming(", ".join(missing)) if missing else error
