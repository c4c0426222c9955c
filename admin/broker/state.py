"""The state file by which other commands find a running local cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.broker.ports import MAX_PORT
from kafka_pipeline.admin.broker.processes import BrokerProcess
from kafka_pipeline.admin.broker.properties import BrokerNode
from kafka_pipeline.common.errors import UnavailableError

# No operating system uses a larger pid.
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and the process last started for it, which may have ended since."""

    node: BrokerNode
    process: BrokerProcess | None

    @property
    def is_running(self) -> bool:
        """Whether that process still runs."""
        return self.process is not None and self.process.is_running()


def read_state(file: Path) -> tuple[NodeState, ...]:
    """Return the nodes of the cluster that was started; none if the file does not exist.

    Raises `UnavailableError` when the file is damaged or cannot be read.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return tuple(_decode(entry) for entry in content["brokers"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UnavailableError(f"{file} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UnavailableError(
            f"{file} is damaged. End the Java process of the broker if one runs, delete that file "
            "and start the broker again."
        ) from error


def write_state(file: Path, states: Sequence[NodeState]) -> None:
    """Replace the file atomically, so that no reader sees half of it."""
    part = file.with_name(f"{file.name}.part")
    content = {"brokers": [_encode(state) for state in states]}
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(part, file)


def _encode(state: NodeState) -> Mapping[str, Any]:
    return {**asdict(state.node), "process": asdict(state.process) if state.process else None}


def _decode(entry: Mapping[str, Any]) -> NodeState:
    process = entry["process"]
    port, controller_port = (_number(entry[name], MAX_PORT) for name in ("port", "controller_port"))
    tls_port = None if entry["tls_port"] is None else _number(entry["tls_port"], MAX_PORT)
    return NodeState(
        BrokerNode(_number(entry["id"], _MAX_INT), port, controller_port, tls_port),
        None
        if process is None
        else BrokerProcess(_number(process["pid"], _MAX_INT), str(process["started"])),
    )


def _number(value: Any, most: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"not a whole number from 1 to {most}: {value}")
    return value
