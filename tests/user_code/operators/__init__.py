"""One topology for each operator of the DSL, or for a few of them, from topics to `out`.

They read the streams, or tables, `a` and `b`. The joins by a foreign key read `rows` and `rates`
instead. Keys and values are strings.
"""

from __future__ import annotations

from kafka_pipeline import StreamsBuilder, serdes
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.engine.topology import Topology
from tests.user_code.operators.aggregates import AGGREGATES
from tests.user_code.operators.joins import JOINS
from tests.user_code.operators.parts import Fill, Operator
from tests.user_code.operators.steps import STEPS
from tests.user_code.operators.tables import TABLES
from tests.user_code.operators.windowed import WINDOWED

OPERATORS: dict[str, Fill] = {
    fill.__name__: fill for fill in (*STEPS, *AGGREGATES, *WINDOWED, *TABLES, *JOINS)
}


def build(operator: str, prefix: str) -> Topology:
    """Return the topology of an operator; names of topics begin with `prefix`."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    out = f"{prefix}out-{operator}"
    result = OPERATORS[operator](Operator(builder, prefix, out))
    if isinstance(result, Table):
        result = result.to_stream()
    if result is not None:
        result.to(out)
    return builder.build()
