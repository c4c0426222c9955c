"""How tests get at the stores of a driver's groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.stores import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    VersionedKeyValueStore,
    WindowStore,
)

S = TypeVar("S")

_GETTERS: Mapping[type, str] = {
    KeyValueStore: "get_key_value_store",
    TimestampedKeyValueStore: "get_timestamped_key_value_store",
    VersionedKeyValueStore: "get_versioned_key_value_store",
    WindowStore: "get_window_store",
    SessionStore: "get_session_store",
}


class StoreGetters:
    """Finds a store of the groups by its name."""

    def __init__(self) -> None:
        self._stores: dict[str, list[tuple[str, Any]]] = {}

    def get_state_store(self, name: str, group: str | None = None) -> Any:
        """Return a store with everything that is committed.

        If several groups have a store of that name, `group` is the node group, or the processor of
        pipeline.yaml. Raises `StreamsError` if there is no such store, or if the name is ambiguous.
        """
        return self._found(name, group)[1]

    def _found(self, name: str, group: str | None) -> tuple[str, Any]:
        """Return the group that has a store, and the store."""
        found = [(g, store) for g, store in self._stores.get(name, ()) if group in (None, g)]
        if not found:
            where = f' of "{group}"' if group else ""
            hint = did_you_mean(name, self._stores)
            raise StreamsError(f'there is no store "{name}"{where}{hint}')
        if len(found) > 1:
            groups = ", ".join(f'"{g}"' for g, _ in found)
            raise StreamsError(f'several have a store "{name}": say of which group, {groups}')
        return found[0]

    def get_key_value_store(self, name: str, group: str | None = None) -> KeyValueStore[Any, Any]:
        """Return a key-value store, with or without timestamps; see `get_state_store`.

        This method and the ones below raise `StreamsError` for a store of another kind.
        """
        return self._store(KeyValueStore, name, group)

    def get_timestamped_key_value_store(
        self, name: str, group: str | None = None
    ) -> TimestampedKeyValueStore[Any, Any]:
        """Return a key-value store with timestamps."""
        return self._store(TimestampedKeyValueStore, name, group)

    def get_versioned_key_value_store(
        self, name: str, group: str | None = None
    ) -> VersionedKeyValueStore[Any, Any]:
        """Return a versioned key-value store."""
        return self._store(VersionedKeyValueStore, name, group)

    def get_window_store(self, name: str, group: str | None = None) -> WindowStore[Any, Any]:
        """Return a window store."""
        return self._store(WindowStore, name, group)

    def get_session_store(self, name: str, group: str | None = None) -> SessionStore[Any, Any]:
        """Return a session store."""
        return self._store(SessionStore, name, group)

    def _store(self, kind: type[S], name: str, group: str | None) -> S:
        store = self.get_state_store(name, group)
        if not isinstance(store, kind):
            getter = _GETTERS[type(store)]
            raise StreamsError(f'the store "{name}" is a {type(store).__name__}: use {getter}')
        return store

    def _show(self, name: str, task: GroupTask) -> None:
        for store_name, store in task.runtime.nodes.stores.items():
            self._stores.setdefault(store_name, []).append((name, store))
