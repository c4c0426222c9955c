"""Networks between one TaskManager and the broker that are slow, one-way or cut."""

from __future__ import annotations

import time

from tests.chaos.catalog import Where, fault
from tests.chaos.proxy import Link
from tests.chaos.rig import FIRST, HEARTBEAT_S, Rig

RECOVERY_TIMEOUT_S = 90.0


def _link(rig: Rig) -> Link:
    assert rig.link is not None, "this cluster has no link"
    return rig.link


def _break_past_detection(rig: Rig, what: str) -> None:
    """Wait until the others have taken over, then repair the link, which was just broken."""
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    time.sleep(rig.random.uniform(0, 6) * HEARTBEAT_S)
    _link(rig).mend()
    rig.say(f"{what} at TaskManager {FIRST}; all keys flow after {seconds:.1f} s, before the mend")


@fault("cut-link", where=Where.ONE_HOST)
def cut_link(rig: Rig) -> None:
    """The link of a TaskManager is cut past detection: connections are reset."""
    rig.mark()
    _link(rig).cut()
    _break_past_detection(rig, "link cut")


@fault("one-way-to-client", where=Where.ONE_HOST)
def one_way_to_client(rig: Rig) -> None:
    """A TaskManager's requests are lost, past detection; nothing is reset."""
    rig.mark()
    _link(rig).block(to_broker=True, to_client=False)
    _break_past_detection(rig, "no way to the broker")


@fault("one-way-to-broker", where=Where.ONE_HOST)
def one_way_to_broker(rig: Rig) -> None:
    """A TaskManager's requests arrive, the answers do not: it beats, but cannot commit."""
    rig.mark()
    _link(rig).block(to_broker=False, to_client=True)
    time.sleep(rig.random.uniform(2, 15))
    _link(rig).mend()
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    rig.say(f"no answers for TaskManager {FIRST}; all keys flow after {seconds:.1f} s")


@fault("slow-link", where=Where.ONE_HOST)
def slow_link(rig: Rig) -> None:
    """A TaskManager's link is slow, with 20 to 300 ms in each direction: all goes on."""
    delay_ms = rig.random.uniform(20, 300)
    rig.mark()
    _link(rig).delay(delay_ms)
    time.sleep(4 * HEARTBEAT_S)
    seconds = rig.wait_for_flow(RECOVERY_TIMEOUT_S)
    _link(rig).mend()
    rig.say(f"{delay_ms:.0f} ms more at TaskManager {FIRST}; all keys flow after {seconds:.1f} s")
