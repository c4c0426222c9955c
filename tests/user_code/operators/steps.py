"""Steps of streams that are neither aggregates nor joins."""

from __future__ import annotations

import asyncio

from kafka_pipeline import AsyncSettings, Processor, ProcessorContext, Record, serdes, stores, value
from kafka_pipeline.streams.dsl.stream import Stream
from tests.user_code.operators.parts import Fill, Operator


def filters(of: Operator) -> Stream:
    kept = of.a.filter(lambda key, value: value != "2")
    return kept.filter_not(lambda key, value: value == "4")


def maps(of: Operator) -> Stream:
    mapped = of.a.map(lambda key, value: (key * 2, value))
    return mapped.map_values(lambda value: value * 2)


def flat_maps(of: Operator) -> Stream:
    mapped = of.a.flat_map(lambda key, value: [(key, value), (value, key)])
    return mapped.flat_map_values(lambda value: [value, value * 2])


def peek_and_merge(of: Operator) -> Stream:
    of.b.for_each(_require_text)
    return of.a.peek(_require_text).merge(of.b)


def _require_text(key: object, value: object) -> None:
    """Fail, so that results are missing, unless an action gets what the serdes make."""
    if not isinstance(key, str) or not isinstance(value, str | None):
        raise TypeError(f"{key!r} or {value!r} is not a string")


def expressions(of: Operator) -> Stream:
    odd = of.a.filter(value().cast(int) % 2 == 1)
    return odd.select_key(value().str.slice(0, 1)).map_values(value() + "!")


async def _doubled_later(value: str) -> str:
    """Return the later the smaller the number is: results must come in the order of records."""
    await asyncio.sleep(0.05 / int(value))
    return value * 2


def asynchronous(of: Operator) -> Stream:
    doubled = of.a.map_values(_doubled_later, asynchronous=AsyncSettings(max_in_flight=4))
    return doubled.filter(lambda key, value: value != "22")


def split(of: Operator) -> None:
    split = of.a.split({"odd": lambda key, value: int(value) % 2}, default="even")
    split["odd"].map_values(lambda value: f"odd {value}").to(lambda record: of.out)
    split["even"].to(of.out)


def repartition(of: Operator) -> Stream:
    keyed = of.a.select_key(lambda key, value: value)
    return keyed.repartition(name="Again", partitions=1).map_values(lambda value: f"{value}!")


class _Numbering(Processor):
    """Puts the number of values so far in front of each value."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._numbers = context.get_state_store("Numbers")

    def process(self, record: Record) -> None:
        number = (self._numbers.get("n") or 0) + 1
        self._numbers.put("n", number)
        self.context.forward(record.with_value(f"{number}: {record.value}"))


def process(of: Operator) -> Stream:
    numbers = stores.key_value("Numbers", serdes.string, serdes.int64)
    return of.a.process(_Numbering, stores=[numbers], name="Numbering")


def process_values(of: Operator) -> Stream:
    of.builder.add_state_store(stores.key_value("Numbers", serdes.string, serdes.int64))
    return of.a.process_values(_Numbering, stores=["Numbers"], name="Numbering")


def deduplicate(of: Operator) -> Stream:
    return of.a.deduplicate(within_ms=5, by=lambda key, value: len(value), name="Once")


def distinct(of: Operator) -> Stream:
    return of.a.distinct(by=value().cast(int) % 3, name="Distinct")


def lag(of: Operator) -> Stream:
    return of.a.lag(2, name="Lagged", value_serde=serdes.json)


STEPS: tuple[Fill, ...] = (
    filters,
    maps,
    flat_maps,
    peek_and_merge,
    expressions,
    asynchronous,
    split,
    repartition,
    process,
    process_values,
    deduplicate,
    distinct,
    lag,
)
