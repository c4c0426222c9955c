"""The pipeline topic of a job: read from its first record on, and changed by one at a time."""

from __future__ import annotations

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.control_inbox import REJECTED
from kafka_pipeline.common.control.topics import control_topic
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader
from kafka_pipeline.common.kafka.read_to_end import read_to_end
from kafka_pipeline.common.monitoring.counted_log import CountedLog
from kafka_pipeline.common.protocol.messages import MalformedMessageError
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish

_STALL_TIMEOUT_S = 30.0
_POLL_S = 0.1
_FROM_THE_START = 2**62

logger = structlog.get_logger()


class UnsignedPipelineError(ConfigError):
    """The pipeline topic has no wish that is signed with the key; `pipeline sign` makes one."""


class ChangedMeanwhileError(PipelineError):
    """Somebody else has changed what the job is to run: read it again, and decide then."""


class DeploymentReader:
    """Follows the pipeline topic of a job."""

    def __init__(self, config: Config, admin: Admin) -> None:
        """Read all that is there; a topic that does not exist is empty, and stays so.

        Raises `UnavailableError` if Kafka does not answer, `UnreadableDeploymentError` if
        another version of the engine has written the topic, and `UnsignedPipelineError` if what
        the job is to run is not signed with the key of this process.
        """
        topic = config.topic_names.pipeline
        self.deployment = Deployment(config.topic_names, config.control_key)
        self._rejected = CountedLog(logger, REJECTED)
        self._reader: ControlReader | None = None
        if not admin.finds(topic):
            return
        self._reader = ControlReader(config, [topic], _FROM_THE_START)
        # The end for `read_committed` may come before a transaction that was committed just now:
        # its marker is written after the commit has returned.
        try:
            ends = admin.high_watermarks([(topic, 0)])
            for _ in read_to_end(self._reader, ends, lambda: self.read(_POLL_S), _STALL_TIMEOUT_S):
                if self._reader.refusal:
                    raise UnavailableError(
                        f"what the job runs cannot be read: {self._reader.refusal}"
                    )
        except EngineError as error:
            raise UnavailableError(f"what the job runs cannot be read: {error}") from error
        if self.deployment.wish is None and self.deployment.has_unsigned_wish:
            self.close()
            raise UnsignedPipelineError(
                f"what the job runs, in topic {topic}, is not signed with a key of "
                "control_key_file. If that file is the right one, sign it with `pipeline sign`"
            )

    @property
    def rejected(self) -> int:
        """How many records do not count because of the key."""
        return self._rejected.total

    def read(self, wait_s: float) -> None:
        """Take in what is new, after waiting for it up to `wait_s`.

        Raises `UnreadableDeploymentError` if another version of the engine has written it.
        """
        found = self._reader.read(wait_s) if self._reader else []
        for record in found:
            try:
                self.deployment.take(record)
            except MalformedMessageError as error:
                self._rejected.add(str(error))

    def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            self._reader.close()


class DeploymentEditor:
    """Changes what a job is to run.

    Opening one makes the changes of all others fail that were opened before. So what was
    decided by `deployment` is written only if it has not changed since.
    """

    def __init__(self, config: Config, admin: Admin) -> None:
        """Make the topic if it is missing, fence others, and read; raises as `DeploymentReader`."""
        names = config.topic_names
        admin.ensure_topics([control_topic(config, names.pipeline)])
        try:
            self._writer = CommandWriter(
                config, names.pipeline_transactional_id, config.max_message_bytes
            )
        except FencedError as error:
            raise _changed() from error
        except (TransactionFailedError, NonRetriableError) as error:
            raise UnavailableError(f"the pipeline cannot be changed now: {error}") from error
        self._reader = DeploymentReader(config, admin)
        if self.deployment.is_signed and config.control_key is None:
            logger.warning(
                "what the job is to run is signed, and this process has no key: a JobManager that "
                "has the key ignores what is written now. Set control_key_file in config.yaml"
            )

    @property
    def deployment(self) -> Deployment:
        """What the topic says."""
        return self._reader.deployment

    def write(self, wish: Wish, *versions: PipelineVersion) -> None:
        """Write a new wish, and versions that are new; afterwards, `deployment` has them.

        Raises `ChangedMeanwhileError` if somebody else has begun a change, and `UnavailableError`
        if Kafka does not take it now.
        """
        written = self.deployment.records(wish, *versions)
        try:
            self._writer.write(written)
        except FencedError as error:
            raise _changed() from error
        except (TransactionFailedError, NonRetriableError) as error:
            raise UnavailableError(f"the pipeline cannot be changed now: {error}") from error
        for record in written:
            self.deployment.take(record)

    def sign(self, key: ControlKey) -> None:
        """Write all that counts once more, signed with another key. Raises as `write`."""
        deployment = self.deployment
        assert deployment.wish is not None
        deployment.key = key
        self.write(deployment.wish, *map(deployment.version, deployment.numbers))

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


def _changed() -> ChangedMeanwhileError:
    return ChangedMeanwhileError(
        "somebody else has begun to change the pipeline at the same time: look at `pipeline plan` "
        "again"
    )
