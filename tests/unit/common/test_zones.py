"""Names of time zones, and what TZ says for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kafka_pipeline.common.zones import tz_variable, zone_named

OFFSET = "import time; print(time.localtime(0).tm_gmtoff)"


@pytest.mark.parametrize(
    ("zone", "offset_s"),
    [
        ("Z", 0),
        ("UTC", 0),
        ("Asia/Kolkata", 19_800),
        ("Etc/GMT+3", -10_800),
        ("+05:30", 19_800),
        ("-08:00", -28_800),
        ("+2", 7_200),
        ("-0930", -34_200),
        ("GMT+8", 28_800),
        ("UTC-03:00:30", -10_830),
        ("+18:00", 64_800),
    ],
)
def test_c_library_has_the_offset_of_spark(zone: str, offset_s: int) -> None:
    """Spark's `+05:30` is east of Greenwich, and TZ's is west."""
    environment = os.environ | {"TZ": tz_variable(zone)}
    command = [sys.executable, "-c", OFFSET]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) == offset_s


@pytest.mark.parametrize("name", ["Berlin", "", "+1h", "../UTC", "+18:01", "+05:75", "PST"])
def test_others_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time zone|is not an offset"):
        tz_variable(name)


def test_error_says_what_to_write() -> None:
    with pytest.raises(ValueError, match='did you mean "America/Sao_Paulo"') as raised:
        zone_named("America/Sao Paulo")
    assert 'write a name of the IANA database, such as "Europe/Berlin" or "UTC"' in str(
        raised.value
    )
