"""When a windowed aggregate forwards its results (KIP-825)."""

from __future__ import annotations

from enum import Enum


class Emit(Enum):
    """When a windowed aggregate forwards its results."""

    ON_WINDOW_UPDATE = "on window update"
    """With each record: every result so far."""

    ON_WINDOW_CLOSE = "on window close"
    """Once per window, when no record can change it any more."""
