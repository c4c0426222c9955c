"""Recognises SQL of other stream processors that Spark can never run, and says what to write.

Spark's own words for it are about a place or a name that it does not expect. It is imported late:
loading sqlglot takes a quarter of a second.
"""

from __future__ import annotations

import re

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from kafka_pipeline.streams.sql.spec import QueryError

_FORMS = {
    r"(?<! LATERAL) UNNEST \( [\w?]+( \. [\w?]+)* \)": (
        "UNNEST of a column is LATERAL VIEW: write FROM input LATERAL VIEW explode(items) v AS item"
    ),
    r" FOR SYSTEM_TIME": (
        "FOR SYSTEM_TIME AS OF is not possible: name the topic under tables, with a history, and "
        "join it by the keys of both. Each record then finds the row of its own time"
    ),
    r" WITHIN (\d|\( \d)": (
        "Spark has no WITHIN: write bounds of time, as in ON a.key = b.key AND b.timestamp BETWEEN "
        "a.timestamp - INTERVAL 1 HOUR AND a.timestamp + INTERVAL 1 HOUR"
    ),
    r" WINDOW (TUMBLING|HOPPING|SESSION) \(": (
        "windows are grouping columns in Spark: write GROUP BY id, window(timestamp, '1 hour')"
    ),
    r" EMIT (CHANGES|FINAL|ON WINDOW CLOSE)( LIMIT \d+)?( ;)?$": (
        "Spark has no EMIT: leave it out, and write emit: on_update or emit: on_close as a key of "
        "the processor"
    ),
    r" DISTINCT ON \(": (
        "Spark has no DISTINCT ON: write SELECT … FROM (SELECT *, row_number() OVER (PARTITION BY "
        "id ORDER BY n) AS place FROM input) WHERE place = 1"
    ),
    r" (EARLIEST|LATEST)_BY_OFFSET \(": (
        "Spark has no LATEST_BY_OFFSET and no EARLIEST_BY_OFFSET: write last(x) or first(x), which "
        "follow the order of records"
    ),
    r" ->> | -> [\w?]+ (AS|FROM) ": (
        "-> makes a function in Spark: write item.name for a field of a struct, and "
        "get_json_object(payload, '$.name') for one of JSON in a string"
    ),
}
"""What to write in place of forms, whose words are separated by single spaces."""
_NOT_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING)


def require_spark_sql(query: str) -> None:
    """Raise `QueryError` with what to write in place of a form that is not Spark's."""
    try:
        tokens = Spark().tokenize(query)
    except SqlglotError:
        return  # what reads it again reports why
    words = f" {' '.join(map(_word, tokens))}"
    for form, instead in _FORMS.items():
        if re.search(form, words):
            raise QueryError(instead)


def _word(token: Token) -> str:
    return "?" if token.token_type in _NOT_WORDS else " ".join(token.text.upper().split())
