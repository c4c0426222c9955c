"""Topologies that a user's function builds: `type: topology`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.errors import ConfigError
from streams.builder import TopologyBuilder
from streams.engine.user_code import UserCode
from streams.engine.user_frames import described
from streams.errors import StreamsError
from streams.topology import Topology


def build_topology(code: UserCode, reference: str, config: Mapping[str, Any]) -> Topology:
    """Call the function with the config as keyword arguments; it returns a builder or topology.

    Raises ConfigError if the function is not found, fails, or returns something else, and
    TopologyError if the topology is invalid.
    """
    function = code.load(reference)
    try:
        built = function(**config)
    except StreamsError:
        raise
    except Exception as error:
        raise ConfigError(f"{reference} fails: {described(error)}") from error
    if isinstance(built, TopologyBuilder):
        built = built.build()
    if not isinstance(built, Topology):
        raise ConfigError(
            f"{reference} returns a {type(built).__name__}: it must return a TopologyBuilder or "
            "what its build() returns"
        )
    return built
