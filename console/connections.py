"""The console's connections: uvicorn's, and not more of them than the JobManager can bear."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128


class Connection(H11Protocol):
    """Makes room for itself if there are too many: of those without a request, the oldest goes.

    uvicorn keeps a connection that never completes a request for good, and only answers 503 once
    there are too many: a few silent ones would keep everybody out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        self._began_s = self.loop.time()
        others = [
            each
            for each in self.connections
            if isinstance(each, Connection) and not each.transport.is_closing()
        ]
        if len(others) >= MOST_CONNECTIONS:
            min(others, key=lambda each: (each._is_answering, each._began_s)).transport.abort()
        super().connection_made(transport)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
