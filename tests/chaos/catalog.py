"""The list of faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tests.chaos.rig import Rig

Act = Callable[[Rig], None]


class SkippedError(Exception):
    """This machine cannot cause the fault; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of failure, and what must hold then.

    `act` causes the failure under load, asserts what must hold beyond exact results, and repairs
    the cluster. The caller compares the results.
    """

    name: str
    act: Act
    summary: str
    brokers: int = 1
    edits: bool = False
    """Whether the fault edits the pipeline, so that some records get no sum."""


_MODULES = (
    "broken_transactions",
    "broken_workers",
    "broken_brokers",
    "broken_managers",
    "broken_operations",
    "broken_versions",
    "broken_links",
    "broken_state",
    "broken_records",
    "broken_user_code",
    "broken_topics",
)

_faults: dict[str, Fault] = {}


def fault(name: str, *, brokers: int = 1, edits: bool = False) -> Callable[[Act], Act]:
    """Register a function as a fault; the first line of its docstring is the summary."""

    def add(act: Act) -> Act:
        summary = (act.__doc__ or "").strip().splitlines()[0]
        _faults[name] = Fault(name, act, summary, brokers, edits)
        return act

    return add


def faults() -> dict[str, Fault]:
    """Return all faults by name, in the order of the list."""
    # Imported here, since these modules import this one to register their faults.
    for module in _MODULES:
        import_module(f"tests.chaos.{module}")
    return dict(_faults)
