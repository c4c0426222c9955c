"""This engine as a contender: its commands, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import plan
from benchmarks.contender import Job, Running
from benchmarks.dsl_jobs import TABLE
from tests.engine import Engine

ROOT = Path(__file__).parents[2]
STAGE = "Stage"
_CLASS = """
- id: Stage
  type: benchmarks.counting:{}
  to: [sink]
  serdes: {{key: string, value: string, out_value: integer}}
  stores: [{{name: Counts, key: string, value: int64}}]
"""
_TOPOLOGY = """
- id: Stage
  type: topology
  builder: benchmarks.dsl_jobs:{}
  config: {{source: source, sink: sink}}
"""
PIPELINES = {
    "forward": "- {id: Stage, type: forward, to: [sink]}\n",
    "sum": "- {id: Stage, type: sum, to: [sink]}\n",
    "count": "- {id: Stage, type: count, to: [sink]}\n",
    "chain": (
        "- {id: First, type: forward, to: [Stage]}\n- {id: Stage, type: count, to: [sink]}\n"
    ),
    "sql": """
- id: Stage
  type: sql
  query: SELECT key, value FROM input WHERE value LIKE '%1'
  to: [sink]
""",
    "sql-all": """
- id: Stage
  type: sql
  query: SELECT key, value FROM input WHERE length(value) > 0
  to: [sink]
""",
    "sql-windowed-count": """
- id: Stage
  type: sql
  query: >
    SELECT key, CAST(count(*) AS STRING) AS value FROM input
    GROUP BY key, window(timestamp, '36500 days')
  to: [sink]
""",
    "sql-windowed-last": """
- id: Stage
  type: sql
  query: SELECT key, max(value) AS value FROM input GROUP BY key, window(timestamp, '36500 days')
  to: [sink]
""",
    "sql-stream-table": f"""
sources: {{rows: {TABLE}}}
processors:
- id: Stage
  type: sql
  from: [source]
  tables: {{rows: {{topic: rows}}}}
  query: >
    SELECT i.key, if(r.value IS NULL, 'none', i.value) AS value
    FROM input i LEFT JOIN rows r ON i.key = r.key
  to: [sink]
""",
    "minute-counts": _TOPOLOGY.format("minute_counts"),
    "sql-minute-counts": """
- id: Stage
  type: sql
  format: json
  schema: user STRING, place STRING, n INT
  query: >
    SELECT place AS key, unix_millis(window.start) AS minute, count(*) AS records FROM input
    GROUP BY place, window(timestamp, '1 minute')
  emit: on_close
  grace: 0 s
  to: [sink]
""",
    "sql-arc-minute-counts": """
- id: ByPlace
  type: sql
  format: json
  schema: user STRING, place STRING, n INT
  query: SELECT place AS key, user, n FROM input
  to: [Stage]
- id: Stage
  type: sql
  format: json
  schema: user STRING, n INT
  query: >
    SELECT key, unix_millis(window.start) AS minute, count(*) AS records FROM input
    GROUP BY key, window(timestamp, '1 minute')
  emit: on_close
  grace: 0 s
  to: [sink]
""",
    "processor": _CLASS.format("Counting"),
    "batch": _CLASS.format("BatchCounting"),
    **{job: _TOPOLOGY.format(job.replace("-", "_")) for job in plan.DSL_JOBS},
}


MODULES = ("benchmarks.counting", "benchmarks.dsl_jobs")


class ThisEngine:
    """A JobManager, and one TaskManager with its PipelineThreads per instance.

    `pipelines` has the text of pipeline.yaml for each kind of job, and `modules` its code.
    `settings` are keys of config.yaml in addition to those that the job needs.
    """

    def __init__(
        self,
        title: str = plan.OURS,
        pipelines: Mapping[str, str] = PIPELINES,
        modules: Sequence[str] = MODULES,
        **settings: object,
    ) -> None:
        self.title = title
        self._pipelines = pipelines
        self._modules = modules
        self._settings = settings

    def prepare(self, folder: Path) -> None:
        """Do nothing: the current environment has all that is needed."""

    def start(self, job: Job) -> Running:
        """Start a JobManager, and a TaskManager for each instance."""
        engine = Engine(
            job.folder,
            job.servers,
            job.name,
            self._pipelines[job.kind],
            source_topic=job.source,
            sink_topic=job.sink,
            tm_number=job.instances,
            state_dir=job.state_dir(0),
            modules=f"[{', '.join(self._modules)}]",
            python_path=f"[{ROOT}]",
            **self._settings,
        )
        job_manager = engine.start_job_manager()
        task_managers = [
            engine.start_task_manager(number, threads=job.threads)
            for number in range(job.instances)
        ]
        return Running(
            [[daemon] for daemon in task_managers], [job_manager], group=_source_group(engine)
        )


def _source_group(engine: Engine) -> str:
    """Return the group of the processor that reads the source first."""
    pipeline = engine.pipeline
    reader = next(
        each for each in pipeline.processors if pipeline.names.source in pipeline.in_topics(each)
    )
    return pipeline.names.consumer_group(reader.id)
