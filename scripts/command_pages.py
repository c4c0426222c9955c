"""The reference of the `pipeline` commands, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from kafka_pipeline.admin.app import app_with

_CODE = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*)")


def command_sections() -> Iterator[str]:
    """Yield the paragraphs about all commands, in the order of `pipeline --help`."""
    yield from _sections(typer.main.get_command(app_with()), "pipeline")


def _sections(command: Any, name: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        for word, subcommand in subcommands.items():
            yield from _sections(subcommand, f"{name} {word}")
        return
    parameters = [each for each in command.params if not each.hidden]
    given = [each for each in parameters if each.param_type_name == "argument"]
    options = [each for each in parameters if each.param_type_name == "option"]
    yield f"## {name}"
    words = [
        name,
        *(_value(each).replace("\\", "") for each in given),
        *(["[OPTIONS]"] if options else []),
    ]
    yield f"`{' '.join(words)}`"
    for paragraph in command.help.strip().split("\n\n"):
        yield _CODE.sub(r"`\1`", " ".join(paragraph.split()))
    if options:
        yield "\n".join(["| option | what it does |", "| --- | --- |", *map(_row, options)])


def _row(option: Any) -> str:
    value = "" if option.is_flag else f" {_value(option)}"
    is_said = "may be repeated" in option.help
    repeated = " It may be repeated." if option.multiple and not is_said else ""
    default = option.default
    shown = default.value if isinstance(default, Enum) else default
    has_default = not option.is_flag and shown not in (None, "", ())
    text = _CODE.sub(r"`\1`", f"{option.help}{repeated}")
    more = "Required." if option.required else f"Default: `{shown}`." if has_default else ""
    names = "`, `".join([*option.opts, *option.secondary_opts])
    return f"| `{names}{value}` | {' '.join(filter(None, (text, more)))} |"


def _value(parameter: Any) -> str:
    """Return what a value may be, as `a\\|b` in a table, or the kind of value."""
    kind = parameter.type_descriptor
    if parameter.metavar:
        return str(parameter.metavar)
    if kind.is_choice:
        return "\\|".join(str(each.value) for each in kind.choices)
    return "N" if kind.annotation in (int, float) else "TEXT"
