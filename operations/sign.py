"""Signs what a job is to run with the key of config.yaml."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.deployment.desired_state import Wish
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.deployment.pipeline_topic import (
    ChangedMeanwhileError,
    DeploymentEditor,
    UnsignedPipelineError,
)


@dataclass(frozen=True, slots=True)
class Signing:
    """What is there to be signed with a key; `carry_out` signs it.

    `source` is how it can be read: without a key if it is not signed with one that is known.
    """

    source: Config
    key: ControlKey
    wish: Wish
    versions: tuple[int, ...]

    @property
    def is_signed(self) -> bool:
        """Whether it has a valid signature already, perhaps with the former key."""
        return self.source.control_key is not None

    def carry_out(self) -> None:
        """Write it once more, signed with the first key.

        Raises `ChangedMeanwhileError` if it is not the same any more, else as `DeploymentEditor`.
        """
        with closing(DeploymentEditor(self.source, connected(self.source))) as editor:
            if editor.deployment.wish != self.wish:
                raise ChangedMeanwhileError("the pipeline has changed meanwhile: check it again")
            editor.sign(self.key)


def found_to_sign(config: Config) -> Signing:
    """Return what the job is to run.

    Raises `ConfigError` if there is no key or no pipeline, and `UnavailableError` if Kafka does
    not answer.
    """
    if config.control_key is None:
        raise ConfigError("config.yaml has no control_key_file: there is no key to sign with")
    source, admin = config, connected(config)
    try:
        found = read_deployment(source, admin)
    except UnsignedPipelineError:
        source = replace(config, control_key=None)
        found = read_deployment(source, admin)
    if found.wish is None:
        raise ConfigError("this job has no pipeline yet: what `pipeline apply` writes is signed")
    return Signing(source, config.control_key, found.wish, tuple(found.numbers))
