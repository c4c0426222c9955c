"""The views of the console: the content of each page, from a snapshot, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka_pipeline.common.cluster.cluster_status import (
    TaskInfo,
    TaskManagerInfo,
    task_to_json,
)
from kafka_pipeline.common.cluster.figures import state_of
from kafka_pipeline.common.cluster.rates import Rates
from kafka_pipeline.common.pipelines.links import Link, links
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.views.drawn import Json, arc, nodes
from kafka_pipeline.console.views.figures import figures_of, rounded, tasks_of, waits_of
from kafka_pipeline.console.views.snapshot import Event, EventKind, Snapshot
from kafka_pipeline.streams import serdes

_STEADY_SHARE = 0.01
"""A lag that changes by less than this share in a minute is steady."""
_MINUTE_S = 60
_MOST_MOVES = 20


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Return the state of the job as a whole."""
    status = snapshot.status
    figures = figures_of(snapshot, status.tasks)
    return {
        "number": snapshot.number,
        "at_ms": snapshot.at_ms,
        "job_name": snapshot.job_name,
        "job_manager": {
            "state": str(status.job_manager.presence),
            "epoch": status.job_manager.epoch,
            "age_ms": status.job_manager.age_ms,
            "findings": list(status.job_manager.findings),
        },
        "task_managers": {
            "up": len(status.managers_up),
            "expected": len(status.task_managers),
        },
        "tasks": {"count": figures["tasks"], "states": figures["states"]},
        "lag": figures["lag"],
        "oldest_waiting_ms": figures["oldest_waiting_ms"],
        "deployment": _deployment(snapshot),
    }


def _deployment(snapshot: Snapshot) -> dict[str, Any] | None:
    if snapshot.deployed is None:
        return None
    version, wish = snapshot.deployed.version, snapshot.deployed.wish
    return {
        "version": version.number,
        "made_at_ms": version.made_at_ms,
        "made_by": version.made_by,
        "next": wish.next,
        "paused": [*wish.paused, *wish.paused_tasks],
        "drains": wish.drains,
        "stop": wish.stop and {"purpose": wish.stop.purpose, "by": wish.stop.by},
    }


def tasks(snapshot: Snapshot) -> dict[str, Any]:
    """Return the TaskManagers with the tasks of each thread, and the tasks without an owner."""
    status = snapshot.status
    owned: dict[int | None, list[TaskInfo]] = {}
    for info in (*status.tasks, *status.standbys):
        owned.setdefault(info.owner, []).append(info)
    return {
        "task_managers": [
            _task_manager(manager, owned.get(manager.id, [])) for manager in status.task_managers
        ],
        "without_owner": [_task(info) for info in owned.get(None, [])],
        "failures": [
            _task(info)
            for info in (*status.tasks, *status.standbys)
            if info.status and info.status.state in (TaskState.FAILED, TaskState.RESTARTING)
        ],
    }


def _task_manager(manager: TaskManagerInfo, owned: list[TaskInfo]) -> dict[str, Any]:
    of_thread: dict[int | None, list[TaskInfo]] = {}
    for info in owned:
        of_thread.setdefault(info.status.thread if info.status else None, []).append(info)
    threads = manager.threads if manager.is_up else ()
    numbers = {*range(len(threads)), *of_thread} - {None}
    return {
        "id": manager.id,
        "state": str(manager.presence),
        "host": manager.host,
        "pid": manager.pid,
        "age_ms": manager.age_ms,
        "threads": [
            {
                "number": number,
                "state": str(threads[number]) if number < len(threads) else None,
                "tasks": [_task(info) for info in of_thread.get(number, [])],
            }
            for number in sorted(number for number in numbers if number is not None)
        ],
        "not_reported": [_task(info) for info in of_thread.get(None, [])],
    }


def _task(info: TaskInfo) -> dict[str, Any]:
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "is_standby": info.task.standby > 0,
        "owner": info.owner,
        "state": state_of(info),
        "reason": info.reason,
        "activity": info.status.activity if info.status else "",
    }


def lag(snapshot: Snapshot) -> dict[str, Any]:
    """Return the lag of each task, with the partitions that it reads.

    A task that reads several partitions has one lag for all of them.
    """
    pipeline = snapshot.pipeline
    topics = {each.id: pipeline.in_topics(each) for each in pipeline.processors} if pipeline else {}
    return {
        "tasks": [
            {
                "id": str(info.task),
                "processor": info.task.processor,
                "partitions": _partitions(pipeline, topics.get(info.task.processor, ()), info.task),
                "state": state_of(info),
                **_lag_figures(info),
                **forecast(info.lag, snapshot.rates.get(info.task, Rates()).lag),
            }
            for info in snapshot.status.tasks
        ]
    }


def forecast(lag: int | None, change: float | None) -> dict[str, Any]:
    """Return the forecast of a lag that changes by `change` per second.

    `trend` is `done` (there is no lag), `unknown`, `steady`, `growing` or `shrinking`; only the
    last one has an `eta_s`, the seconds until the lag is 0.
    """
    found: dict[str, Any] = {"change_per_s": rounded(change)}
    if lag == 0:
        return found | {"trend": "done", "eta_s": None}
    if lag is None or change is None:
        return found | {"trend": "unknown", "eta_s": None}
    if abs(change) * _MINUTE_S < max(lag * _STEADY_SHARE, 1):
        return found | {"trend": "steady", "eta_s": None}
    if change > 0:
        return found | {"trend": "growing", "eta_s": None}
    return found | {"trend": "shrinking", "eta_s": round(lag / -change)}


def _partitions(pipeline: Pipeline | None, topics: Iterable[str], task: TaskId) -> list[str]:
    """Return the partitions of topics that a task reads."""
    number = task.partition
    return [
        f"{topic}[{number}]"
        for topic in topics
        if pipeline is not None and number < pipeline.partitions_of(topic)
    ]


def _lag_figures(info: TaskInfo) -> dict[str, int | None]:
    names = ("lag", "lag_age_ms", "oldest_waiting_ms")
    return {name: info.status.gauge(name) if info.status else None for name in names}


def transactions(snapshot: Snapshot) -> dict[str, Any]:
    """Return the commits of each task, and its restarts.

    `last_commit_age_ms` is the age of the heartbeat that reported the latest transaction; null if
    there was none since the console first saw the task on its current TaskManager.
    """
    return {
        "tasks": [
            _transactions_of(snapshot, info, snapshot.rates.get(info.task, Rates()))
            for info in snapshot.status.tasks
        ]
    }


def _transactions_of(snapshot: Snapshot, info: TaskInfo, rates: Rates) -> dict[str, Any]:
    status = info.status
    at_ms = rates.committed_at_ms
    per_commit = None
    if rates.transactions and rates.records_in is not None:
        per_commit = round(rates.records_in / rates.transactions, 1)
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "owner": info.owner,
        "state": state_of(info),
        "transactions": status.count("transactions") if status else None,
        "per_s": rounded(rates.transactions),
        "records_per_transaction": per_commit,
        "last_commit_age_ms": None if at_ms is None else max(snapshot.at_ms - at_ms, 0),
        "lag": info.lag,
        "restarts": status.count("restarts") if status else None,
        "reason": info.reason,
    }


def moves(snapshot: Snapshot) -> dict[str, Any]:
    """Return the tasks that restore their state or start, all standbys, and the latest moves."""
    status = snapshot.status
    everyone = (*status.tasks, *status.standbys)
    latest = [event for event in snapshot.events if event.kind is EventKind.MOVE][-_MOST_MOVES:]
    return {
        "restoring": [_restore(info) for info in everyone if state_of(info) == TaskState.RESTORING],
        "starting": [
            _place(info)
            for info in status.tasks
            if info.status is None
            or info.status.state in (TaskState.STARTING, TaskState.RESTARTING)
        ],
        "standbys": [_standby(info) for info in status.standbys],
        "moves": [_event(event) for event in reversed(latest)],
    }


def _place(info: TaskInfo) -> dict[str, Any]:
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "owner": info.owner,
        "state": state_of(info),
        "reason": info.reason,
    }


def _restore(info: TaskInfo) -> dict[str, Any]:
    assert info.status is not None
    return {
        **_place(info),
        "restored": info.status.count("restored"),
        "to_restore": info.status.count("to_restore"),
        "percent": info.restore_percent,
        "eta_s": info.status.gauge("restore_eta_s"),
    }


def _standby(info: TaskInfo) -> dict[str, Any]:
    return {
        **_place(info),
        "of": str(info.task.active),
        "state_records": info.status.count("records_in") if info.status else None,
        "lag": info.lag,
    }


def history(snapshot: Snapshot) -> dict[str, Any]:
    """Return the latest events, the newest first."""
    return {"events": [_event(event) for event in reversed(snapshot.events)]}


def rates(snapshot: Snapshot) -> dict[str, Any]:
    """Return records per second and lag of each processor over time; null means unknown."""
    pipeline, samples = snapshot.pipeline, snapshot.samples
    return {
        "times_ms": [sample.at_ms for sample in samples],
        "processors": {
            each.id: {
                "rate_in": [rounded(sample.records_in.get(each.id), 1) for sample in samples],
                "lag": [sample.lag.get(each.id) for sample in samples],
            }
            for each in (pipeline.processors if pipeline else ())
        },
    }


def _event(event: Event) -> dict[str, Any]:
    """Return plain values for `json.dumps`."""
    return {
        "at_ms": event.at_ms,
        "kind": str(event.kind),
        "text": event.text,
        "reason": event.reason,
        "tasks": [str(task) for task in event.tasks],
        "task_count": event.task_count,
        "needs_care": event.needs_care,
    }


def topics(snapshot: Snapshot) -> dict[str, Any]:
    """Return the topics with records and state, and the names of serdes."""
    pipeline = snapshot.pipeline
    found = pipeline.data_topics(1) if pipeline else ()
    kinds = _kinds(pipeline) if pipeline else {}
    return {
        "topics": [
            {"name": spec.name, "kind": kinds[spec.name], "partitions": spec.partitions}
            for spec in found
        ],
        "serdes": list(serdes.NAMES),
    }


def _kinds(pipeline: Pipeline) -> dict[str, str]:
    dead = [pipeline.dead_letter_topic(each) for each in pipeline.processors]
    state = [
        topic for each in pipeline.processors for topic in pipeline.state_topics(each).values()
    ]
    written = [topic for each in pipeline.processors for topic in pipeline.out_topics(each)]
    read = [topic for each in pipeline.processors for topic in pipeline.read_topics(each)]
    return {
        **dict.fromkeys(written, "sink"),
        **dict.fromkeys(read, "source"),
        **dict.fromkeys(pipeline.arcs, "arc"),
        **dict.fromkeys(state, "state"),
        **dict.fromkeys((topic for topic in dead if topic), "dead letters"),
    }


def processor(snapshot: Snapshot, id_: str) -> dict[str, Any] | None:
    """Return a processor, its topics and its tasks; `None` if the pipeline does not have it."""
    pipeline = snapshot.pipeline
    found = [each for each in pipeline.processors if each.id == id_] if pipeline else []
    if pipeline is None or not found:
        return None
    (described,) = found
    tasks, newest_ms = tasks_of(snapshot, id_), snapshot.status.newest_record_ms
    return {
        "id": id_,
        "type": described.spec.type,
        "on_error": str(described.on_error),
        "reads": list(pipeline.read_topics(described)),
        "writes": list(pipeline.out_topics(described)),
        "state_topics": list(pipeline.state_topics(described).values()),
        "dead_letter_topic": pipeline.dead_letter_topic(described),
        "figures": figures_of(snapshot, tasks),
        "waits": waits_of(snapshot, id_),
        "tasks": [
            {**task_to_json(info, newest_ms), **_rates(snapshot.rates.get(info.task, Rates()))}
            for info in tasks
        ],
    }


def _rates(rates: Rates) -> dict[str, float | None]:
    return {"rate_in": rounded(rates.records_in), "rate_out": rounded(rates.records_out)}


def graph(snapshot: Snapshot) -> Json:
    """Return processors and topics as nodes, the arcs between them, and waits of event time.

    A topic between two processors is an arc. Heartbeats have the figures of tasks, not those of
    topics. So the rate of an arc is known if it is the only input of its reader or the only output
    of its writer, and its lag if it is the only input of its reader.
    """
    pipeline = snapshot.pipeline
    if pipeline is None:
        return {"nodes": [], "arcs": [], "waits": []}
    figures = {
        each.id: figures_of(snapshot, tasks_of(snapshot, each.id)) for each in pipeline.processors
    }
    processors = {
        each.id: {"type": each.spec.type, **figures[each.id]} for each in pipeline.processors
    }
    all_links = [*links(pipeline)]
    sole_in = {each.id for each in pipeline.processors if len(pipeline.read_topics(each)) == 1}
    sole_out = {each.id for each in pipeline.processors if len(pipeline.out_topics(each)) == 1}

    def known(link: Link) -> Json:
        """Return the figures of an arc that are known from its ends."""
        found: Json = {"rate": None, "lag": None, "dead_letters": None}
        writer, reader = link.writer, link.reader
        if writer is not None and link.has_dead_letters:
            return found | {"dead_letters": figures[writer]["dead_letters"]}
        if writer in sole_out:
            found["rate"] = figures[writer]["rate_out"]
        if reader in sole_in:
            found |= {"rate": figures[reader]["rate_in"], "lag": figures[reader]["lag"]}
        return found

    return {
        "nodes": nodes(processors, all_links),
        "arcs": [arc(link, known(link)) for link in all_links],
        "waits": waits_of(snapshot),
    }


VIEWS: Mapping[str, Callable[[Snapshot], dict[str, Any]]] = {
    "summary": lambda _: {},
    "graph": graph,
    "tasks": tasks,
    "lag": lag,
    "transactions": transactions,
    "moves": moves,
    "history": history,
    "rates": rates,
    "topics": topics,
}
PROCESSOR = "processors/"
"""The prefix of the view of a processor, which is followed by its id."""


def encode(snapshot: Snapshot, view: str) -> bytes | None:
    """Return a view as JSON; `None` if there is no such view.

    `view` is a name in `VIEWS`, or `processors/` with the id of a processor. Each view includes the
    summary, so that a page shows only data of one moment.
    """
    found: dict[str, Any] | None = None
    if view in VIEWS:
        found = VIEWS[view](snapshot)
    elif view.startswith(PROCESSOR):
        found = processor(snapshot, view.removeprefix(PROCESSOR))
    if found is None:
        return None
    body = {"summary": summary(snapshot), **found}
    return json.dumps(body, separators=(",", ":")).encode()
