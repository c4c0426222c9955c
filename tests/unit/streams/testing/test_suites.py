"""`pipeline test`: what YAML suites can contain, and the errors for their mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.streams.testing.suites import TestResult, run_suite
from kafka_pipeline.testing import TopologyTestDriver
from tests.in_process import invoke
from tests.schema_registry import require_packages
from tests.small_config import SMALL_CONFIG
from tests.user_code import shop

ROOT = Path(__file__).parents[4]
CONFIG = (
    SMALL_CONFIG
    + f"""job_name: job
modules:
- tests.user_code.word_count
- tests.user_code.broken
- tests.user_code.echo
- tests.user_code.keepers
- tests.user_code.shop
python_path: ["{ROOT}"]
"""
)
PIPELINE = """
sources: {lines: lines_topic}
sinks: {words: words_topic}
processors:
  - {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
  - {id: Counter, type: count, to: [sink]}
  - {id: Words, type: topology, builder: "tests.user_code.word_count:word_count",
     config: {lines: lines, words: words}}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite's path, with the files that it is about next to it."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path / "tests.yaml"


def problems(suite: Path, steps: str, more: str = "") -> list[str]:
    """Run one test of these steps; return what went wrong, without the path."""
    suite.write_text(f"{more}\ntests: [{{name: t, steps: [{steps}]}}]")
    return [result.problem.replace(str(suite), "") for result in run_suite(suite) if result.problem]


@pytest.mark.parametrize(
    "steps",
    [
        "{produce: {key: k, value: 1}}, {assert: {records: [{key: k, value: 1}]}}",
        "{produce: {key: k, value: '1'}}, {assert: {topic: out, records: [{key: k}]}}",
        "{produce: {topic: in, key: k, value: 1, timestamp_ms: 7}},"
        "{assert: {topic: sink, records: [{timestamp_ms: 7, partition: 0}]}}",
        "{assert: {records: []}}",
        "{produce: {key: k, value: x}}, {assert: {records: []}},"
        "{assert: {topic: Adder_dead_letter_job, records: [{key: k, value: x}]}}",
        "{produce: {key: k, value: 5}}, {assert: {topic: Adder_Counter_job,"
        " records: [{key: k, value: 6}]}}",
        "{produce: {key: k, value: 1}}, {store: {name: counts, key: k, value: 1}},"
        "{store: {name: counts, processor: Counter, key: other, value: null}}",
        "{produce: {topic: lines, key: k, value: a b a, timestamp_ms: 1}},"
        "{assert: {topic: words, records: [{key: a, value: '2'}, {key: b, value: '1'}]}},"
        "{advance: 1000}, {assert: {topic: words, records: []}}",
        "{produce: {key: k, value: 1, headers: {trace: t-1, hops: 2, none: null}}},"
        "{assert: {records: [{value: 1, headers: {trace: t-1, hops: 2, none: null}}]}}",
        "{produce: {key: k, value: 1, headers: [{h: a}, {h: b}]}},"
        "{assert: {records: [{headers: [{h: a}, {h: b}]}]}}",
        "{produce: {key: k, value: 1}}, {assert: {records: [{headers: {}}]}}",
        "{produce: {topic: in, key: k, value: 1}}, {assert: {topic: sink, records: [{key: k}]}},"
        "{assert: {topic: out, records: []}}",
    ],
)
def test_suite_that_expects_what_happens_passes(suite: Path, steps: str) -> None:
    assert problems(suite, steps) == []


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (
            "{produce: {key: k, value: 1}},\n{assert: {records: [{key: k, value: 2}]}}",
            ':3: assert: sink has [{"key": "k", "value": 1}], expected [{"key": "k", "value": 2}]',
        ),
        (
            "{produce: {key: k, value: 1}}, {assert: {records: []}}",
            ':2: assert: sink has [{"key": "k", "value": "1"}], expected no records',
        ),
        (
            "{assert: {topic: words, records: [{key: a}]}}",
            ':2: assert: words has no records, expected [{"key": "a"}]',
        ),
        (
            "{produce: {key: k, value: 1}}, {store: {name: counts, key: k, value: 2}}",
            ":2: store: counts has 1 for 'k', expected 2",
        ),
        ("{produce: {topic: none, value: 1}}", ":2: produce: UnknownTopicError: no source"),
        (
            "{assert: {topic: words_topc, records: []}}",
            ":2: assert: UnknownTopicError: nothing in the topology writes topic words_topc, "
            'did you mean "words_topic"',
        ),
        (
            "{produce: {key: k, value: 1, headers: {h: a}}},\n"
            "{assert: {records: [{headers: {h: b}}]}}",
            ':3: assert: sink has [{"headers": [["h", "a"]]}], '
            'expected [{"headers": [["h", "b"]]}]',
        ),
    ],
)
def test_suite_that_expects_something_else_says_what_came(
    suite: Path, steps: str, problem: str
) -> None:
    (found,) = problems(suite, steps)
    assert found.startswith(problem)


BROKEN = """
processors:
  - {id: Broken, type: "tests.user_code.broken:Broken", to: [sink], config: {place: PLACE}}
"""


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("constructor", 'SupplierError: the supplier of processor "Broken" failed: ValueError: no'),
        ("init", "ValueError: no"),
        ("close", "ValueError: no"),
    ],
)
def test_a_processor_that_cannot_begin_or_end_fails_the_test_and_the_next_one_runs(
    suite: Path, place: str, problem: str
) -> None:
    (suite.parent / "pipeline.yaml").write_text(BROKEN.replace("PLACE", place))
    suite.write_text("tests: [{name: a, steps: [{advance: 0}]}, {name: b, steps: [{advance: 0}]}]")
    where = '(tests/user_code/broken.py:27 in _fail_in, processor "Broken")'
    assert run_suite(suite) == [TestResult(name, f"{suite}: {problem} {where}") for name in "ab"]


def test_a_record_that_user_code_fails_on_is_said_with_step_and_place(suite: Path) -> None:
    (suite.parent / "pipeline.yaml").write_text(
        '[{id: Enrich, type: "tests.user_code.shop:Enrich", to: [sink], serdes: {value: string}}]'
    )
    (found,) = problems(suite, "{produce: {key: k, value: x}}")
    place = f"tests/user_code/shop.py:{shop.line_of('price')} in price"
    assert found == f""":2: produce: KeyError: 'x' ({place}, processor "Enrich")"""


def test_what_a_step_found_comes_before_what_close_raises(suite: Path) -> None:
    (suite.parent / "pipeline.yaml").write_text(BROKEN.replace("PLACE", "close"))
    (problem,) = problems(suite, "{assert: {records: [{key: k}]}}")
    assert problem.startswith(":2: assert: sink has no records")


def test_an_assert_that_comes_too_early_says_what_waits(suite: Path) -> None:
    (suite.parent / "pipeline.yaml").write_text(
        "sources: {a: a_topic, b: b_topic}\n"
        'processors: [{id: E, type: "tests.user_code.echo:Echo", from: [a, b], to: [sink],'
        " stores: [{name: Last}], max_task_idle_ms: 500}]"
    )
    produce, wanted = "{produce: {topic: a, key: k}}", "{assert: {records: [{key: k}]}}"
    assert problems(suite, f"{produce}, {wanted}") == [
        ":2: assert: sink has no records yet, as 1 record waits: advance the wall clock by 500 ms "
        '(max_task_idle_ms), expected [{"key": "k"}]'
    ]
    assert problems(suite, f"{produce}, {{advance: 500}}, {wanted}") == []


def test_serdes_of_topics_make_values_of_their_bytes(suite: Path) -> None:
    steps = (
        "{produce: {topic: lines, key: k, value: a, timestamp_ms: 1}},"
        "{assert: {topic: words, records: [{key: a, value: 1}]}}"
    )
    assert problems(suite, steps, "serdes: {words: {key: string, value: integer}}") == []


def test_serdes_are_those_of_a_topic_by_whatever_name_it_is_called(suite: Path) -> None:
    steps = (
        "{produce: {topic: lines_topic, key: k, value: a, timestamp_ms: 1}},"
        "{assert: {topic: words, records: [{key: a, value: 1}]}}"
    )
    assert problems(suite, steps, "serdes: {words_topic: {value: integer}}") == []
    steps = steps.replace("words", "words_topic")
    assert problems(suite, steps, "serdes: {words: {value: integer}}") == []


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_serdes_of_topics_may_have_schemas(suite: Path, kind: str) -> None:
    """A registry in memory has the schemas before the pipeline starts, which writes by them."""
    require_packages()
    config = suite.parent / "config.yaml"
    config.write_text(f'{config.read_text()}\nschema_registry: {{url: "mock://{uuid4().hex}"}}\n')
    (suite.parent / "pipeline.yaml").write_text(
        ECHO.replace("value: json, out_value: json", f"value: {kind}, out_value: {kind}", 1)
    )
    fields = [{"name": "n", "type": ["null", "int"]}]
    schemas = {
        "avro": {"type": "record", "name": "Row", "fields": fields},
        "json_schema": {"title": "Row", "properties": {"n": {"type": "object"}}},
    }
    (suite.parent / "row.schema").write_text(json.dumps(schemas[kind]))
    value = f"{{value: {{{kind}: {{schema: row.schema}}}}}}"
    serdes = f"serdes: {{source: {value}, sink: {value}}}"
    produce = "{produce: {key: k, value: {n: {int: 7}}}}"
    steps = produce + ", {assert: {records: [{value: {n: {int: %d}}}]}}"
    assert problems(suite, steps % 7, serdes) == []
    (problem,) = problems(suite, steps % 8, serdes)
    assert '"n": {"int": 7}' in problem


def test_a_schema_needs_a_registry(suite: Path) -> None:
    with pytest.raises(ConfigError, match="the serde avro needs a schema registry"):
        problems(suite, "{produce: {value: 1}}", "serdes: {source: {value: avro}}")


ECHO = """
processors:
  - id: Echo
    type: "tests.user_code.echo:Echo"
    to: [sink]
    serdes: {value: json, out_value: json}
    stores: [{name: Last, key: bytes, value: json}]
"""


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        ("1", "true"),
        ("true", "1"),
        ("1", "1.0"),
        ("1.0", "1"),
        ("0", "false"),
        ("0.0", "-0.0"),
        ("[1, {a: [true]}]", "[1, {a: [1]}]"),
        ("{a: 1}", "{a: 1.0}"),
        ("{a: 1}", "{a: 1, b: 2}"),
        ("[1]", "[1, 1]"),
    ],
)
@pytest.mark.parametrize("serde", ["", "serdes: {sink: {value: json}}"])
def test_values_of_other_types_are_others_in_topics_and_in_stores(
    suite: Path, came: str, expected: str, serde: str
) -> None:
    (suite.parent / "pipeline.yaml").write_text(ECHO)
    produce = f"{{produce: {{key: k, value: {came}}}}}"
    for check in (
        "{assert: {records: [{key: k, value: VALUE}]}}",
        "{store: {name: Last, key: k, value: VALUE}}",
    ):
        steps = f"{produce}, {check}"
        assert problems(suite, steps.replace("VALUE", came), serde) == []
        (problem,) = problems(suite, steps.replace("VALUE", expected), serde)
        assert ", expected " in problem


@pytest.mark.parametrize(
    ("came", "expected", "where"),
    [
        (["{a: {b: [1, 2]}}"], ["{a: {b: [1, 3]}}"], "1 has 2 at value.a.b[1], expected 3"),
        (["{a: [1]}"], ["{a: [1, 2]}"], "1 has nothing at value.a[1], expected 2"),
        (["{a: 1, b: null}"], ["{a: 1}"], "1 has null at value.b, expected nothing"),
        (["{a: 1}"], ["{a: '1'}"], '1 has 1 at value.a, expected "1"'),
        (["{a: 1}"], ["{a: [1]}"], "1 has 1 at value.a, expected [1]"),
        (["1", "2"], ["1", "3"], "2 has 2 at value, expected 3"),
        (["1", "2"], ["1"], "2 is not expected"),
        (["1"], ["1", "2"], "2 is missing"),
    ],
)
def test_the_first_place_that_differs_is_said(
    suite: Path, came: list[str], expected: list[str], where: str
) -> None:
    (suite.parent / "pipeline.yaml").write_text(ECHO)
    steps = [f"{{produce: {{key: k, value: {each}}}}}" for each in came]
    records = ", ".join(f"{{value: {each}}}" for each in expected)
    check = f"{{assert: {{records: [{records}]}}}}"
    (problem,) = problems(suite, ", ".join([*steps, check]))
    assert problem.endswith(f": record {where}")


KEEPER = """
processors:
  - id: Keeper
    type: "tests.user_code.keepers:Keeper"
    to: [sink]
    serdes: {key: string, value: integer}
    stores:
    - {name: Timed, type: timestamped_key_value, key: string, value: integer}
    - {name: Windows, type: window, key: string, value: integer,
       retention_ms: 60000, window_size_ms: 10}
    - {name: Sessions, type: session, key: string, value: integer, retention_ms: 60000}
    - {name: Versions, type: versioned_key_value, key: string, value: integer,
       history_retention_ms: 60000}
"""


def test_stores_of_all_kinds_are_compared(suite: Path) -> None:
    (suite.parent / "pipeline.yaml").write_text(KEEPER)
    put = (
        "{produce: {topic: source, key: k, value: 5, timestamp_ms: 20}},"
        "{produce: {topic: source, key: k, value: 7, timestamp_ms: 40}}"
    )
    for name, found, wrong, absent in (
        ("Timed", 7, 5, "null"),
        ("Windows", [5, 7], [7, 5], "[]"),
        ("Sessions", [5, 7], [5], "[]"),
        ("Versions", 7, 5, "null"),
    ):
        step = "{store: {name: NAME, key: KEY, value: VALUE}}".replace("NAME", name)
        right, other = (step.replace("KEY", key) for key in ("k", "other"))
        right, bad = (right.replace("VALUE", str(value)) for value in (found, wrong))
        assert problems(suite, f"{put}, {right}, {other.replace('VALUE', absent)}") == []
        (problem,) = problems(suite, f"{put}, {bad}")
        assert f"{name} has {found!r} for 'k', expected {wrong!r}" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("serdes: {words_topc: {value: string}}", '1:10: the pipeline has no topic "words_topc", '),
        ("serdes: {words_topc: {value: string}}", 'did you mean "words_topic"?'),
        ("partitions: {wrods: 4}", '1:14: the pipeline has no topic "wrods", did you mean "words"'),
        ("serdes: {Adder_Cuonter_job: {}}", '1:10: the pipeline has no topic "Adder_Cuonter_job"'),
    ],
)
def test_slips_in_names_of_topics_are_mistakes(suite: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        problems(suite, "{advance: 0}", text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "name", ["source", "in", "words", "words_topic", "Adder_Counter_job", "Adder_dead_letter_job"]
)
def test_all_topics_of_the_pipeline_can_have_serdes_and_partitions(suite: Path, name: str) -> None:
    assert (
        problems(suite, "{advance: 0}", f"serdes: {{{name}: {{}}}}\npartitions: {{{name}: 2}}")
        == []
    )


@pytest.mark.parametrize("place", ["of_pipeline", "create_input_topic"])
def test_what_is_missing_ends_the_command_as_everywhere(
    suite: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise UnavailableError("Java 17 is needed")

    monkeypatch.setattr(TopologyTestDriver, place, fail)
    suite.write_text("tests: [{name: t, steps: [{produce: {key: k, value: 1}}]}]")
    result = invoke("test", suite)
    assert (result.exit_code, result.stderr) == (3, "Java 17 is needed\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "1:1: must be a map with pipeline and tests, got a list"),
        (
            "- {id: A, type: sum, to: [sink]}",
            "1:1: this is a pipeline.yaml, and a suite of tests is expected here",
        ),
        (
            "parallelism: 2",
            "1:1: this is a config.yaml, and a suite of tests is expected here",
        ),
        ("config: config.yaml", '1:1: missing key "tests"'),
        ("tests: [{name: t, steps: [{prodce: {}}]}]", "1:27: a step must be one of produce"),
        ("tests: [{steps: []}]", '1:9: missing key "name"'),
        (
            "tests: [{name: t, steps: [{produce: {value: {country: no}}}]}]",
            '1:55: YAML reads "no" as false: write that, or use quotes',
        ),
        (
            "tests: [{name: t, steps: [{produce: {value: {zip: 01234}}}]}]",
            '1:51: YAML reads "01234" as 668: write that, or use quotes',
        ),
        (
            "tests: [{name: t, steps: [{assert: {records: [{value: [12:30]}]}}]}]",
            '1:56: YAML reads "12:30" as 750: write that, or use quotes',
        ),
        ("tests: []\nserdes: {x: {key: sting}}", '2:19: key must be "boolean"'),
        ("tests: []", "1:8: tests is empty: write a test, with name and steps"),
        (
            "tests: [{name: a, steps: []}]",
            "1:26: steps is empty: write a list of produce, assert, advance, store, former",
        ),
        (
            "tests: [{name: t, steps: [{assert: {records: [{}]}}]}]",
            "1:47: a record must say what to compare: write one or more of key, value, timestamp_",
        ),
        (
            "tests: [{name: t, steps: [{produce: {key: 010}}]}]",
            '1:43: YAML reads "010" as 8: write that, or use quotes',
        ),
        (
            "tests: [{name: t, steps: [{assert: {records: [{value: {at: 9:30}}]}}]}]",
            '1:60: YAML reads "9:30" as 570: write that, or use quotes',
        ),
        ("tests: [{name: t, steps: [{store: {name: S, key: 1, value: 1:30.5}}]}]", "as 90.5: "),
        ("tests: [{name: t, steps: [{assert: {}}]}]", '1:36: missing key "records"'),
        (
            "tests: [{name: t, steps: [{produce: {key: k, value: 1, headers: [h]}}]}]",
            "1:66: headers must be a map, or a list of maps, got the text",
        ),
        (
            "tests: [{name: t, steps: [{produce: {kay: k}}]}]",
            'unknown key "kay", did you mean "key"',
        ),
    ],
)
def test_mistakes_in_a_suite_have_their_place(suite: Path, text: str, problem: str) -> None:
    suite.write_text(text)
    with pytest.raises(ConfigError) as raised:
        run_suite(suite)
    assert problem in str(raised.value)


def test_command_tells_each_test_and_fails_with_one_of_them(suite: Path) -> None:
    suite.write_text(
        "tests:\n- {name: good, steps: [{advance: 0}]}\n"
        "- {name: bad, steps: [{assert: {records: [{key: x}]}}]}"
    )
    result = invoke("test", suite)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == ["ok      good", "FAILED  bad"]
    assert result.stdout.endswith("1 passed, 1 failed\n")


def test_command_shows_the_results_before_a_suite_with_mistakes(suite: Path) -> None:
    suite.write_text("tests: [{name: good, steps: [{advance: 0}]}]")
    wrong = suite.with_name("wrong.yaml")
    wrong.write_text("tests: []")
    result = invoke("test", suite, wrong)
    assert (result.exit_code, result.stdout) == (2, "ok      good\n")
