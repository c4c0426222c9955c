"""Spark's settings for a TaskManager: the slots to request, and the executors for its threads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.config.config import SparkConfig
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.spark.environment import DEFAULTS, EXECUTOR_JVM, GUARDED, LOCAL

SLOTS_PER_THREAD = 2
"""One for the PipelineThread, which never ends, and one for the queries of its tasks."""
_LOCAL_SLOTS = SLOTS_PER_THREAD + 1
"""One more with a local master, where slots cost nothing, for a spare thread."""

_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:\s*,\s*[0-9]+)?\])?")
_STANDALONE = "spark://"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Spark's own settings, and the reason if they rule out queries."""

    values: Mapping[str, str]
    no_queries: str = ""
    spares: int = 0
    """The number of slots for spare threads, whose tasks may end their workers."""


def spark_settings(config: SparkConfig, threads: int) -> SparkSettings:
    """Return the settings of config.yaml, over defaults that give each PipelineThread a slot.

    Raises `ConfigError` if there are fewer slots than `threads`, or for an invalid number.
    """
    local = _LOCAL.fullmatch(config.master)
    master, defaults, slots, cure = (
        _local(config.master, threads, local[1] or "1") if local else _cluster(config, threads)
    )
    if slots is not None and slots < threads:
        raise ConfigError(
            f"spark.master {config.master} has {counted(slots, 'slot')}, but "
            f"{counted(threads, 'thread')} need one each: {cure}"
        )
    no_queries = (
        f"spark.master {config.master} of config.yaml leaves no slot for queries next to "
        f"{counted(threads, 'thread')}: {cure}"
        if slots == threads
        else ""
    )
    values = {
        **DEFAULTS,
        **defaults,
        **config.conf,
        "spark.master": master,
        # The TaskManager itself restarts a PipelineThread that ends, since it knows its tasks.
        "spark.task.maxFailures": "1",
        # A second copy of a task would fence the first one.
        "spark.speculation": "false",
    }
    spares = 0 if slots is None else max(min(slots - SLOTS_PER_THREAD * threads, threads), 0)
    return SparkSettings(values, no_queries, spares)


def unguarded(values: Mapping[str, str]) -> list[str]:
    """Return the disabled settings without which others can read the data that Spark handles."""
    return [name for name in GUARDED if values.get(name, "").lower() != "true"]


def _local(master: str, threads: int, slots: str) -> tuple[str, dict[str, str], int, str]:
    count = max(_LOCAL_SLOTS * threads, os.cpu_count() or 1) if slots == "*" else int(slots)
    return (
        f"local[{count}]" if slots == "*" else master,
        LOCAL,
        count,
        f"use local[*] or local[{SLOTS_PER_THREAD * threads}]",
    )


def _cluster(config: SparkConfig, threads: int) -> tuple[str, dict[str, str], int | None, str]:
    """Request one executor with one slot per thread, so that no two threads share an executor.

    By default, a standalone master would give all its cores, and other masters two executors. The
    number of slots is `None` if Spark creates executors on demand.
    """
    conf = config.conf
    task_cpus = _number(conf, "spark.task.cpus", 1)
    cores = _number(conf, "spark.executor.cores", task_cpus)
    per_executor = cores // task_cpus
    if not per_executor:
        raise ConfigError(
            f"spark.executor.cores {cores} is below spark.task.cpus {task_cpus}: "
            "an executor could run nothing"
        )
    defaults = {
        "spark.executor.cores": str(cores),
        "spark.executor.extraJavaOptions": EXECUTOR_JVM,
        # Otherwise, failures would add up over months until Spark gives up (YARN, Kubernetes).
        "spark.executor.failuresValidityInterval": "1h",
        "spark.yarn.am.attemptFailuresValidityInterval": "1h",
    }
    if conf.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        return config.master, defaults, None, ""
    is_standalone = config.master.startswith(_STANDALONE)
    limit = "spark.cores.max" if is_standalone else "spark.executor.instances"
    cores_each = cores if is_standalone else 1
    needed = -(-threads // per_executor) * cores_each
    with_queries = -(-SLOTS_PER_THREAD * threads // per_executor) * cores_each
    found = _number(conf, limit, needed)
    return (
        config.master,
        {**defaults, limit: str(found)},
        found // cores_each * per_executor,
        f"set {limit} to {with_queries} under spark: {{conf}}",
    )


def _number(conf: Mapping[str, str], name: str, default: int) -> int:
    text = conf.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise ConfigError(f'{name} of config.yaml is "{text}": it must be a number, 1 or more')
    return int(text)
