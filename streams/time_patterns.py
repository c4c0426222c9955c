"""Times as text, by a pattern such as `yyyy-MM-dd HH:mm:ss`, as in Java and Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from kafka_pipeline.common.clock import ms_of
from kafka_pipeline.common.zones import zone_named

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_OFFSET = r"(?P<offset>Z|[+-][01]\d(?::?[0-5]\d)?)"
_LETTERS = {
    "yyyy": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d\d)",
    "M": r"(?P<month>\d{1,2})",
    "MMM": rf"(?P<month>{'|'.join(_MONTHS)})",
    "dd": r"(?P<day>\d\d)",
    "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d\d)",
    "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d\d)",
    "ss": r"(?P<second>\d\d)",
    "Z": _OFFSET,
    **{"X" * length: _OFFSET for length in (1, 2, 3)},
}
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """How times are written: the letters yyyy, MM, M, MMM, dd, d, HH, H, mm, ss, S, X and Z.

    MMM is the English name of a month, such as Nov. S, once for each digit, is the fraction of a
    second. Z, or X once to three times, is an offset such as +01:00, +0100, +01 or Z. Text is in
    single quotes; other characters are as they are. Times without an offset are those of the zone:
    where clocks go back, the first of two such times. Raises ValueError, with a message for the
    user, for a pattern or a zone that is not possible.
    """

    pattern: str
    zone: str = "UTC"
    _matches: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_matches", _compiled(self.pattern))
        object.__setattr__(self, "_zone", zone_named(self.zone))
        if "offset" in self._matches.groupindex and self.zone != "UTC":
            raise ValueError(
                f"the pattern {self.pattern} has the offset, so there is no zone to add"
            )

    def ms(self, text: str) -> int | None:
        """Return a time in ms since the epoch; `None` if the text is not a time of this form."""
        found = self._matches.fullmatch(text)
        if found is None:
            return None
        part = found.groupdict("0")
        month = part.get("month", "1")
        fraction = part.get("fraction", "0")[:3].ljust(3, "0")
        try:
            moment = datetime(
                int(part["year"]),
                _MONTHS.get(month) or int(month),
                int(part.get("day", "1")),
                int(part.get("hour", "0")),
                int(part.get("minute", "0")),
                int(part.get("second", "0")),
                int(fraction) * 1000,
                tzinfo=self._zone,
            )
            moment -= _offset(part["offset"]) if "offset" in part else timedelta()
        except (ValueError, OverflowError):
            return None
        return ms_of(moment)


def _offset(text: str) -> timedelta:
    if text == "Z":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern. Raises ValueError if there is none."""
    made, at = "", 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"the pattern {pattern} has a quote that is open")
        quoted, letters, other = token["quoted"], token["letters"], token["other"]
        if letters is None:
            made += re.escape("'" if quoted == "" else (quoted or other).replace("''", "'"))
        elif letters in _LETTERS:
            made += _LETTERS[letters]
        elif set(letters) == {"S"} and len(letters) <= 9:
            made += rf"(?P<fraction>\d{{{len(letters)}}})"
        else:
            raise ValueError(
                f"the pattern {pattern} has {letters}: use yyyy, MM, M, MMM, dd, d, HH, H, mm, ss, "
                "S, X and Z, and single quotes around text"
            )
        at = token.end()
    try:
        matches = re.compile(made, re.ASCII)
    except re.error:
        raise ValueError(f"the pattern {pattern} has the same part of a time twice") from None
    if "year" not in matches.groupindex:
        raise ValueError(f"the pattern {pattern} has no year: write yyyy")
    return matches
