"""User code: what is imported, what is refused, and the errors."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a package and modules of users."""
    (tmp_path / "shop_code").mkdir()
    (tmp_path / "shop_code" / "__init__.py").write_text("")
    (tmp_path / "shop_code" / "orders.py").write_text(
        "from os import system\nfrom pathlib import Path\nclass Orders: ...\ndef build(): ...\n"
    )
    (tmp_path / "broken_code.py").write_text("1 / 0\n")
    (tmp_path / "needy_code.py").write_text("import no_such_dependency\n")
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_package_on_the_list_stands_for_its_modules(folder: Path) -> None:
    code = UserCode(["shop_code"], [folder])
    assert code.load("shop_code.orders:Orders").__name__ == "Orders"
    assert code.load("shop_code.orders:build").__name__ == "build"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("shop_code.orders:Missing", 'module "shop_code.orders" has no "Missing"'),
        ("shop_code.orders:system", '"system" is not defined in module "shop_code.orders"'),
        ("shop_code.orders:Path", '"Path" is not defined in module "shop_code.orders"'),
        ("shop_code.orders:Orders.mro", "names no code: write it as package.module:Name"),
        ("shop_code.orders", "names no code"),
        (
            "os:system",
            'module "os" is not on the list modules: of config.yaml, which has shop_code',
        ),
        ("shop_codes:x", 'module "shop_codes" is not on the list'),
        ("shop_code.none:x", 'module "shop_code.none" of the list modules: in config.yaml'),
    ],
)
def test_other_references_are_refused_with_the_reason(
    folder: Path, reference: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        UserCode(["shop_code"], [folder]).load(reference)
    assert message in str(raised.value)


IMPORTS = """
import ctypes, functools, logging, os, subprocess, unittest.mock
from importlib import import_module
from os import system as build_all
class Everything:
    def __init__(self, given): self.given = given
    def __getattr__(self, name): return Everything(name)
    def __bool__(self): return True
    def __call__(self, *given): return self
    def __eq__(self, other): return True
    __module__ = property(lambda self: Everything("module"))
proxy = Everything("proxy")
mock = unittest.mock.MagicMock()
run = functools.partial(subprocess.run, shell=True)
cached = functools.lru_cache(subprocess.run)
shell = staticmethod(os.system)
log = logging.getLogger("x").info
library = ctypes.CDLL(None).system
table = {"run": subprocess.run}
def own(): ...
wrapped = functools.wraps(own)(lambda: own())
"""


@pytest.mark.parametrize(
    "name",
    [
        *("ctypes", "functools", "subprocess", "unittest", "import_module", "build_all"),
        *("proxy", "mock", "run", "cached", "shell", "log", "library", "table"),
        *("__builtins__", "__loader__", "__spec__", "__dict__", "__class__", "__doc__", "__name__"),
        *("__path__", "__file__", "__getattribute__", "__init__", "__reduce_ex__", "orders"),
    ],
)
def test_what_a_module_only_imports_or_makes_of_it_is_refused(folder: Path, name: str) -> None:
    """References come with control records: they must not reach past the user's own code."""
    (folder / "shop_code" / "__init__.py").write_text(f"{IMPORTS}from shop_code import orders\n")
    code = UserCode(["shop_code"], [folder])
    with pytest.raises(ConfigError):
        code.load(f"shop_code:{name}")
    assert code.load("shop_code:own").__name__ == "own"
    assert code.load("shop_code:wrapped").__name__ == "own"


@pytest.mark.parametrize(
    "reference",
    [
        "shop_code.os:system",
        "shop_code..os:system",
        ".os:system",
        "shop_code/../os:system",
        "shop_code:os.system",
        "shop_code:orders:system",
        "os.path:join",
        "builtins:eval",
        "shop_code_evil:x",
        "SHOP_CODE:own",
        " shop_code:own",
        "shop_code :own",
        "shop_code\n:own",
        "\uff53hop_code:own",
        ":own",
        "shop_code:",
        "",
    ],
)
def test_no_spelling_of_a_reference_leads_to_other_modules(folder: Path, reference: str) -> None:
    (folder / "shop_code" / "__init__.py").write_text("import os\ndef own(): ...\n")
    before = set(sys.modules)
    with pytest.raises(ConfigError):
        UserCode(["shop_code"], [folder]).load(reference)
    assert set(sys.modules) - before <= {"shop_code"}


def test_the_program_of_a_package_is_not_run(folder: Path) -> None:
    """To import `__main__` would run it, often without a condition."""
    (folder / "shop_code" / "__main__.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(ConfigError, match=r'"shop_code\.__main__" is the program of a package'):
        UserCode(["shop_code"], [folder]).load("shop_code.__main__:main")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("nowhere_code", 'module "nowhere_code" of the list modules: in config.yaml is not found'),
        (
            "shop_code.orders.py",
            'config.yaml is not found, did you mean "shop_code.orders"? Install',
        ),
        ("broken_code", 'module "broken_code" cannot be imported: ZeroDivisionError'),
        ("needy_code", 'as it needs "no_such_dependency", which is not installed here'),
    ],
)
def test_module_that_cannot_be_imported_says_why(folder: Path, module: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        UserCode([module], [folder]).import_all()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "whose"), [("queue", "one of Python"), ("structlog", "an installed package")]
)
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
def test_module_in_whose_place_python_gives_another_one_is_refused(
    folder: Path, name: str, whose: str, form: str
) -> None:
    """Else a class of it is not found, and nobody sees why."""
    file = folder / form.format(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text("class Orders: ...\n")
    code = UserCode([name], [folder])
    message = (
        f'the module "{name}" in {file} has the name of {whose}, which was imported before it: '
        "rename it"
    )
    for call in (code.import_all, lambda: code.load(f"{name}:Orders")):
        with pytest.raises(ConfigError) as raised:
            call()
        assert str(raised.value) == message


def test_module_of_another_project_that_was_imported_before_is_not_taken_for_it(
    folder: Path,
) -> None:
    """Else the suite of one project ran the code of another one, in the same process."""
    folders = [folder / "first", folder / "second"]
    for each in folders:
        each.mkdir()
        (each / "twin_code.py").write_text("class Orders: ...\n")
    first = UserCode(["twin_code"], folders[:1])
    first.import_all()
    first.require_own()
    second = UserCode(["twin_code"], folders[1:])
    with pytest.raises(ConfigError) as raised:
        second.require_own()
    assert str(raised.value) == (
        f'the module "twin_code" in {folders[1]}/twin_code.py has the name of '
        f"{folders[0]}/twin_code.py, which Python has imported instead: rename one of them, or run "
        "them in processes of their own"
    )
    second.forget_modules()
    second.import_all()
    second.require_own()


def test_module_that_cannot_be_shown_why_it_fails_is_refused(folder: Path) -> None:
    (folder / "mute_code.py").write_text(
        "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute\n"
    )
    with pytest.raises(ConfigError, match="Mute: its __str__ raised ValueError"):
        UserCode(["mute_code"], [folder]).import_all()


def test_message_about_a_missing_module_has_the_folders_that_were_searched(folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"Searched: {folder}, "):
        UserCode(["nowhere_code"], [folder]).import_all()


@pytest.mark.parametrize("form", ["kafka_pipeline.py", "kafka_pipeline/__init__.py"])
@pytest.mark.parametrize("listed", [[], ["kafka_pipeline"], ["kafka_pipeline.orders"]])
def test_module_with_the_name_of_the_engine_is_refused(
    tmp_path: Path, form: str, listed: list[str]
) -> None:
    file = tmp_path / form
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    before = list(sys.path)
    with pytest.raises(ConfigError) as raised:
        UserCode(listed, [tmp_path / "none", tmp_path])
    assert str(raised.value) == (
        f'the module "kafka_pipeline" in {file} has the name of this engine, so Python would '
        "import only one of them: rename it"
    )
    assert sys.path == before


def test_engine_cannot_be_listed_as_a_module() -> None:
    with pytest.raises(ConfigError) as raised:
        UserCode(["shop_code", "kafka_pipeline.orders"])
    package = Path(__file__).parents[3] / "kafka_pipeline"
    assert str(raised.value) == (
        f'module "kafka_pipeline" of the list modules: in config.yaml is this engine, '
        f"{package}: rename your own module, or take the name off the list"
    )


def test_folder_that_is_no_package_may_have_any_name(tmp_path: Path) -> None:
    """As a regular package, which the engine is, is imported before it wherever it is."""
    (tmp_path / "kafka_pipeline").mkdir()
    (tmp_path / "kafka_pipeline" / "rates.csv").write_text("")
    UserCode(["shop_code"], [tmp_path])
    sys.path.remove(str(tmp_path))


def test_engine_may_be_in_a_folder_of_python_path() -> None:
    UserCode(["tests.user_code"], [Path(__file__).parents[3]])


def test_handlers_of_signals_that_a_module_sets_when_it_is_imported_are_taken_back(
    folder: Path,
) -> None:
    """A daemon would not stop at Ctrl-C any more."""
    (folder / "deaf_code.py").write_text(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    )
    before = signal.getsignal(signal.SIGALRM)
    try:
        with capture_logs() as logs:
            UserCode(["deaf_code"], [folder]).import_all()
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert [(entry["module"], entry["signal"]) for entry in logs] == [("deaf_code", "SIGTERM")]


def test_a_timeout_for_all_sockets_that_a_module_sets_when_it_is_imported_is_taken_back(
    folder: Path,
) -> None:
    (folder / "hasty_code.py").write_text("import socket\nsocket.setdefaulttimeout(5)\n")
    former = socket.getdefaulttimeout()
    try:
        with capture_logs() as logs:
            UserCode(["hasty_code"], [folder]).import_all()
        assert socket.getdefaulttimeout() == former
    finally:
        socket.setdefaulttimeout(former)
    (entry,) = logs
    assert entry["event"].startswith("a module has called socket.setdefaulttimeout")
    assert entry["module"] == "hasty_code"
