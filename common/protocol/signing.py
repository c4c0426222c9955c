"""Signs control records, and checks signatures."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafka_pipeline.common.protocol.messages import ControlRecord, MalformedMessageError
from kafka_pipeline.common.security.control_key import ControlKey

SIGNATURE = "signature"
"""The header with the HMAC-SHA256 of a record; always the last one."""

_DOMAIN = b"kafka-pipeline control record 1"
_LENGTH_BYTES = 8


class BadSignatureError(MalformedMessageError):
    """A control record is not signed, or not with a key of this process.

    The daemons reject it like any malformed record; views of the cluster also show the reason.
    """


def signed(record: ControlRecord, key: ControlKey) -> ControlRecord:
    """Return the record with a last header that proves its topic, key, value and headers."""
    signature = _signature(key.accepted[0], record, record.headers)
    return replace(record, headers=(*record.headers, (SIGNATURE, signature)))


def require_signed(record: ControlRecord, key: ControlKey) -> None:
    """Raise `BadSignatureError` unless one of the keys has signed exactly this record."""
    if all(name != SIGNATURE for name, _ in record.headers):
        raise BadSignatureError(
            f"{record.topic}: not signed. Set control_key_file in the config.yaml of all "
            "daemons and tools of this job to files with the same key"
        )
    *others, (last, signature) = record.headers
    if last == SIGNATURE:
        for accepted in key.accepted:
            if hmac.compare_digest(signature, _signature(accepted, record, others)):
                return
    raise BadSignatureError(
        f"{record.topic}: the signature is wrong. Its writer has another key in its "
        "control_key_file, or the record was changed or copied from another topic"
    )


def _signature(key: bytes, record: ControlRecord, headers: Sequence[tuple[str, bytes]]) -> bytes:
    # Each part is preceded by its length, so that no two records give the same bytes.
    content = b"".join(
        len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in _parts(record, headers)
    )
    return hmac.digest(key, content, "sha256")


def _parts(record: ControlRecord, headers: Sequence[tuple[str, bytes]]) -> Iterator[bytes]:
    yield _DOMAIN
    yield record.topic.encode()
    yield record.key
    yield record.value
    for name, value in headers:
        yield name.encode()
        yield value
