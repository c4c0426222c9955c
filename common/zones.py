"""Time zones: those of the IANA database by name, and offsets from UTC.

Zones come from `zoneinfo`: it reads the files of the host or, without them, those of the package
tzdata.
"""

from __future__ import annotations

import re
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from kafka_pipeline.common.suggest import did_you_mean

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?([0-5]\d)(?::?([0-5]\d))?)?")
_LARGEST_OFFSET_S = 18 * 3600


def zone_named(name: str) -> ZoneInfo:
    """Return a zone of the IANA database, such as `Europe/Berlin` or `UTC`.

    Raises ValueError, with a message for the user, if there is none of this name.
    """
    if name not in _names():
        raise ValueError(
            f'"{name}" is not a time zone{did_you_mean(name, _names())}: write a name of the IANA '
            'database, such as "Europe/Berlin" or "UTC"'
        )
    return ZoneInfo(name)


def tz_variable(zone: str) -> str:
    """Return the environment variable TZ for a zone as Spark names it.

    Spark also accepts offsets, such as `+05:30`. In TZ, these have a name and the opposite sign.
    Raises ValueError, with a message for the user, if the zone is neither an offset nor a name.
    """
    if zone == "Z":
        return "UTC"
    offset = None if zone in _names() else _OFFSET.fullmatch(zone)
    if offset is None:
        return zone_named(zone).key
    sign, *parts = offset.groups(default="0")
    hours, minutes, seconds = map(int, parts)
    if hours * 3600 + minutes * 60 + seconds > _LARGEST_OFFSET_S:
        raise ValueError(f'"{zone}" is not an offset: the largest are +18:00 and -18:00')
    digits = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"<{sign}{digits.replace(':', '')}>{'-' if sign == '+' else '+'}{digits}"


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones())
