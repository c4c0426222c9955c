"""Server-sent events: a view, again and again, as it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kafka_pipeline.console.hub import Hub

_KEEP_ALIVE_S = 15.0


class LiveView(StreamingResponse):
    """A view whenever there is another snapshot, to one listener.

    A slow listener skips snapshots. The stream ends if the view is gone, such as a processor that
    is not in the pipeline any more.
    """

    def __init__(self, hub: Hub, view: str) -> None:
        super().__init__(_events(hub, view), media_type="text/event-stream")
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the listener goes away; it must have joined the hub."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave()


async def _events(hub: Hub, view: str) -> AsyncIterator[bytes]:
    number = -1
    while not hub.is_closed:
        if hub.number != number:
            number, found = hub.number, hub.view(view)
            if found is None:
                yield b"event: gone\ndata: {}\n\n"
                return
            yield b"data: " + found + b"\n\n"
        elif not await hub.wait(_KEEP_ALIVE_S):
            yield b": still there\n\n"
