"""What users import; `kafka_pipeline.streams.api` has the list.

    from kafka_pipeline import Processor, StreamsBuilder, serdes, windows

The engine's own modules are in this package too, so the names are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_pipeline.streams.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Return a public name, or `__all__`."""
        if name == "__all__" or not name.startswith("__"):
            from kafka_pipeline.streams import api

            if name == "__all__" or name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f'"{__name__}" has no "{name}"')
