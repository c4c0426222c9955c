"""What a processor hands back for a batch."""

from __future__ import annotations

from typing import NamedTuple


class Results(NamedTuple):
    """The output values of consecutive records, up to the end of the batch or the first rejection.

    `values[i]` belongs to the i-th record from where the processor was told to start. `rejection`
    is `None` when the batch was processed to its end; otherwise it says, in a sentence without
    any payload, why the record after the last value cannot be processed.
    """

    values: list[bytes | None]
    rejection: str | None = None
