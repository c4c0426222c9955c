"""Calendar windows in the text of a query, which Spark does not know.

Spark reads windows of one day in their place. It so finds out where windows belong, and puts one
into a column. `calendar_plan.py` then gives that column the periods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def with_plain_windows(query: str) -> str:
    """Return a query with `window(…, '1 day')` in place of each `calendar_window(…, …, …)`.

    The query must be one that `read_groups` can read.
    """
    made, at = "", 0
    for name, comma, end in _calls(Spark().tokenize(query)):
        made += f"{query[at : name.start]}window{query[name.end + 1 : comma.start]}, '1 day'"
        at = end.start
    return made + query[at:]


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token, Token]]:
    """Yield the name of each call, its first comma, and its closing parenthesis."""
    for index, (name, following) in enumerate(pairwise(tokens)):
        if name.text.lower() != CALENDAR_WINDOW or following.token_type != TokenType.L_PAREN:
            continue
        depth, commas = 0, list[Token]()
        for token in tokens[index + 1 :]:
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            if depth == 0:
                yield name, commas[0], token
                break
            if depth == 1 and token.token_type == TokenType.COMMA:
                commas.append(token)
