"""The error of a record that does not fit its schema."""

from __future__ import annotations


class MisfitError(ValueError):
    """A record does not fit its schema; the message does not quote the record."""
