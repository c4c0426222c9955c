"""Values that carry the version of their format, and former ones that are upgraded when read.

A store whose format is 1 has its values as the serde writes them, and nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.errors import InvalidArgumentError, StateStoreError, not_upgraded
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.bytes_store import Entry, StoreBytes
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import TIME_BYTES

V = TypeVar("V")

Upgrade: TypeAlias = Callable[[Any, int], Any]
"""Returns a value of today for a value and the version of its format, 1 or more."""

MOST_FORMATS = 255
_MARK = b"\xff\xfekpfmt"
"""Ahead of the version, in a byte. No text in UTF-8 begins so, and no number is as long."""

_HEAD = len(_MARK) + 1
_AHEAD: Mapping[str, int] = {"timestamped-key-value": TIME_BYTES, "versioned-key-value": 1}
"""How many bytes a family of stores has ahead of a value."""

_NO_VALUE: Mapping[str, bytes] = {"versioned-key-value": b"\x00"}
"""What a family of stores has in place of a value."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The version of a store's values, 1 to 255, and how to bring those of former ones to it.

    `former` has the serdes of formats 1, 2 and so on; without any, all have the store's. Without an
    `upgrade`, a store must not have values of a former format. Raises `InvalidArgumentError`.
    """

    version: int = 1
    upgrade: Upgrade | None = None
    former: tuple[Serde[Any], ...] = ()
    code: str = ""
    """The reference to the upgrade in pipeline.yaml, until that is loaded."""

    def __post_init__(self) -> None:
        version, former = self.version, self.former
        if type(version) is not int or not 1 <= version <= MOST_FORMATS:
            raise InvalidArgumentError(
                f"the format of a store is a whole number from 1 to {MOST_FORMATS}, not {version!r}"
            )
        if self.upgrade is not None and not callable(self.upgrade):
            raise InvalidArgumentError(
                f"upgrade is a function of a value and its format, not {self.upgrade!r}"
            )
        if self.upgrades and version == 1:
            raise InvalidArgumentError("upgrade goes with a format above 1")
        if former and not self.upgrades:
            raise InvalidArgumentError("former goes with an upgrade")
        for serde in former:
            if not isinstance(serde, Serde):
                raise InvalidArgumentError(
                    f"former has a {type(serde).__name__}: use serdes of kafka_pipeline.serdes, or "
                    "make a kafka_pipeline.serdes.Serde"
                )
        if former and len(former) != version - 1:
            raise InvalidArgumentError(
                f"former has {counted(len(former), 'serde')}, and format {version} follows "
                f"{counted(version - 1, 'format')}: give one for each"
            )

    @property
    def upgrades(self) -> bool:
        """Whether values of former formats can be read."""
        return self.upgrade is not None or bool(self.code)

    def serde_of(self, version: int, serde: Serde[Any]) -> Serde[Any]:
        """Return the serde of a format, given the store's."""
        return self.former[version - 1] if self.former and version < self.version else serde

    def serdes(self, serde: Serde[Any]) -> tuple[str, ...]:
        """Return the names of the serdes of all former formats, if these can be read."""
        numbers = range(1, self.version) if self.upgrades else ()
        return tuple(self.serde_of(number, serde).name for number in numbers)


PLAIN = ValueFormat()


def split(data: bytes) -> tuple[int, bytes]:
    """Return the version of a value's format, and the value as its serde has written it."""
    if data.startswith(_MARK) and data[_HEAD - 1 : _HEAD] > b"\x01":
        return data[_HEAD - 1], data[_HEAD:]
    return 1, data


def marked(serde: Serde[V], version: int) -> Serde[V]:
    """Return the serde of values that carry their version; it reads only those of this version."""
    write, read, head = serde.serialize, serde.deserialize, _MARK + bytes((version,))

    def serialize(value: V) -> bytes:
        data = write(value)
        return data if data is None else head + data

    return Serde(serde.name, serialize, lambda data: read(data[_HEAD:]))


class FormattedBytes:
    """A `BytesStore` with a format above 1: values of former ones are upgraded when read.

    The upgraded value is put at once, so a value is upgraded once, unless its record is undone.
    """

    def __init__(
        self,
        name: str,
        family: str,
        store: StoreBytes,
        key_start: int,
        serde: Serde[Any],
        format_: ValueFormat,
    ) -> None:
        """Take the bytes below; `scan` and `range` have `key_start` bytes ahead of keys."""
        self._name, self._store, self._key_start = name, store, key_start
        self._ahead, self._no_value = _AHEAD.get(family, 0), _NO_VALUE.get(family)
        self._format, self._serde = format_, serde
        self._write = marked(serde, format_.version).serialize
        self._head = _MARK + bytes((format_.version,))
        self.approximate_num_entries = store.approximate_num_entries
        self.put, self.put_many, self.drop_range = store.put, store.put_many, store.drop_range
        self.expect_no_reads = store.expect_no_reads

    @property
    def max_timestamp(self) -> int:
        return self._store.max_timestamp

    @property
    def expiry_time(self) -> int:
        return self._store.expiry_time

    @property
    def committed_expiry_time(self) -> int:
        return self._store.committed_expiry_time

    @property
    def generation(self) -> int:
        return self._store.generation

    def get(self, key: bytes) -> bytes | None:
        """See `BytesStore`; raises `UpgradeError`, as all that reads does."""
        data = self._store.get(key)
        return None if data is None else self._current(key, data)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.get, keys))

    def scan(self, low: bytes, high: bytes | None, reverse: bool = False) -> StoreIterator[Entry]:
        scan = self._store.scan(low, high, reverse)
        return StoreIterator(self._entries(scan), (scan,))

    def range(self, low: bytes, high: bytes) -> list[Entry]:
        return list(self._entries(self._store.range(low, high)))

    def _entries(self, entries: StoreIterator[Entry] | list[Entry]) -> Iterator[Entry]:
        start = self._key_start
        return ((key, self._current(key[start:], data)) for key, data in entries)

    def _current(self, key: bytes, data: bytes) -> bytes:
        """Return a value in today's format; put it if it was not."""
        ahead = self._ahead
        if data.startswith(self._head, ahead) or data == self._no_value:
            return data
        version, written = split(data[ahead:])
        upgraded = data[:ahead] + self._upgraded(key, version, written)
        self._store.put(key, upgraded)
        return upgraded

    def _upgraded(self, key: bytes, version: int, written: bytes) -> bytes:
        upgrade, now = self._format.upgrade, self._format.version
        what = f'store "{self._name}" has a value of format {version}'
        if version > now or upgrade is None:
            raise StateStoreError(
                f"the {what}, and its declaration has {now}"
                + ("" if version > now else ", without an upgrade")
            )
        serde = self._format.serde_of(version, self._serde)
        try:
            value = upgrade(serde.deserialize(written), version)
            data = None if value is None else self._write(value)
            if data is None:
                raise StateStoreError("the upgrade returned None: it must return a value")
            return data
        except Exception as error:
            words = f"the {what}, whose upgrade to format {now} failed"
            raise not_upgraded(error, words, key) from error
