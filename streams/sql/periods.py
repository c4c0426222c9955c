"""The periods of a calendar that times are in, in columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_pipeline.common.calendars import Calendar

Times = npt.NDArray[np.int64]


def spans(calendar: Calendar, times_ms: npt.NDArray[Any]) -> tuple[Times, Times]:
    """Return the starts and the ends in ms of the periods that times are in; see `Calendar.span`.

    That takes a call for each period, not for each time.
    """
    times = np.maximum(times_ms.astype(np.int64), 0)
    ordered, found, at = np.sort(times), [], 0
    while at < len(ordered):
        found.append(calendar.span(int(ordered[at])))
        at = int(np.searchsorted(ordered, found[-1][1]))
    starts, ends = np.array(found, np.int64).reshape(-1, 2).T
    periods = np.searchsorted(starts, times, "right") - 1
    return starts[periods], ends[periods]
