"""The `pipeline` command: what it prints, writes, and exits with."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from kafka_pipeline.admin.samples import samples
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.yaml_positions import Problems, Value, read_yaml
from kafka_pipeline.common.errors import (
    ConfigError,
    PipelineError,
    SupersededError,
    UnavailableError,
)
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, OnError
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.in_process import invoke

ROOT = Path(__file__).parents[3]


def pipeline(*args: str | Path) -> Result:
    return invoke(*args)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return the paths of a config.yaml and a pipeline.yaml, the samples."""
    assert pipeline("init", tmp_path).exit_code == 0
    (tmp_path / "config.yaml").write_text(samples()["config.yaml"])
    return tmp_path / "config.yaml", tmp_path / "pipeline.yaml"


# --- the samples ---


@pytest.mark.parametrize("name", samples())
def test_the_files_at_the_root_are_what_init_writes(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == samples()[name]


def test_the_samples_are_valid(files: tuple[Path, Path]) -> None:
    config = load_config(files[0])
    assert (config.server_ip, config.server_port) == ("127.0.0.1", 9092)
    assert (config.job_name, config.tm_number, config.parallelism) == ("job_1", 2, 2)
    assert (config.replication_factor, config.source_topic, config.sink_topic) == (
        1,
        "source_topic",
        "sink_topic",
    )
    forwarder, adder, counter = load_pipeline(files[1], config).processors
    assert (forwarder.id, forwarder.spec, forwarder.from_) == (
        "Forwarder",
        ForwardSpec(),
        (SOURCE,),
    )
    assert (adder.id, adder.spec, adder.on_error) == (
        "Adder",
        SumSpec(),
        OnError.DEAD_LETTER,
    )
    assert (counter.id, counter.spec, counter.to) == ("Counter", CountSpec(), (SINK,))


def test_the_defaults_in_the_sample_comments_are_the_real_ones(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    uncommented = tmp_path / "uncommented.yaml"
    lines = files[0].read_text().splitlines()
    settings = [line[2:] if _is_setting(line) else line for line in lines]
    uncommented.write_text("\n".join(settings))
    assert sum(_is_setting(line) for line in lines) == 33
    assert load_config(uncommented) == load_config(files[0])


def _is_setting(line: str) -> bool:
    """Whether a comment is a setting that is switched off: `# key: …` or `#   key: …`."""
    word = line[2:].strip().split(" ")[0]
    return line.startswith("# ") and word.endswith(":") and word[:-1].isidentifier()


# --- validate ---


def test_validate_says_ok_with_counts(files: tuple[Path, Path]) -> None:
    result = pipeline("validate", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "ok: 3 processors, 6 tasks, 13 topics\n"


def test_validate_says_one_processor_of_one(files: tuple[Path, Path]) -> None:
    files[1].write_text("- {id: A, type: forward, to: [sink]}")
    assert pipeline("validate", *files).stdout.startswith("ok: 1 processor, 2 tasks, ")


@pytest.mark.parametrize("command", ["validate", "describe"])
def test_module_with_the_name_of_the_engine_is_refused(
    command: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    with files[0].open("a") as out:
        out.write("python_path: [.]\n")
    (tmp_path / "kafka_pipeline.py").write_text("")
    result = pipeline(command, *files)
    assert result.exit_code == 2
    assert (
        f'the module "kafka_pipeline" in {tmp_path / "kafka_pipeline.py"} has the name'
        in result.stderr
    )


def test_validate_reports_mistakes_on_stderr_and_exits_with_2(files: tuple[Path, Path]) -> None:
    config, path = files
    path.write_text("- {id: A, type: cuont, to: [snik]}")
    result = pipeline("validate", config, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f'{path}:1:17: type must be "forward", "sum", "count", "sql", "dataframe", "topology" '
        'or "table", or package.module:Class, got the text "cuont", did you mean "count"?\n'
        f'{path}:1:29: unknown target "snik", did you mean "sink"?\n'
    )


def test_validate_reports_settings_that_librdkafka_refuses(files: tuple[Path, Path]) -> None:
    with files[0].open("a", encoding="utf-8") as file:
        file.write("kafka: {lingr.ms: 5, producer.compression.type: zip}\n")
    result = pipeline("validate", *files)
    assert result.exit_code == 2
    assert 'kafka setting "lingr.ms": librdkafka has no such setting' in result.stderr
    assert 'kafka setting "producer.compression.type": Invalid value "zip"' in result.stderr


def test_validate_imports_the_modules_that_no_processor_names(files: tuple[Path, Path]) -> None:
    """Each TaskManager does so when it starts, and ends if it cannot."""
    config, _ = files
    config.write_text(config.read_text() + "\nmodules: [nowhere.py]\n")
    result = pipeline("validate", *files)
    assert result.exit_code == 2
    assert 'module "nowhere.py" of the list modules: in config.yaml is not found' in result.stderr


def test_validate_reports_the_mistakes_of_both_files(files: tuple[Path, Path]) -> None:
    config, path = files
    config.write_text(config.read_text().replace("parallelism:", "parallelsm:", 1))
    path.write_text("- {id: A, type: count, to: [snik]}")
    result = pipeline("validate", config, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert 'unknown key "parallelsm", did you mean "parallelism"?' in result.stderr
    assert result.stderr.endswith(f'{path}:1:29: unknown target "snik", did you mean "sink"?\n')


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        ('type: "orders:Nope"', 'module "orders" has no "Nope"'),
        (
            'type: "orders:Helper"',
            "orders:Helper is not a subclass of Processor, BatchProcessor or AsyncProcessor",
        ),
        (
            'type: "orders:Total", config: {limit: 1, limt: 3}',
            "orders:Total does not take this config: got an unexpected keyword argument 'limt'",
        ),
        (
            'type: "orders:Total"',
            "orders:Total does not take this config: missing a required argument: 'limit'",
        ),
        (
            'type: "absent:Total"',
            'module "absent" of the list modules: in config.yaml is',
        ),
    ],
)
def test_validate_reports_classes_that_cannot_be_made(
    entry: str, mistake: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    config, path = files
    with config.open("a") as out:
        out.write("modules: [orders, absent]\npython_path: [.]\n")
    (tmp_path / "orders.py").write_text(
        "from kafka_pipeline import Processor\n"
        "class Helper: pass\n"
        "class Total(Processor):\n"
        "    def __init__(self, limit): pass\n"
    )
    path.write_text(f"- {{id: A, {entry}, to: [sink]}}")
    result = pipeline("validate", config, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f'{path}:1:8: "A": {mistake}')


DEPOT = """from kafka_pipeline import AsyncProcessor, Processor, TopologyBuilder
class Stock(Processor):
    def init(self, context):
        self.stock = context.get_state_store("Stokc")
    def process(self, record): pass
class Idle(Processor): pass
class TakesTwo(Processor):
    def process(self, record, other): pass
class Refuses(Processor):
    def __init__(self):
        raise ValueError("no model")
    def process(self, record): pass
class Waits(AsyncProcessor):
    async def init(self, context):
        raise OSError("no service")
    async def process(self, record): pass
class Ends(Processor):
    def process(self, record): pass
    def close(self):
        raise RuntimeError("busy")
def graph(lines, out):
    builder = TopologyBuilder()
    builder.add_source("Lines", lines)
    builder.add_processor("Stock", Stock, ["Lines"])
    return builder.add_sink("Out", out, ["Stock"])
def following():
    import re
    builder = TopologyBuilder()
    builder.add_source("All", re.compile("lines_.*"))
    return builder.add_processor("Stock", Stock, ["All"])
"""


@pytest.fixture
def depot(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """Return the paths of two files that may name the module depot, which is not imported yet."""
    monkeypatch.delitem(sys.modules, "depot", raising=False)
    with files[0].open("a") as out:
        out.write("modules: [depot]\npython_path: [.]\n")
    (tmp_path / "depot.py").write_text(DEPOT)
    return files


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(DEPOT.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("entry", "mistake", "place"),
    [
        (
            'type: "depot:Stock", to: [sink], stores: [{name: Stock}]',
            'processor "A" has no store "Stokc", did you mean "Stock"?',
            f'depot.py:{line_of("Stokc")} in init, processor "A"',
        ),
        (
            'type: "depot:Idle", to: [sink]',
            'processor "A": the class Idle has no method process: write def process(self, record)',
            f"depot.py:{line_of('class Idle')} in Idle",
        ),
        (
            'type: "depot:TakesTwo", to: [sink]',
            'processor "A": process of TakesTwo cannot be called as process(record): missing a '
            "required argument: 'other'. Write def process(self, record)",
            f"depot.py:{line_of('other')} in process",
        ),
        (
            'type: "depot:Refuses", to: [sink]',
            'the supplier of processor "A" failed: ValueError: no model',
            f'depot.py:{line_of("no model")} in __init__, processor "A"',
        ),
        (
            'type: "depot:Waits", to: [sink]',
            "OSError: no service",
            f'depot.py:{line_of("no service")} in init, processor "A"',
        ),
        (
            'type: "depot:Ends", to: [sink]',
            "RuntimeError: busy",
            f'depot.py:{line_of("busy")} in close, processor "A"',
        ),
        (
            'type: topology, builder: "depot:graph", config: {lines: lines_topic, out: out_topic}',
            'processor "Stock" has no store "Stokc": connect it (add_state_store, or stores: in '
            "pipeline.yaml)",
            f'depot.py:{line_of("Stokc")} in init, processor "Stock"',
        ),
        (
            'type: topology, builder: "depot:following"',
            'processor "Stock" has no store "Stokc": connect it (add_state_store, or stores: in '
            "pipeline.yaml)",
            f'depot.py:{line_of("Stokc")} in init, processor "Stock"',
        ),
    ],
)
def test_validate_starts_each_processor_of_user_code_once(
    entry: str, mistake: str, place: str, depot: tuple[Path, Path]
) -> None:
    config, path = depot
    path.write_text(f"- {{id: A, {entry}}}\n- {{id: B, type: forward, to: [sink]}}")
    result = pipeline("validate", config, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f'{path}:1:8: "A": {mistake} ({place})\n'

    result = pipeline("validate", "--no-init", config, path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("ok: 2 processors")


def test_validate_starts_all_processors_though_one_fails(depot: tuple[Path, Path]) -> None:
    config, path = depot
    kinds = ("Refuses", "Stock", "Ends")
    lines = [f'- {{id: {kind}, type: "depot:{kind}", to: [sink]}}' for kind in kinds]
    path.write_text("\n".join(lines))
    result = pipeline("validate", config, path)
    assert [line.split(": ")[0] for line in result.stderr.splitlines()] == [
        f"{path}:{number}:8" for number in (1, 2, 3)
    ]


def test_validate_notes_sources_and_sinks_that_no_processor_uses(files: tuple[Path, Path]) -> None:
    config, path = files
    path.write_text(
        """
sources: {orders: orders_topic, clicks: clicks_topic}
sinks: {totals: totals_topic, late: late_topic}
processors:
- {id: A, type: forward, from: [orders], to: [late]}
- {id: B, type: count, to: [sink]}
"""
    )
    result = pipeline("validate", config, path)
    assert (result.exit_code, result.stdout[:16]) == (0, "ok: 2 processors")
    assert result.stderr == (
        f'note: {path}:2:33: no processor reads the source "clicks"\n'
        f'note: {path}:3:9: no processor sends to the sink "totals"\n'
    )


def test_validate_reads_the_pipeline_once(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()

    def reads(path: Path, problems: Problems) -> Value:
        read.append(path)
        return read_yaml(path, problems)

    monkeypatch.setattr("kafka_pipeline.streams.pipeline.load.read_yaml", reads)
    assert pipeline("validate", *files).exit_code == 0
    assert read == [files[1]]


@pytest.mark.parametrize("order", [("config.yaml", "my.yaml"), ("my.yaml", "config.yaml")])
def test_dev_says_how_to_name_a_config(order: Sequence[str], tmp_path: Path) -> None:
    result = pipeline("dev", *(tmp_path / name for name in order))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(
        f": write `pipeline dev {tmp_path / 'my.yaml'} --config {tmp_path / 'config.yaml'}`\n"
    )


def test_files_that_are_swapped_are_named_as_swapped(files: tuple[Path, Path]) -> None:
    config, path = files
    swapped = "is expected here: are the two files swapped?\n"
    for command in ("validate", "describe"):
        result = pipeline(command, path, config)
        assert (result.exit_code, result.stdout) == (2, "")
        first, second = result.stderr.splitlines(keepends=True)
        assert first.startswith(f"{path}:")
        assert first.endswith(f": this is a pipeline.yaml, and config.yaml {swapped}")
        assert second.startswith(f"{config}:")
        assert second.endswith(f": this is a config.yaml, and pipeline.yaml {swapped}")


def test_validate_reports_a_missing_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = pipeline("validate", tmp_path / "none.yaml", files[1])
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path}/none.yaml:1:1: there is no such file\n"


@pytest.mark.parametrize("args", [[], ["nope"], ["validate"], ["describe", "a", "b", "--nope"]])
def test_wrong_usage_exits_with_2(args: list[str]) -> None:
    assert pipeline(*args).exit_code == 2


def test_the_process_exits_with_the_code_and_without_a_traceback(tmp_path: Path) -> None:
    command = "from kafka_pipeline.admin.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "validate", tmp_path / "a", tmp_path / "b"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "".join(f"{tmp_path}/{n}:1:1: there is no such file\n" for n in "ab")


def test_ctrl_c_while_the_commands_are_imported_shows_no_traceback() -> None:
    command = """
import builtins, os, signal

real = builtins.__import__

def interrupted(name, *args):
    if name == "kafka_pipeline.admin.app":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args)

builtins.__import__ = interrupted
from kafka_pipeline.admin.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", command, "dev"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A shell reports it as 130.
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


# --- describe ---


def test_describe_shows_graph_topics_and_tasks(files: tuple[Path, Path]) -> None:
    result = pipeline("describe", *files)
    assert result.exit_code == 0
    rows = [" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()]
    assert rows[:5] == [
        "source_topic (source)",
        "└── Forwarder forward",
        "└── Adder sum, constant 1 (on error: dead_letter)",
        "└── Counter count",
        "└── sink_topic (sink)",
    ]
    for row in (
        "source_topic 2 1 broker default broker default",
        "Forwarder_Adder_job_1 2 1 delete until processed",
        "state_topic_Counter_job_1 2 1 compact last record per key",
        "Adder_dead_letter_job_1 2 1 delete forever",
        "threads_jm_topic_job_1 1 1 delete forever",
        "heartbeat_topic_job_1 1 1 delete 3600000 ms",
        "Adder_1 Forwarder_Adder_job_1[1] Adder_Counter_job_1",
        "Counter_0 Adder_Counter_job_1[0] sink_topic state_topic_Counter_job_1[0]",
    ):
        assert row in rows


def test_describe_unfolds_a_processor_once(files: tuple[Path, Path]) -> None:
    config, path = files
    path.write_text(
        """
- {id: Split, type: forward, to: [Left, Right]}
- {id: Left, type: forward, to: [Join]}
- {id: Right, type: forward, to: [Join, sink]}
- {id: Join, type: forward, to: [sink]}
"""
    )
    tree = pipeline("describe", config, path).stdout.split("Topics")[0]
    assert tree.splitlines() == [
        "source_topic (source)",
        "└── Split forward",
        "    ├── Left forward",
        "    │   └── Join forward",
        "    │       └── sink_topic (sink)",
        "    └── Right forward",
        "        ├── Join (see above)",
        "        └── sink_topic (sink)",
        "",
    ]


def test_describe_prints_a_mermaid_flowchart(files: tuple[Path, Path]) -> None:
    result = pipeline("describe", *files, "--mermaid")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "flowchart LR",
        '    p0["Forwarder<br/>forward"]',
        '    p1["Adder<br/>sum, constant 1"]',
        '    p2["Counter<br/>count"]',
        '    source(["source_topic"])',
        '    sink(["sink_topic"])',
        "    source --> p0",
        '    p0 -->|"Forwarder_Adder_job_1"| p1',
        '    p1 -->|"Adder_Counter_job_1"| p2',
        '    p1 -.-> p1_dead_letter(["Adder_dead_letter_job_1"])',
        "    p2 --> sink",
        '    p2 <-.-> p2_state[("state_topic_Counter_job_1")]',
    ]


# --- how errors end a command ---


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (PipelineError("what to do"), 1),
        (ConfigError("what to do"), 2),
        (UnavailableError("what to do"), 3),
        (SupersededError("what to do"), 4),
    ],
)
def test_an_error_for_users_is_a_message_and_an_exit_code(
    error: PipelineError, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(_raising(error))()
    assert caught.value.code == exit_code
    assert capsys.readouterr() == ("", "what to do\n")


def test_ctrl_c_exits_with_130_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(_raising(KeyboardInterrupt()))()
    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "c.yaml", "p.yaml", "--partitions"),
        ("topic", "create", "c.yaml", "p.yaml", "--replication-factor"),
        ("topic", "alter", "c.yaml", "p.yaml", "orders", "--partitions"),
        ("rescale", "c.yaml", "--parallelism"),
    ],
)
def test_a_number_that_config_yaml_could_not_have_is_refused(words: Sequence[str]) -> None:
    result = pipeline(*words, "99999999999")
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "Input should be less than or equal to" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("letters", [10, 100_000])
def test_output_that_fills_a_disk_has_no_traceback(letters: int) -> None:
    """Less than a buffer is written only once the command has ended."""
    code = (
        "from kafka_pipeline.common.process.cli import run_command\n"
        f"run_command(lambda: print('x' * {letters}))()"
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (ended.returncode, ended.stderr) == (3, "cannot write: No space left on device\n")


def test_a_full_disk_is_named_with_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError(errno.ENOSPC, "full", "broker/server.properties")
    with pytest.raises(SystemExit) as caught:
        run_command(_raising(error))()
    assert caught.value.code == 3
    assert capsys.readouterr().err == (
        "cannot write broker/server.properties: No space left on device\n"
    )


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(_raising(ZeroDivisionError()))()


def test_a_command_without_an_error_returns_its_value() -> None:
    assert run_command(lambda x: x + 1)(2) == 3


def _raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def test_help_breaks_lines_only_where_the_terminal_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = pipeline("plan", "--help").stdout
    assert re.search(r"Exit codes: .*, 3 +\n +Kafka does not answer\.", shown)
