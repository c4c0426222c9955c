"""Raises this process's limit of open files as far as allowed."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, for this process and its children.

    Returns the limit that now applies.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # macOS allows fewer than the hard limit that it reports.
            return soft
    return hard
