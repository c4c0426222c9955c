"""The list of faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module

from tests.chaos.rig import Rig

Act = Callable[[Rig], None]


class SkippedError(Exception):
    """This machine cannot cause the fault; the message gives the reason."""


class Where(Enum):
    """Where a fault can be played."""

    ANYWHERE = "anywhere"
    ONE_HOST = "without --hosts"
    """It needs what only a cluster on one host has, such as a link through a proxy."""
    HOSTS = "with --hosts"


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
    where: Where = Where.ANYWHERE

    def is_for(self, on_hosts: bool) -> bool:
        """Whether it can be played on several hosts, or on one."""
        return self.where is not (Where.ONE_HOST if on_hosts else Where.HOSTS)


_MODULES = (
    "broken_transactions",
    "broken_tables",
    "broken_workers",
    "broken_brokers",
    "broken_managers",
    "broken_operations",
    "broken_versions",
    "broken_links",
    "broken_state",
    "broken_shortages",
    "broken_records",
    "broken_user_code",
    "broken_topics",
    "broken_hosts",
    "broken_names",
    "broken_coordinators",
)

_faults: dict[str, Fault] = {}


def fault(
    name: str, *, brokers: int = 1, edits: bool = False, where: Where = Where.ANYWHERE
) -> Callable[[Act], Act]:
    """Register a function as a fault; the first line of its docstring is the summary."""

    def add(act: Act) -> Act:
        summary = (act.__doc__ or "").strip().splitlines()[0]
        _faults[name] = Fault(name, act, summary, brokers, edits, where)
        return act

    return add


def faults() -> dict[str, Fault]:
    """Return all faults by name, in the order of the list."""
    # Imported here, since these modules import this one to register their faults.
    for module in _MODULES:
        import_module(f"tests.chaos.{module}")
    return dict(_faults)
