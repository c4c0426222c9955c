"""Adjusts the number of records per call, so that a call takes about a given time."""

from __future__ import annotations


class CallSize:
    """Adjusts `limit`, a number of records, to how long calls take.

    `limit` starts at `fewest` (1 or more), because the time per record is still unknown. It at most
    doubles from call to call, and stays between `fewest` and `most`. A call should take `call_s`
    seconds.
    """

    def __init__(self, call_s: float, fewest: int, most: int) -> None:
        self.limit = fewest
        self._call_s = call_s
        self._fewest = fewest
        self._most = most

    def learn(self, records: int, seconds: float) -> None:
        """Adjust the limit to a call that took `seconds` for `records`."""
        wanted = int(records * self._call_s / max(seconds, 1e-6))
        # A small call says nothing about how fast a large one is.
        if records >= self.limit // 2 or wanted > self.limit:
            self.limit = max(self._fewest, min(wanted, 2 * self.limit, self._most))
