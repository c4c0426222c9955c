"""Takes, gives and releases many objects of the JVM in one call.

In py4j, each item of a sequence is a call to another process, and so is the release of each object
that Python no longer uses. To plan one query takes thousands of objects.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import (
    DEFAULT_JVM_ID,
    ENTRY_POINT_OBJECT_ID,
    GATEWAY_SERVER_OBJECT_ID,
    Py4JError,
)

from kafka_pipeline.streams.sql.java_class import java_class

_RELEASE_INTERVAL_S = 1.0
"""As long as py4j's own worker waits if there is nothing to release."""
_KEPT = (ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID)
"""The objects that belong to the JVM's side of py4j."""

_known: WeakKeyDictionary[Any, JavaObjects] = WeakKeyDictionary()
_lock = threading.Lock()


class JavaObjects:
    """Moves objects between Python and a JVM; there is one for each client of py4j."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._java = java_class(JVMView(client, "default", DEFAULT_JVM_ID), "Objects").newInstance()
        self._java.use(JavaObject(GATEWAY_SERVER_OBJECT_ID, client).getGateway())
        client.finalizer_deque = _Releases(client.finalizer_deque, self._java)

    @staticmethod
    def near(value: Any) -> JavaObjects:
        """Return the one that belongs to the JVM of an object."""
        client = value._gateway_client
        with _lock:
            if client not in _known:
                _known[client] = JavaObjects(client)
            return _known[client]

    def items(self, seq: Any) -> list[Any]:
        """Return the items of a Scala Seq of objects, none of which is null, a text or a number."""
        return [JavaObject(id_, self._client) for id_ in self._java.items(seq).split()]

    def seq(self, values: Sequence[Any]) -> Any:
        """Return a Scala Seq of objects of the JVM."""
        return self._java.seq(" ".join([value._get_object_id() for value in values]))


def items(seq: Any) -> list[Any]:
    """Return the items of a Scala Seq; see `JavaObjects.items`."""
    return JavaObjects.near(seq).items(seq)


class _Releases:
    """Releases all objects of some time at once; takes the place of a `JavaClient`'s queue.

    A finalizer of any thread adds an object, and only the one worker of the client takes any out.
    """

    def __init__(self, queue: deque[Any], java: Any) -> None:
        self._queue = queue
        self._java = java
        self._ids: deque[str] = deque()
        self._is_asked_for = False

    def appendleft(self, item: Any) -> None:
        """Take an object that is to be released, as a client and the object's id."""
        if item == SHUTDOWN_FINALIZER_WORKER:
            self._queue.appendleft(item)
            return
        _, id_ = item
        if id_ in _KEPT:
            return
        self._ids.append(id_)
        if not self._is_asked_for:
            self._is_asked_for = True
            self._queue.appendleft((self, ""))

    def garbage_collect_object(self, _id: str, _enqueue: bool) -> None:
        """Release what there is; the worker calls this."""
        time.sleep(_RELEASE_INTERVAL_S)
        self._is_asked_for = False
        ids = [self._ids.popleft() for _ in range(len(self._ids))]
        with suppress(Py4JError, OSError):  # If the JVM has ended, so have its objects.
            self._java.release(" ".join(ids))
