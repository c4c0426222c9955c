"""A processor of two inputs that keeps state, for the chaos harness."""

from __future__ import annotations

from streams import Processor, ProcessorContext, Record, RecordRejectedError


class Pairing(Processor):
    """Forwards `3 * base + n` for a key's n-th record once both of its results have come.

    One input has `n` (`count`), the other `base + n + 1` (`sum` of `base + n`). What waits for the
    other one is kept in the store `Waiting`, under the key and `n`, and deleted then.
    """

    def __init__(self, base: int) -> None:
        self._base = base

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._waiting = context.get_state_store("Waiting")

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        number = int(record.value)
        is_sum = number > self._base
        if is_sum:
            number -= self._base + 1
        entry = b"%s/%d" % (record.key, number)
        waiting = self._waiting.get(entry)
        if waiting is None:
            self._waiting.put(entry, is_sum)
        elif waiting == is_sum:
            raise RecordRejectedError("this result has come before")
        else:
            self._waiting.delete(entry)
            self.context.forward(record.with_value(b"%d" % (3 * self._base + number)))
