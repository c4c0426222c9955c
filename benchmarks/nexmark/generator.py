"""The events of Nexmark: persons, auctions and bids, with the official distributions and a seed.

Of 50 events, one is a person, three are auctions and 46 are bids. Half of the bids go to one hot
auction, and three quarters come from one hot bidder; both change as new ones appear. The same
settings give the same events on each machine.

The source is the generator of https://github.com/nexmark/nexmark, with its defaults. As there, ids
of bidders are 1,000 larger than those of the persons that they mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.kafka.bulk import TimedRow

PERSON, AUCTION, BID = "person", "auction", "bid"
TOPICS = (PERSON, AUCTION, BID)
"""The topics of the events. Their keys are the id of the person, and twice that of the auction."""

START_MS = 1_768_503_570_000
"""The time of the first event: 2026-01-15, 18:59:30 UTC."""
RATE = 10_000
CLOSING_AFTER_MS = 3_600_000
CLOSING_EVENTS = 16
SIDE_INPUT_ROWS = 10_000

_CHUNK = 50_000
"""A multiple of `_EPOCH`. Each chunk has a seed of its own, so a chunk is all that is in memory."""
_EPOCH, _PERSONS, _AUCTIONS = 50, 1, 3
_FIRST_ID = 1_000
_LEAD = 10
"""How many ids that do not exist yet may be referred to."""
_IN_FLIGHT, _ACTIVE_PEOPLE = 100, 1_000
_HOT = 100
_CHANNELS = 10_000

_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Longs = npt.NDArray[np.int64]
Random = np.random.Generator
Events = Mapping[str, pa.Table]
"""The events of each topic, in the order in which they arrive.

The columns are the fields of the JSON object, and `arrival`, the place among all events.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The events of a run."""

    events: int
    """How many there are, without the closing ones."""
    seed: int = 0
    rate: float = RATE
    """Events a second of event time."""
    disorder: int = 1
    """Events arrive out of order within groups of so many; 1 means in order.

    It must not be a multiple of 953, and divide 50,000.
    """
    start_ms: int = START_MS


def chunks(settings: Settings) -> Iterator[Events]:
    """Yield all events, and then the closing ones.

    These are 16 events for each topic, an hour later, with 16 keys: they close all windows of the
    others, in each partition.
    """
    texts = _Texts(np.random.default_rng((settings.seed, 0)))
    for first in range(0, settings.events, _CHUNK):
        arrivals = np.arange(first, min(first + _CHUNK, settings.events))
        random = np.random.default_rng((settings.seed, 1, first))
        yield _chunk(settings, arrivals, random, texts)
    yield _closing(settings, texts)


def rows(topic: str, events: pa.Table) -> Iterator[TimedRow]:
    """Yield the records of a topic: keys in decimal digits, values in JSON, times in ms."""
    fields = [name for name in events.column_names if name != "arrival"]
    is_text = [pa.types.is_string(events.schema.field(name).type) for name in fields]
    shape = ",".join(
        f'"{name}":"%s"' if quoted else f'"{name}":%d'
        for name, quoted in zip(fields, is_text, strict=True)
    )
    key, time = fields[0], fields.index("dateTime")
    keys = events.column(key).to_pylist()
    for number, values in zip(
        keys, zip(*(events.column(name).to_pylist() for name in fields), strict=True), strict=True
    ):
        yield b"%d" % number, f"{{{shape % values}}}".encode(), values[time]


class _Texts:
    """Random text: names, and parts of URLs."""

    def __init__(self, random: Random) -> None:
        letters = random.integers(ord("a"), ord("z") + 1, 1 << 20, np.uint8)
        self._dense = letters.tobytes().decode()
        # In names, one character in 13 is a blank.
        letters[random.integers(0, 13, letters.size) == 0] = ord(" ")
        self._sparse = letters.tobytes().decode()
        self.hot_urls = self._base_urls(random, len(_HOT_CHANNELS))
        reversed_bits = [int(f"{number:032b}"[::-1], 2) for number in range(_CHANNELS)]
        ids = [abs(bits - (1 << 32) if bits >= 1 << 31 else bits) for bits in reversed_bits]
        has_id = (random.integers(0, 10, _CHANNELS) > 0).tolist()
        self.urls = [
            url + (f"&channel_id={number}" if shown else "")
            for url, number, shown in zip(
                self._base_urls(random, _CHANNELS), ids, has_id, strict=True
            )
        ]

    def strings(self, random: Random, count: int, longest: int) -> list[str]:
        """Return strings of 3 to `longest - 1` characters, without blanks at their ends."""
        found = self._slices(self._sparse, random, random.integers(3, longest, count))
        return [text.strip() for text in found]

    def extra(self, random: Random, sizes: Longs, wanted: int) -> list[str]:
        """Return what fills events of these sizes up to the wanted one, 20 % more or less."""
        left = np.maximum(wanted - sizes, 0)
        delta = np.rint(left * 0.2).astype(np.int64)
        lengths = left - delta + (random.random(sizes.size) * 2 * delta).astype(np.int64)
        return self._slices(self._dense, random, lengths)

    def _slices(self, text: str, random: Random, lengths: Longs) -> list[str]:
        starts = random.integers(0, len(text) - 1_000, lengths.size)
        ends = starts + lengths
        return [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _base_urls(self, random: Random, count: int) -> list[str]:
        parts = [text.replace(" ", "_") for text in self.strings(random, 3 * count, 5)]
        return [
            f"https://www.nexmark.com/{'/'.join(parts[3 * each : 3 * each + 3])}/item.htm?query=1"
            for each in range(count)
        ]


def _chunk(settings: Settings, arrivals: Longs, random: Random, texts: _Texts) -> Events:
    group = arrivals // settings.disorder * settings.disorder
    numbers = group + arrivals * 953 % settings.disorder
    offsets = numbers % _EPOCH
    is_person, is_bid = offsets < _PERSONS, offsets >= _PERSONS + _AUCTIONS
    made = {
        PERSON: (_persons, is_person),
        AUCTION: (_auctions, ~is_person & ~is_bid),
        BID: (_bids, is_bid),
    }
    return {
        topic: pa.table(
            {
                **make(settings, numbers[chosen], random, texts),
                "arrival": arrivals[chosen],
            }
        )
        for topic, (make, chosen) in made.items()
    }


def _persons(
    settings: Settings, numbers: Longs, random: Random, texts: _Texts
) -> Mapping[str, Any]:
    count = numbers.size
    names = zip(_pick(random, _FIRST_NAMES, count), _pick(random, _LAST_NAMES, count), strict=True)
    emails = zip(texts.strings(random, count, 7), texts.strings(random, count, 5), strict=True)
    cards = random.integers(0, 10_000, (count, 4)).tolist()
    fields = {
        "name": [" ".join(pair) for pair in names],
        "emailAddress": [f"{name}@{host}.com" for name, host in emails],
        "creditCard": [" ".join(f"{part:04d}" for part in card) for card in cards],
        "city": _pick(random, _CITIES, count),
        "state": _pick(random, _STATES, count),
    }
    return {
        "id": _last_person(numbers) + _FIRST_ID,
        **fields,
        "dateTime": _times(settings, numbers),
        "extra": texts.extra(random, 8 + _lengths(*fields.values()), 200),
    }


def _auctions(
    settings: Settings, numbers: Longs, random: Random, texts: _Texts
) -> Mapping[str, Any]:
    count = numbers.size
    names, descriptions = texts.strings(random, count, 20), texts.strings(random, count, 100)
    initial = _prices(random, count)
    times = _times(settings, numbers)
    horizon = _times(settings, numbers + _IN_FLIGHT * _EPOCH // _AUCTIONS) - times
    hot = _last_person(numbers) // _HOT * _HOT
    is_hot = random.integers(0, 4, count) > 0
    return {
        "id": _last_auction(numbers) + _FIRST_ID,
        "itemName": names,
        "description": descriptions,
        "initialBid": initial,
        "reserve": initial + _prices(random, count),
        "dateTime": times,
        "expires": times + 1 + _below(random, np.maximum(2 * horizon, 1)),
        "seller": np.where(is_hot, hot, _any_person(random, numbers)) + _FIRST_ID,
        "category": random.integers(10, 15, count),
        "extra": texts.extra(random, 48 + _lengths(names, descriptions), 500),
    }


def _bids(settings: Settings, numbers: Longs, random: Random, texts: _Texts) -> Mapping[str, Any]:
    count = numbers.size
    last = _last_auction(numbers)
    oldest = np.maximum(last - _IN_FLIGHT, 0)
    auctions = np.where(
        random.integers(0, 2, count) > 0,
        last // _HOT * _HOT,
        oldest + _below(random, last - oldest + 1 + _LEAD),
    )
    bidders = np.where(
        random.integers(0, 4, count) > 0,
        _last_person(numbers) // _HOT * _HOT + 1,
        _any_person(random, numbers),
    )
    prices = _prices(random, count)
    channels, urls = _channels(random, count, texts)
    return {
        "auction": auctions + _FIRST_ID,
        "bidder": bidders + 2 * _FIRST_ID,
        "price": prices,
        "channel": channels,
        "url": urls,
        "dateTime": _times(settings, numbers),
        "extra": texts.extra(random, np.full(count, 32), 100),
    }


def _channels(random: Random, count: int, texts: _Texts) -> tuple[list[str], list[str]]:
    is_hot = (random.integers(0, 2, count) > 0).tolist()
    hot = random.integers(0, len(_HOT_CHANNELS), count).tolist()
    other = random.integers(0, _CHANNELS, count).tolist()
    chosen = list(zip(is_hot, hot, other, strict=True))
    return (
        [_HOT_CHANNELS[a] if is_one else f"channel-{b}" for is_one, a, b in chosen],
        [texts.hot_urls[a] if is_one else texts.urls[b] for is_one, a, b in chosen],
    )


def _closing(settings: Settings, texts: _Texts) -> Events:
    """Return an event of each topic for each of 16 new persons and auctions, an hour later."""
    random = np.random.default_rng((settings.seed, 2))
    epochs = settings.events // _EPOCH + 1 + np.arange(CLOSING_EVENTS)
    times = np.full(CLOSING_EVENTS, _times(settings, epochs[-1:] * _EPOCH)[0] + CLOSING_AFTER_MS)
    persons = dict(_persons(settings, epochs * _EPOCH, random, texts))
    auctions = dict(_auctions(settings, epochs * _EPOCH + _PERSONS, random, texts))
    bids = dict(_bids(settings, epochs * _EPOCH + _PERSONS + _AUCTIONS, random, texts))
    # The seller is not one of these persons: their windows stay open.
    auctions |= {"seller": np.full(CLOSING_EVENTS, _FIRST_ID), "expires": times + 1_000}
    bids |= {"auction": auctions["id"]}
    made = {PERSON: persons, AUCTION: auctions, BID: bids}
    return {
        topic: pa.table(
            {
                **fields,
                "dateTime": times,
                "arrival": settings.events + number * CLOSING_EVENTS + np.arange(CLOSING_EVENTS),
            }
        )
        for number, (topic, fields) in enumerate(made.items())
    }


def _times(settings: Settings, numbers: Longs) -> Longs:
    micros = (numbers * (1e6 / settings.rate)).astype(np.int64)
    return settings.start_ms + micros // 1_000


def _last_person(numbers: Longs) -> Longs:
    """Return the last person before or at an event; persons are numbered from 0 here."""
    return numbers // _EPOCH


def _last_auction(numbers: Longs) -> Longs:
    offsets = np.clip(numbers % _EPOCH - _PERSONS, -1, _AUCTIONS - 1)
    return numbers // _EPOCH * _AUCTIONS + offsets


def _any_person(random: Random, numbers: Longs) -> Longs:
    people = _last_person(numbers) + 1
    active = np.minimum(people, _ACTIVE_PEOPLE)
    return people - active + _below(random, active + _LEAD)


def _below(random: Random, limits: Longs) -> Longs:
    return (random.random(limits.size) * limits).astype(np.int64)


def _prices(random: Random, count: int) -> Longs:
    prices: Longs = np.rint(np.power(10.0, random.random(count) * 6) * 100).astype(np.int64)
    return prices


def _pick(random: Random, words: Sequence[str], count: int) -> list[str]:
    return [words[index] for index in random.integers(0, len(words), count).tolist()]


def _lengths(*columns: Sequence[str]) -> Longs:
    return np.array([sum(map(len, row)) for row in zip(*columns, strict=True)], np.int64)


def write_side_input(folder: Path) -> None:
    """Write side_input.csv, which q13 looks numbers up in."""
    lines = (f"{number},{number}\n" for number in range(SIDE_INPUT_ROWS))
    (folder / "side_input.csv").write_text("".join(lines), "utf-8")
