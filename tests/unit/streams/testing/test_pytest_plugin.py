"""The pytest plugin that users' tests get: the fixture, and the code that they can import."""

from __future__ import annotations

import pytest

from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first

pytest_plugins = ["pytester"]

CONFIG = f"""{SMALL_CONFIG}
modules: [shop_of_test]
python_path: [code]
kafka: {{sasl.password: "${{NOT_SET_IN_TESTS}}"}}
"""
SHOP = """
from kafka_pipeline import Processor, PunctuationType, Record, TopologyBuilder, serdes, stores


class WordCount(Processor):
    def init(self, context):
        self.context = context
        self.counts = context.get_state_store("Counts")
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.punctuate)

    def process(self, record):
        for word in record.value.lower().split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def punctuate(self, timestamp):
        with self.counts.all() as entries:
            for word, count in entries:
                self.context.forward(Record(word, str(count), timestamp))


def word_count(lines, words):
    builder = TopologyBuilder()
    builder.add_source("Source", lines, value_serde=serdes.string)
    builder.add_processor("Count", WordCount, parents=["Source"])
    builder.add_state_store(
        stores.key_value("Counts", key_serde=serdes.string, value_serde=serdes.int64),
        processors=["Count"],
    )
    builder.add_sink(
        "Sink", words, parents=["Count"], key_serde=serdes.string, value_serde=serdes.string
    )
    return builder
"""
TEST = """
from shop_of_test import word_count
from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver


def test_word_count():
    with TopologyTestDriver(word_count("lines", "words")) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        words = driver.create_output_topic("words", serdes.string, serdes.string)
        lines.pipe_input(b"k", "a b a", timestamp=0)
        assert words.read_key_values() == [("a", "2"), ("b", "1")]
        assert driver.get_key_value_store("Counts").get("a") == 2
"""
PIPELINE_TEST = """
from kafka_pipeline import serdes


def test_pipeline(topology_test_driver):
    driver = topology_test_driver.of_pipeline("config.yaml", "pipeline.yaml")
    lines = driver.create_input_topic("lines_topic", value_serde=serdes.string)
    words = driver.create_output_topic("words_topic", serdes.string, serdes.string)
    lines.pipe_input(b"k", "a b a", timestamp=0)
    assert words.read_key_values() == [("a", "2"), ("b", "1")]
"""
PIPELINE = """
- id: Words
  type: topology
  builder: "shop_of_test:word_count"
  config: {lines: lines_topic, words: words_topic}
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project as in the docs: config.yaml, pipeline.yaml, code in code/, tests in tests/."""
    (pytester.path / "config.yaml").write_text(CONFIG)
    (pytester.path / "pipeline.yaml").write_text(PIPELINE)
    for name in ("code", "tests"):
        (pytester.path / name).mkdir()
    (pytester.path / "code" / "shop_of_test.py").write_text(SHOP)
    (pytester.path / "tests" / "test_shop.py").write_text(TEST)
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest("-p", "no:cacheprovider", *args)


def test_fixture_makes_drivers_and_closes_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from kafka_pipeline import Processor, TopologyBuilder

        closed = []

        class Noting(Processor):
            def process(self, record):
                pass

            def close(self):
                closed.append(True)

        def test_driver(topology_test_driver):
            builder = TopologyBuilder()
            builder.add_source("s", "in")
            builder.add_processor("p", Noting, ["s"])
            driver = topology_test_driver(builder.build(), partitions={"in": 2})
            assert driver.num_partitions("in") == 2
            assert closed == []

        def test_closed():
            assert closed == [True]
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_fixture_makes_drivers_of_pipelines_and_closes_them(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_SET_IN_TESTS", "secret")
    with (project.path / "code" / "shop_of_test.py").open("a") as shop:
        shop.write("\nclosed = []\nWordCount.close = lambda self: closed.append(True)\n")
    (project.path / "tests" / "test_shop.py").write_text(
        f"import shop_of_test\n{PIPELINE_TEST}\n\n"
        "def test_closed():\n    assert shop_of_test.closed == [True]\n"
    )
    run(project).assert_outcomes(passed=2)


@pytest.mark.parametrize("args", [(), ("tests",), ("tests/test_shop.py",)])
def test_tests_import_from_the_python_path_of_config_yaml(
    project: pytest.Pytester, args: tuple[str, ...]
) -> None:
    result = run(project, *args)
    result.assert_outcomes(passed=1)
    folder = project.path / "code"
    result.stdout.fnmatch_lines([f"python_path of {project.path / 'config.yaml'}: {folder}"])


def test_config_yaml_is_found_in_the_rootdir_from_a_folder_inside(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makeini("[pytest]")
    monkeypatch.chdir(project.path / "tests")
    run(project).assert_outcomes(passed=1)


def test_config_yaml_may_be_elsewhere_and_conftest_imports_from_there_too(
    project: pytest.Pytester,
) -> None:
    (project.path / "deploy").mkdir()
    (project.path / "config.yaml").rename(project.path / "deploy" / "prod.yaml")
    (project.path / "code").rename(project.path / "deploy" / "code")
    (project.path / "conftest.py").write_text("import shop_of_test\n")
    project.makeini("[pytest]\npipeline_config = deploy/prod.yaml")
    run(project).assert_outcomes(passed=1)


def test_a_config_yaml_that_was_named_must_be_readable(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\npipeline_config = none.yaml")
    result = run(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pipeline_config: *none.yaml:1:1: there is no such file"])


@pytest.mark.parametrize("text", ["[a, b]", "a: {b: 1}", "- {a: 1, b: 2}"])
def test_the_config_yaml_of_another_program_does_not_matter(
    pytester: pytest.Pytester, text: str
) -> None:
    (pytester.path / "config.yaml").write_text(text)
    pytester.makepyfile("def test_nothing(): pass")
    result = run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*python_path*")


@pytest.mark.parametrize("text", ["python_path: [{a: b}]", "a: [", "python_path: ['${NOT_SET}']"])
def test_what_is_wrong_with_a_config_yaml_that_was_found_is_in_the_header(
    pytester: pytest.Pytester, text: str
) -> None:
    (pytester.path / "config.yaml").write_text(text)
    pytester.makepyfile("def test_nothing(): pass")
    result = run(pytester)
    result.assert_outcomes(passed=1)
    where = pytester.path / "config.yaml"
    result.stdout.fnmatch_lines([f"without the python_path of a config.yaml: {where}:1:*"])


READ_TOO_EARLY = """
from kafka_pipeline import TopologyBuilder
from kafka_pipeline.testing import TopologyTestDriver


def test_values():
    builder = TopologyBuilder()
    builder.add_source("a", "topic-a").add_source("b", "topic-b")
    builder.add_sink("sink", "out", ["a", "b"])
    with TopologyTestDriver(builder, max_task_idle_ms=500) as driver:
        driver.create_input_topic("topic-a").pipe_input(None, b"a")
        found = [value for _, value in driver.create_output_topic("out").read_key_values()]
    assert found == EXPECTED
"""


@pytest.mark.parametrize("expected", long_but_the_first(["[b'a']", "[]"]))
def test_a_failure_says_what_was_held_back_whatever_became_of_the_list(
    pytester: pytest.Pytester, expected: str
) -> None:
    """A comprehension makes a list of its own, whose `repr` is just []."""
    pytester.makepyfile(READ_TOO_EARLY.replace("EXPECTED", expected))
    result = pytester.runpytest_subprocess()
    said = "*topic out has nothing to read yet: 1 record waits: advance the wall clock by 500 ms*"
    if expected == "[]":
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line(said)
    else:
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([said])
