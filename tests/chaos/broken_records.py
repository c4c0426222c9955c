"""Records that cannot be processed, among good ones."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_committed
from kafka_pipeline.common.record_batch import RecordBatch
from tests.chaos.catalog import fault
from tests.chaos.rig import Rig, eventually

ARRIVAL_TIMEOUT_S = 60.0
LARGE_BYTES = 999_000
LOWERED_LIMIT_BYTES = 100_000
_POLL_S = 0.2
_REQUEST_TIMEOUT_S = 30

Pair = tuple[bytes | None, bytes | None]


def write(rig: Rig, key: bytes | None, value: bytes | None) -> None:
    """Write a record to the source, among the others."""
    rig.load.add([(key, value)])


def _expect_result(rig: Rig, wanted: Pair) -> None:
    """Wait for a record in the sink; the ledger counts any repetition."""
    what = f"{_short(wanted)} does not come to the sink"
    eventually(lambda: rig.ledger.others[wanted], ARRIVAL_TIMEOUT_S, what)


def expect_dead_letter(
    rig: Rig, processor: str, wanted: Pair, headers: Sequence[bytes] = ()
) -> None:
    """Wait for a dead letter; it must come once, with these strings in its headers."""
    config, topic = rig.engine.config, rig.engine.names.dead_letter(processor)

    def batches() -> list[RecordBatch]:
        return [
            batch
            for batch in read_committed(config, topic, config.parallelism)
            if wanted in zip(batch.keys, batch.values, strict=True)
        ]

    found = [
        (batch, index)
        for batch in eventually(
            batches, ARRIVAL_TIMEOUT_S, f"{_short(wanted)} does not come to {topic}", _POLL_S
        )
        for index, pair in enumerate(zip(batch.keys, batch.values, strict=True))
        if pair == wanted
    ]
    assert len(found) == 1, f"{_short(wanted)} is {len(found)} times in {topic}"
    batch, index = found[0]
    texts = [value or b"" for _, value in (batch.headers[index] or [])] if batch.headers else []
    for text in headers:
        assert any(text in value for value in texts), f"no {text!r} in {texts}"


def _short(pair: Pair) -> str:
    return f"{pair[0]!r}: {(pair[1] or b'')[:40]!r}"


def some_key(rig: Rig, kind: str) -> bytes:
    """Return a new key that begins with `kind`."""
    return b"%s-%d" % (kind.encode(), rig.random.randrange(10**12))


@fault("poison-record")
def poison_record(rig: Rig) -> None:
    """A value that is not a number: to Adder's dead letters, and counted by Counter."""
    key = some_key(rig, "poison")
    write(rig, key, b"poison")
    rig.mark()
    expect_dead_letter(rig, "Adder", (key, b"poison"), [b"the value is not an integer"])
    _expect_result(rig, (key, b"1"))
    rig.say(f"poison record put aside; all keys flow after {rig.wait_for_flow():.1f} s")


@fault("keyless-record")
def keyless_record(rig: Rig) -> None:
    """A record without key: added up, but to Counter's dead letters."""
    number = rig.random.randrange(10**6, 10**9)
    write(rig, None, b"%d" % number)
    rig.mark()
    _expect_result(rig, (None, b"%d" % (number + 1)))
    expect_dead_letter(rig, "Counter", (None, b"%d" % number))
    rig.say(f"record without key dealt with; all keys flow after {rig.wait_for_flow():.1f} s")


@fault("large-record")
def large_record(rig: Rig) -> None:
    """A record of 1 MB that is not a number: forwarded, counted, and whole in the dead letters."""
    key, value = some_key(rig, "large"), b"x" * LARGE_BYTES
    write(rig, key, value)
    rig.mark()
    expect_dead_letter(rig, "Adder", (key, value))
    _expect_result(rig, (key, b"1"))
    rig.say(f"record of 1 MB dealt with; all keys flow after {rig.wait_for_flow():.1f} s")


@fault("oversize-output")
def oversize_output(rig: Rig) -> None:
    """An output topic's limit is lowered: what it refuses goes to the dead letters, once."""
    key, value = some_key(rig, "oversize"), b"y" * (2 * LOWERED_LIMIT_BYTES)
    names = rig.engine.names
    arc = names.arc("Splitter", "Adder")
    limit = Admin(rig.engine.config).size_limits([arc])[arc]
    _set_limit(rig, arc, LOWERED_LIMIT_BYTES)
    write(rig, key, value)
    rig.mark()
    expect_dead_letter(rig, "Splitter", (key, value), [b"larger"])
    seconds = rig.wait_for_flow()
    _set_limit(rig, arc, limit)
    rig.settle()
    assert (key, b"1") not in rig.ledger.others, "counted though put aside"
    rig.say(f"output too large for its topic; all keys flow after {seconds:.1f} s")


def _set_limit(rig: Rig, topic: str, limit: int) -> None:
    client = AdminClient({"bootstrap.servers": rig.engine.config.bootstrap_servers})
    operation = AlterConfigOpType.SET
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(_REQUEST_TIMEOUT_S)
