"""Passes frames on between two devices, and loses, delays, repeats and so reorders some of them.

A process of its own, as not every kernel has netem. It needs nothing but the standard library:

    python -I relay.py DEVICE DEVICE LOSS DELAY_MS JITTER_MS DUPLICATES SEED

LOSS and DUPLICATES are shares, from 0 to 1. Each frame is late by DELAY_MS ± JITTER_MS, so frames
overtake each other. The seed decides what happens to the n-th frame. Ends when its input does.
"""

from __future__ import annotations

import heapq
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random

_ALL_PROTOCOLS = 0x0003
_OUTGOING = 4
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
"""With this header, checksums that are not computed yet and whole bursts pass as they are."""
_MAX_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class Harm:
    """What happens to frames."""

    loss: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    duplicates: float = 0.0

    def delays_s(self, random: Random) -> list[float]:
        """Return after which times a frame goes on: none if it is lost, two if it is repeated."""
        copies = (random.random() >= self.loss) * (1 + (random.random() < self.duplicates))
        low, high = self.delay_ms - self.jitter_ms, self.delay_ms + self.jitter_ms
        return [max(random.uniform(low, high), 0) / 1000 for _ in range(copies)]


def _open(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.bind((device, _ALL_PROTOCOLS))
    opened.setblocking(False)
    return opened


def _relay(devices: tuple[str, str], harm: Harm, random: Random) -> None:
    left, right = map(_open, devices)
    other = {left: right, right: left}
    numbers = count()
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    print("ready", flush=True)
    while True:
        timeout_s = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        readable, _, _ = select.select([*other, sys.stdin], [], [], timeout_s)
        if sys.stdin in readable:
            return
        now_s = time.monotonic()
        for source in other.keys() & readable:
            frame, address = source.recvfrom(_MAX_BYTES)
            if address[2] != _OUTGOING:
                for delay_s in harm.delays_s(random):
                    heapq.heappush(waiting, (now_s + delay_s, next(numbers), other[source], frame))
        while waiting and waiting[0][0] <= now_s:
            _, _, target, frame = heapq.heappop(waiting)
            # A full queue loses frames, as that of a switch does.
            with suppress(OSError):
                target.send(frame)


if __name__ == "__main__":
    _relay((sys.argv[1], sys.argv[2]), Harm(*map(float, sys.argv[3:7])), Random(sys.argv[7]))
