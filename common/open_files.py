"""The limit of open files of this process, raised to what is allowed."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Allow this process, and those that it starts, as many open files as it may allow itself.

    Returns how many these are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # macOS allows less than it names.
            return soft
    return hard
