"""The one rule for names that become part of a topic, a path or a transactional id."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249
"""The longest topic name that Kafka takes, in characters."""

NAME = f"[a-zA-Z0-9._-]{{1,{MAX_NAME_LENGTH}}}"
"""A regular expression for a name, to use in larger ones; `REFUSED_NAMES` match it too."""

NAME_PATTERN = rf"^(?!\.{{1,2}}$){NAME}$"
"""What `name_problem` accepts, for JSON Schema."""

REFUSED_NAMES = (".", "..")

_REFUSED_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")


def name_problem(name: str) -> str | None:
    """Return why Kafka refuses this topic name, as the end of a sentence, or None if it is fine.

    A name that Kafka accepts is also a valid folder name, and never leads to another folder.
    """
    if not name:
        return "is empty"
    if name in REFUSED_NAMES:
        return "is a name that Kafka refuses"
    refused = _REFUSED_CHARACTER.search(name)
    if refused:
        return (
            f'has the character "{refused[0]}", which Kafka refuses in topic names: '
            'use letters, digits, ".", "_" and "-"'
        )
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, Kafka takes at most {MAX_NAME_LENGTH}"
    return None
