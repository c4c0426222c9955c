"""Functions of timestamps on hosts of any time zone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SUMMER_ENDS_S = 1_729_990_800
"""2024-10-27 01:00 UTC, where clocks of Berlin go from 03:00 back to 02:00."""
TIMES_S = [SUMMER_ENDS_S - 3600, SUMMER_ENDS_S - 1, SUMMER_ENDS_S]
FUNCTIONS = '''
"""Timestamps through each kind of function in Python, and through this process."""
import datetime

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

AT = TimestampType()
hour = F.udf(lambda at: f"{at.hour}:{at.minute}", StringType())
by_arrow = F.udf(lambda at: at, AT, useArrow=True)
by_pickle = F.udf(lambda at: at, AT, useArrow=False)
by_pandas = F.pandas_udf(lambda at: at, AT)
hour_of_pandas = F.pandas_udf(lambda at: at.dt.strftime("%-H:%-M"), StringType())


def seconds(column):
    return F.unix_seconds(column).cast("string")


def shown(frame):
    rows = frame.sparkSession.createDataFrame([(0,)], "s long").select(F.timestamp_seconds("s"))
    (collected,) = rows.collect()
    days = frame.sparkSession.table("days")
    parts = [
        hour("timestamp"), hour_of_pandas("timestamp"), F.date_format("timestamp", "H:m"),
        seconds(by_arrow("timestamp")), seconds(by_pickle("timestamp")),
        seconds(by_pandas("timestamp")),
        seconds(F.lit(datetime.datetime(1970, 1, 2))), F.lit(collected[0].isoformat()),
        seconds(F.col("at")),
    ]
    joined = frame.join(days, "key")
    return joined.select(F.concat_ws(" ", *parts).alias("value"))
'''
PIPELINE = """
- id: P
  type: dataframe
  function: shown_times:shown
  tables: {days: {format: csv, path: days.csv, schema: "key STRING, at TIMESTAMP"}}
  to: [sink]
"""
DRIVE = """
import json, sys
from pathlib import Path
from kafka_pipeline.testing import TopologyTestDriver
with TopologyTestDriver.of_pipeline(Path(sys.argv[1]), Path(sys.argv[2])) as driver:
    topic = driver.create_input_topic("in")
    for time_s in json.loads(sys.argv[3]):
        topic.pipe_input(b"k", b"v", timestamp=1000 * time_s)
    found = driver.create_output_topic("out").read_records()
    print(json.dumps([record.value.decode() for record in found]))
"""


def shown(folder: Path, zone_of_host: str, conf: str = "") -> list[str]:
    """Return what `FUNCTIONS` give for `TIMES_S` on a host of this time zone."""
    (folder / "config.yaml").write_text(
        f"{SMALL_CONFIG}modules: [shown_times]\npython_path: [.]\n{conf}"
    )
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "days.csv").write_text("k,1970-01-01 12:00:00\n")
    (folder / "shown_times.py").write_text(FUNCTIONS)
    files = [str(folder / "config.yaml"), str(folder / "pipeline.yaml"), json.dumps(TIMES_S)]
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, *files],
        cwd=ROOT,
        env=os.environ | {"TZ": zone_of_host},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.long
@pytest.mark.parametrize("host", ["America/Sao_Paulo", "Asia/Kolkata", "Europe/Berlin"])
def test_functions_give_the_same_on_every_host(tmp_path: Path, host: str) -> None:
    """SPARK-33863: an hour was 2, 22 or 4, and one was lost at the end of summer time."""
    hours = ["0:0", "0:59", "1:0"]
    assert shown(tmp_path, host) == [
        f"{hour} {hour} {hour} {time_s} {time_s} {time_s} 86400 1970-01-01T00:00:00 43200"
        for hour, time_s in zip(hours, TIMES_S, strict=True)
    ]


@pytest.mark.parametrize(
    ("zone", "hours", "offset_s"),
    long_but_the_first(
        [
            ("Asia/Kolkata", ["5:30", "6:29", "6:30"], 19_800),
            ("Etc/GMT+3", ["21:0", "21:59", "22:0"], -10_800),
        ]
    ),
)
def test_functions_have_the_zone_of_the_session(
    tmp_path: Path, zone: str, hours: list[str], offset_s: int
) -> None:
    conf = f"spark: {{conf: {{spark.sql.session.timeZone: {zone}}}}}\n"
    first = "1970-01-01T05:30:00" if offset_s > 0 else "1969-12-31T21:00:00"
    assert shown(tmp_path, "Europe/Berlin", conf) == [
        f"{hour} {hour} {hour} {time_s} {time_s} {time_s} {86400 - offset_s} {first} "
        f"{43200 - offset_s}"
        for hour, time_s in zip(hours, TIMES_S, strict=True)
    ]
