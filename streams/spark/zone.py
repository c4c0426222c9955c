"""The time zone of a Spark session, which Python has too: in the driver and in Spark's workers.

PySpark turns timestamps into `datetime` and back in the local time of a Python process. Without
this, a function would give another hour on a host of another zone (SPARK-33863).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.zones import tz_variable, zone_named

TIME_ZONE = "spark.sql.session.timeZone"
_TZ = "TZ"
_TZ_OF_WORKERS = f"spark.executorEnv.{_TZ}"
_DEFAULT = "UTC"


def zoned(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings with the zone of the session, UTC by default, also for workers."""
    zone = settings.get(TIME_ZONE, _DEFAULT)
    return {**settings, TIME_ZONE: zone, _TZ_OF_WORKERS: tz_variable(zone)}


def enter_zone(settings: Mapping[str, str]) -> None:
    """Give this process the zone of `zoned` settings, for good.

    Raises `UnavailableError` if the host has no files of time zones: the C library would then take
    UTC without a word.
    """
    name = os.environ[_TZ] = settings[_TZ_OF_WORKERS]
    time.tzset()
    if not _is_known(name):
        raise UnavailableError(
            f"this host has no files of the time zone {settings[TIME_ZONE]}, which "
            f"{TIME_ZONE} of config.yaml names: install its package tzdata"
        )


def adopted(running: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return a session next to one that somebody started in this process, in the zone of `conf`.

    Raises `ConfigError` if others in this process have another zone: Spark keeps the environment of
    a Python function from its first use on.
    """
    settings = zoned(conf)
    wanted = settings[_TZ_OF_WORKERS]
    found = running.sparkContext.environment.setdefault(_TZ, wanted)
    if found != wanted:
        raise ConfigError(
            f"Spark runs in this process with the time zone {found}, and {TIME_ZONE} is "
            f"{settings[TIME_ZONE]}: use one zone, or processes of their own"
        )
    enter_zone(settings)
    session = running.newSession()
    session.conf.set(TIME_ZONE, settings[TIME_ZONE])
    return session


def new_session(session: SparkSession) -> SparkSession:
    """Return another session in the zone of this one: Spark itself would not hand it on."""
    made = session.newSession()
    made.conf.set(TIME_ZONE, str(session.conf.get(TIME_ZONE)))
    return made


def _is_known(variable: str) -> bool:
    """Whether the C library has the local time of this TZ: in a winter, and in a summer."""
    if variable.startswith("<"):
        return True  # an offset needs no file
    moments = (datetime(2024, month, 1, tzinfo=UTC) for month in (1, 7))
    zone = zone_named(variable)
    return all(at.astimezone(zone).utcoffset() == at.astimezone().utcoffset() for at in moments)
