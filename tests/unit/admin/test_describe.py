"""`pipeline describe` for several sources, for classes and for user topologies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from kafka_pipeline.admin.describe import mermaid, overview
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.in_process import invoke

SETTINGS = """\
server_ip: 127.0.0.1
server_port: 9092
job_name: job
tm_number: 1
parallelism: 2
replication_factor: 1
source_topic: in
sink_topic: out
modules: [shop, tests.user_code]
"""
SHOP = """
sources: {deposits: deposits_topic, withdrawals: withdrawals_topic}
sinks: {balances: balances_topic}
processors:
- id: Balance
  type: shop:Balance
  from: [deposits, withdrawals]
  to: [Audit, balances]
  stores: [{name: Balances}, {name: Cache, logged: false}, {name: Limits}]
  config: {start: 100}
- {id: Audit, type: forward, from: [source], to: [sink], on_error: skip}
"""
CHAIN = """
- id: Words
  type: topology
  builder: tests.user_code.topologies:chain
  config: {lines: lines_topic, words: words_topic}
  on_error: dead_letter
"""
QUERIES = """
sources: {orders: orders_topic, payments: payments_topic, customers: customers_topic}
processors:
- id: Revenue
  type: sql
  from: [orders]
  query: >
    SELECT value AS key, count(*) AS c FROM orders GROUP BY value, window(timestamp, '1 hour')
  grace: 90 min
  to: [sink]
- id: Paid
  type: sql
  from: [orders, payments]
  query: >
    SELECT o.key, p.value FROM orders o JOIN payments p ON o.key = p.key
    AND p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES
  grace: 1 h
  to: [sink]
- id: Known
  type: sql
  from: [orders]
  tables: {names: {topic: customers}}
  query: SELECT DISTINCT o.key, n.value FROM orders o JOIN names n ON o.key = n.key
  to: [sink]
- id: Best
  type: sql
  from: [orders]
  query: >
    SELECT key, value FROM (SELECT *, row_number() OVER (PARTITION BY key, window(timestamp,
    '1 hour') ORDER BY timestamp) AS place FROM orders) WHERE place <= 3
  grace: 1 h
  to: [sink]
- id: Visits
  type: dataframe
  from: [orders]
  function: shop:visits
  group_by: {session: 5 min}
  emit: on_close
  grace: 10 min
  to: [sink]
"""
UPSERTS = """
sources: {prices: {topic: prices_topic, changelog: true}}
processors:
- id: Mean
  type: sql
  from: [prices]
  query: >
    SELECT c AS key, avg(n) AS value FROM (
      SELECT value, count(*) AS n, min(key) AS c FROM prices GROUP BY value) c GROUP BY c
  to: [sink]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def describe(text: str, folder: Path, *options: str) -> str:
    """Return what the command prints."""
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(text, encoding="utf-8")
    config = folder / "config.yaml"
    result = invoke("describe", config, pipeline, *options, env={"COLUMNS": "200"})
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def tree(text: str, folder: Path) -> list[str]:
    return describe(text, folder).split("\nTopics")[0].splitlines()


def rows(text: str, folder: Path, table: str) -> dict[str, str]:
    """Return the rows of a table by the first cell, a row of several lines as one."""
    printed = describe(text, folder).split(f"\n{table}")[1].split("\nTasks")[0]
    return cells(printed)


def cells(printed: str) -> dict[str, str]:
    found: dict[str, str] = {}
    first = ""
    for line in printed.splitlines():
        if "│" in line:
            name, *others = (cell.strip() for cell in line.strip("│").split("│"))
            first = name or first
            found[first] = " ".join(filter(None, [found.get(first, ""), *others]))
    return found


def loaded(text: str, folder: Path, partitions: Mapping[str, int]) -> tuple[Config, Pipeline]:
    """Return a pipeline where topics have so many partitions."""
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(text, encoding="utf-8")
    config = load_config(folder / "config.yaml")
    return config, replace(load_pipeline(pipeline, config), partitions=partitions)


# --- the tree ---


def test_each_source_has_a_tree_and_a_processor_is_unfolded_once(folder: Path) -> None:
    assert tree(SHOP, folder) == [
        "deposits_topic (source)",
        "└── Balance shop:Balance, start 100",
        "    ├── Audit forward (on error: skip)",
        "    │   └── out (sink)",
        "    └── balances_topic (sink)",
        "withdrawals_topic (source)",
        "└── Balance (see above)",
        "in (source)",
        "└── Audit (see above)",
    ]


def test_node_groups_hang_together_by_their_internal_topics(folder: Path) -> None:
    code = "tests.user_code.topologies:chain, lines lines_topic, words words_topic"
    assert tree(CHAIN, folder) == [
        "lines_topic (source)",
        f"└── Words-Split {code} (on error: dead_letter)",
        f"    └── Words-Count {code} (on error: dead_letter)",
        "        └── words_topic (sink)",
    ]


def test_a_topic_that_one_processor_writes_and_another_reads_is_sink_and_source(
    folder: Path,
) -> None:
    text = """
sources: {again: middle_topic}
sinks: {middle: middle_topic}
processors:
- {id: A, type: sum, to: [middle]}
- {id: B, type: forward, from: [again], to: [sink]}
"""
    assert tree(text, folder) == [
        "in (source)",
        "└── A sum, constant 1",
        "    └── middle_topic (sink)",
        "middle_topic (source)",
        "└── B forward",
        "    └── out (sink)",
    ]


@pytest.mark.parametrize(
    "value",
    ["[a-z]+", "[/]", "[/bold]", "[red]x", "[bold]", "a[b]c", 'say "x"', "\\[a]", ":smile:"],
)
def test_texts_in_config_are_shown_as_they_are(value: str, folder: Path) -> None:
    text = f"""
- id: A
  type: shop:A
  to: [sink]
  config: {{pattern: '{value}'}}
"""
    assert tree(text, folder)[1] == f"└── A shop:A, pattern {value}"


# --- topics and tasks ---


def test_topics_of_a_class_are_its_sources_arcs_state_topics_and_sinks(folder: Path) -> None:
    found = rows(SHOP, folder, "Topics")
    assert dict(list(found.items())[:8]) == {
        "deposits_topic": "2 1 broker default broker default",
        "withdrawals_topic": "2 1 broker default broker default",
        "in": "2 1 broker default broker default",
        "Balance_Audit_job": "2 1 delete until processed",
        "state_topic_Balance_Balances_job": "2 1 compact last record per key",
        "state_topic_Balance_Limits_job": "2 1 compact last record per key",
        "balances_topic": "2 1 broker default broker default",
        "out": "2 1 broker default broker default",
    }


def test_topics_of_a_topology_are_its_own_and_those_that_it_reads_and_writes(
    folder: Path,
) -> None:
    text = CHAIN.replace("words_topic}", "words_topic, partitions: 5}")
    found = rows(text, folder, "Topics")
    assert list(found)[:7] == [
        "lines_topic",
        "Words_middle_job",
        "state_topic_Words-Count_Kept_job",
        "state_topic_Words-Count_Windows_job",
        "Words-Split_dead_letter_job",
        "Words-Count_dead_letter_job",
        "words_topic",
    ]
    assert found["Words_middle_job"] == "5 1 delete until processed"
    assert found["state_topic_Words-Count_Kept_job"] == "5 1 compact last record per key"
    assert found["state_topic_Words-Count_Windows_job"] == "5 1 compact,delete 604860000 ms"
    assert found["Words-Split_dead_letter_job"] == "2 1 delete forever"


def test_a_task_reads_a_partition_of_each_input_and_has_one_of_each_state_topic(
    folder: Path,
) -> None:
    printed = describe(SHOP, folder).split("\nTasks")[1]
    found = cells(printed)
    assert list(found) == ["Balance_0", "Balance_1", "Audit_0", "Audit_1"]
    assert sorted(found["Balance_1"].split()) == sorted(
        [
            "deposits_topic[1]",
            "withdrawals_topic[1]",
            "Balance_Audit_job",
            "balances_topic",
            "state_topic_Balance_Balances_job[1]",
            "state_topic_Balance_Limits_job[1]",
        ]
    )
    assert sorted(found["Audit_0"].split()) == ["Balance_Audit_job[0]", "in[0]", "out"]


def test_node_groups_have_tasks_of_their_own(folder: Path) -> None:
    text = CHAIN.replace("words_topic}", "words_topic, partitions: 3}")
    found = cells(describe(text, folder).split("\nTasks")[1])
    assert list(found) == [
        *("Words-Split_0", "Words-Split_1"),
        *("Words-Count_0", "Words-Count_1", "Words-Count_2"),
    ]
    assert found["Words-Split_1"].split() == ["lines_topic[1]", "Words_middle_job"]
    assert found["Words-Count_2"].split()[0] == "Words_middle_job[2]"


def test_a_task_reads_no_partition_that_a_topic_has_not(folder: Path) -> None:
    text = """
sources: {few: few_topic, many: many_topic}
processors: [{id: P, type: forward, from: [few, many], to: [sink]}]
"""
    config, pipeline = loaded(text, folder, {"few_topic": 1, "many_topic": 3})
    console = Console(file=StringIO(), width=200)
    console.print(overview(config, pipeline))
    assert isinstance(console.file, StringIO)
    found = cells(console.file.getvalue().split("\nTasks")[1])
    assert {name: row.split() for name, row in found.items()} == {
        "P_0": ["few_topic[0]", "out", "many_topic[0]"],
        "P_1": ["many_topic[1]", "out"],
        "P_2": ["many_topic[2]", "out"],
    }


# --- Mermaid ---


def test_the_flowchart_has_all_sources_sinks_and_stores_of_a_class(folder: Path) -> None:
    assert describe(SHOP, folder, "--mermaid").splitlines() == [
        "flowchart LR",
        '    p0["Balance<br/>shop:Balance, start 100"]',
        '    p1["Audit<br/>forward"]',
        '    t0(["deposits_topic"])',
        '    t1(["withdrawals_topic"])',
        '    t2(["balances_topic"])',
        '    source(["in"])',
        '    sink(["out"])',
        "    t0 --> p0",
        "    t1 --> p0",
        '    p0 -->|"Balance_Audit_job"| p1',
        "    p0 --> t2",
        '    p0 <-.-> p0_state[("state_topic_Balance_Balances_job")]',
        '    p0 <-.-> p0_state1[("state_topic_Balance_Limits_job")]',
        "    source --> p1",
        "    p1 --> sink",
    ]


def test_the_flowchart_ties_node_groups_by_their_internal_topics(folder: Path) -> None:
    code = "tests.user_code.topologies:chain, lines lines_topic, words words_topic"
    assert describe(CHAIN, folder, "--mermaid").splitlines() == [
        "flowchart LR",
        f'    p0["Words-Split<br/>{code}"]',
        f'    p1["Words-Count<br/>{code}"]',
        '    t0(["lines_topic"])',
        '    t1(["words_topic"])',
        "    t0 --> p0",
        '    p0 -->|"Words_middle_job"| p1',
        '    p0 -.-> p0_dead_letter(["Words-Split_dead_letter_job"])',
        "    p1 --> t1",
        '    p1 <-.-> p1_state[("state_topic_Words-Count_Kept_job")]',
        '    p1 <-.-> p1_state1[("state_topic_Words-Count_Windows_job")]',
        '    p1 -.-> p1_dead_letter(["Words-Count_dead_letter_job"])',
    ]


def test_texts_in_config_do_not_end_a_label_of_the_flowchart(folder: Path) -> None:
    text = "[{id: A, type: 'shop:A', to: [sink], config: {text: 'a \"b\" <i> #1', n: [x, {y: 1}]}}]"
    _, pipeline = loaded(text, folder, {})
    assert mermaid(pipeline).splitlines()[1] == (
        "    p0[\"A<br/>shop:A, text a #quot;b#quot; #lt;i#gt; #35;1, n ['x', {'y': 1}]\"]"
    )


# --- global stores and patterns ---

LOOKUP = """
- id: W
  type: topology
  builder: tests.user_code.lookups:lookup
  config: {orders: orders_topic, names: names_topic, named: named_topic}
"""
GATHER = """
- id: W
  type: topology
  builder: tests.user_code.lookups:gather
  config: {pattern: "lines_[ab]<.*", gathered: all_lines}
"""


def test_a_global_store_stands_below_those_who_read_it(folder: Path) -> None:
    code = "tests.user_code.lookups:lookup, orders orders_topic, names names_topic, named"
    assert tree(LOOKUP, folder) == [
        "orders_topic (source)",
        f"└── W-Orders {code} named_topic",
        "    ├── Names (global store of topic names_topic)",
        "    └── named_topic (sink)",
    ]
    assert rows(LOOKUP, folder, "Topics")["names_topic"] == "2 1 compact last record per key"
    flowchart = describe(LOOKUP, folder, "--mermaid").splitlines()
    assert "    t1 -.-> p0" in flowchart
    assert '    t1(["names_topic"])' in flowchart


def test_a_pattern_stands_where_its_topics_will(folder: Path) -> None:
    """They are known when the JobManager starts, and so is the number of tasks."""
    lines = tree(GATHER, folder)
    assert lines[0] == "lines_[ab]<.* (sources, found when the JobManager starts)"
    assert lines[-1].endswith("all_lines (sink)")
    assert (
        '    p0_pattern0(["lines_[ab]#lt;.*"]) --> p0'
        in describe(GATHER, folder, "--mermaid").splitlines()
    )
    assert "W-All_0" not in describe(GATHER, folder)


def test_topics_that_a_function_chooses_are_said_to_be_open(folder: Path) -> None:
    text = GATHER.replace("lookups:gather", "topologies:by_size")
    text = text.replace('pattern: "lines_[ab]<.*", gathered: all_lines', "orders: source%s")
    assert tree(text % "", folder)[-1].endswith("topics that a function chooses (sinks)")
    assert tree(text % ", topics: [large, small]", folder)[-1].endswith("small (sink)")


def test_what_queries_keep_is_said_in_words(folder: Path) -> None:
    shown = tree(QUERIES, folder)
    kept = [line.split("keeps ")[1].rstrip() for line in shown if "keeps " in line]
    assert kept == [
        "a row for each value, WINDOW(timestamp, '1 hour'), until 90 min after the window",
        "the records of orders and payments, for 75 min",
        "the best rows for each key, WINDOW(timestamp, '1 hour'), until 1 h after the window",
        "a row for each group and session with a gap of 5 min, until 10 min after the window",
        "the last record of each key of customers, as table names",
        "a row for each o.key, n.value",
    ]


def test_a_function_with_groups_is_two_processors_with_a_topic_in_between(folder: Path) -> None:
    shown = "\n".join(tree(QUERIES, folder))
    assert "Visits-rows shop:visits, gives rows of groups" in shown
    assert "── Visits shop:visits, emits on_close" in shown
    assert "Visits_groups-repartition_job" in rows(QUERIES, folder, "Topics")


def test_results_that_replace_others_are_marked(folder: Path) -> None:
    """The tree names stages of a query as such, and arcs of a flowchart have labels."""
    shown = tree(UPSERTS, folder)
    assert [line.strip("│└├─ ") for line in shown if "gives" in line or "(source" in line] == [
        "prices_topic (source, upserts by key)",
        "Mean.c-rows sql, reads upserts, gives rows of groups (stage of Mean)",
        "Mean.c sql, emits on_update, gives upserts by key (stage of Mean)",
        "Mean-rows sql, reads upserts, gives rows of groups",
        "Mean sql, emits on_update, gives upserts by key",
    ]
    flowchart = describe(UPSERTS, folder, "--mermaid").splitlines()
    assert [line.strip() for line in flowchart if "upserts by key" in line] == [
        't0 -->|"upserts by key"| p0',
        'p1 -->|"Mean.c_Mean_job<br/>upserts by key"| p2',
        'p3 -->|"upserts by key"| sink',
    ]
