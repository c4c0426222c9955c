"""Imports user code: only modules that config.yaml lists."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import structlog

from kafka_pipeline.common.code.engine_code import ENGINE, ENGINE_FOLDER
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_frames import is_installed, with_place
from kafka_pipeline.common.errors import ConfigError

CODE_PATTERN = r"^[^:\s]+:[^:.\s]+$"
"""Every reference to code matches this, for JSON Schema; `form_problem` refuses more."""

_OWN_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
logger = structlog.get_logger(__name__)
_FORM = "write it as package.module:Name"


def form_problem(reference: str) -> str | None:
    """Return why a string is not a reference such as `package.module:Name`; None if it is one."""
    module, _, name = reference.partition(":")
    if name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return None
    meant = ""
    if is_dotted(reference):
        module, _, name = reference.rpartition(".")
        meant = f', did you mean "{module}:{name}"?'
    return f'"{reference}" names no code: {_FORM}{meant}'


def is_dotted(reference: str) -> bool:
    """Whether a string is a name as in an import, such as `package.module.Name`."""
    parts = reference.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def require_other_names(modules: Sequence[str], python_path: Sequence[Path]) -> None:
    """Raise ConfigError if a user's module has the name of this engine.

    Python would import only one of the two, and not the same one in every process.
    """
    found = _files_of(ENGINE, python_path)
    problems = [
        f'the module "{ENGINE}" in {file} has the name of this engine, so Python would import only '
        "one of them: rename it"
        for file in found
        if ENGINE_FOLDER.resolve() not in file.parents
    ]
    if not problems and ENGINE in {module.split(".")[0] for module in modules}:
        problems.append(
            f'module "{ENGINE}" of the list modules: in config.yaml is this engine, '
            f"{ENGINE_FOLDER}: rename your own module, or take the name off the list"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _files_of(name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the module's file in each folder; a package needs an `__init__.py` to count."""
    specs = [PathFinder.find_spec(name, [str(folder)]) for folder in folders]
    return [Path(spec.origin).resolve() for spec in specs if spec is not None and spec.origin]


def _require_not_hidden(name: str, python_path: Sequence[Path]) -> None:
    """Raise ConfigError for a user's module in whose place Python would give another one.

    Python imports a name once, so a user's `queue` comes too late.
    """
    loaded = sys.modules.get(name)
    if loaded is None or not (found := _files_of(name, python_path)):
        return
    file, is_of_python = getattr(loaded, "__file__", None), name in sys.stdlib_module_names
    is_other = is_of_python if file is None else Path(file).resolve() != found[0]
    if is_other and (file is None or is_installed(file)):
        raise ConfigError(
            f'the module "{name}" in {found[0]} has the name of '
            f"{'one of Python' if is_of_python else 'an installed package'}, which was imported "
            "before it: rename it"
        )


class Settings(Protocol):
    """The keys of config.yaml about user code; see `Config`."""

    @property
    def modules(self) -> Sequence[str]: ...
    @property
    def python_path(self) -> Sequence[Path]: ...


class UserCode:
    """Finds classes and functions by references such as `package.module:Name`."""

    def __init__(self, modules: Sequence[str] = (), python_path: Sequence[Path] = ()) -> None:
        """Take the allow-list of config.yaml; a package on it includes its submodules.

        The folders of `python_path` are put at the front of `sys.path`. Raises ConfigError for a
        module with the name of this engine.
        """
        require_other_names(modules, python_path)
        self._modules = modules
        self.python_path = python_path
        for folder in reversed(python_path):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))

    @classmethod
    def of(cls, config: Settings) -> UserCode:
        """Return the code that a config.yaml allows. Raises as the constructor does."""
        return cls(config.modules, config.python_path)

    def import_all(self) -> None:
        """Import every module on the list. Raises ConfigError for one that cannot be imported."""
        for module in self._modules:
            self._import(module)

    def require_own(self) -> None:
        """Raise ConfigError if this process has a listed module from another project's folder.

        Python imports a name once, so tests of two projects cannot share a process if it is that of
        a module of both.
        """
        for name in {module.partition(".")[0] for module in self._modules}:
            file = getattr(sys.modules.get(name), "__file__", None)
            found = _files_of(name, self.python_path)
            if file is not None and found and Path(file).resolve() != found[0]:
                raise ConfigError(
                    f'the module "{name}" in {found[0]} has the name of {file}, which Python has '
                    "imported instead: rename one of them, or run them in processes of their own"
                )

    def forget_modules(self) -> None:
        """Have the modules on the list, and all below `python_path`, imported anew from now on."""
        folders = tuple(f"{folder}{os.sep}" for folder in self.python_path)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if self._allows(name) or file.startswith(folders):
                del sys.modules[name]
        importlib.invalidate_caches()

    def load(self, reference: str) -> Any:
        """Return the class or function of a reference; a module on the list must define it.

        Raises ConfigError, which says why, if there is none: the user corrects pipeline.yaml or
        `modules`.
        """
        module, _, name = reference.partition(":")
        wrong = form_problem(reference)
        if wrong:
            raise ConfigError(wrong)
        self.require_allowed(reference)
        found = getattr(self._import(module), name, None)
        if found is None:
            raise ConfigError(f'module "{module}" has no "{name}"')
        # References come from a topic that others may write to, so names that the module only
        # imports are refused.
        home = getattr(found, "__module__", None)
        if not isinstance(home, str) or not self._allows(home):
            raise ConfigError(f'"{name}" is not defined in module "{module}", only imported there')
        return found

    def require_allowed(self, reference: str) -> None:
        """Raise ConfigError unless the module of a reference is on the list; imports nothing."""
        module = reference.partition(":")[0]
        if "__main__" in module.split("."):
            raise ConfigError(
                f'"{module}" is the program of a package, which would run: name another module'
            )
        if not self._allows(module):
            listed = ", ".join(self._modules) or "nothing"
            raise ConfigError(
                f'module "{module}" is not on the list modules: of config.yaml, which has '
                f"{listed}: add it if its code may run"
            )

    def _import(self, module: str) -> ModuleType:
        _require_not_hidden(module.partition(".")[0], self.python_path)
        return _import(module)

    def _allows(self, module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in self._modules)


def _import(module: str) -> ModuleType:
    try:
        with _own_settings(module):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigError(
                f'module "{module}" of the list modules: in config.yaml is not found'
                f"{_without_ending(module)} Install it, "
                f"or add its folder to python_path:. Searched: {', '.join(filter(None, sys.path))}"
            ) from error
        raise ConfigError(
            f'module "{module}" cannot be imported, as it needs "{error.name}", which is not '
            "installed here"
        ) from error
    except BaseException as raised:
        caught = as_exception(raised)
        raise ConfigError(f'module "{module}" cannot be imported: {with_place(caught)}') from caught


def _without_ending(module: str) -> str:
    """Return how a sentence ends about a module, whose name may be that of a file."""
    name = module.removesuffix(".py")
    return f', did you mean "{name}"?' if name != module else "."


@contextmanager
def _own_settings(module: str) -> Iterator[None]:
    """Keep what daemons and commands need of their process while a module runs.

    Otherwise, a module that sets handlers of signals when it is imported makes a daemon deaf to
    Ctrl-C, and one that sets a timeout for all new sockets ends every call of Spark after it.
    """
    before = {number: signal.getsignal(number) for number in _OWN_SIGNALS}
    timeout_s = socket.getdefaulttimeout()
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
                logger.warning(
                    "a module has set the handler of a signal while it was imported, which is "
                    "taken back: the process that runs it has its own",
                    module=module,
                    signal=number.name,
                )
        if socket.getdefaulttimeout() != timeout_s:
            socket.setdefaulttimeout(timeout_s)
            logger.warning(
                "a module has called socket.setdefaulttimeout while it was imported, which is "
                "taken back, as connections to Spark would get the timeout: give it to each "
                "client, or set it in init",
                module=module,
            )
