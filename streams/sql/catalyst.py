"""Makes operators and expressions of Spark's plans, through py4j, on Spark 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_pipeline.streams.sql.java_class import java_class
from kafka_pipeline.streams.sql.java_objects import JavaObjects, items
from kafka_pipeline.streams.sql.plan_questions import PlanQuestions


class Catalyst:
    """Makes parts of plans in the JVM, which Spark calls Catalyst.

    Packages are looked up once: each name in a path of packages is a call to the JVM.
    """

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.spark = jvm.org.apache.spark.sql
        self.catalyst = self.spark.catalyst
        self.expressions = self.catalyst.expressions
        self.aggregates = self.expressions.aggregate
        self.logical = self.catalyst.plans.logical
        self.questions = PlanQuestions(jvm)
        self._top_rows = java_class(jvm, "TopRows").newInstance()
        self.none = jvm.scala.Option.empty()
        self._objects = JavaObjects.near(self.none)
        self.nothing = scala_object(jvm.scala.collection.immutable, "Nil")

    def seq(self, values: Sequence[Any]) -> Any:
        """Return a Scala Seq of objects of the JVM."""
        return self._objects.seq(values) if values else self.nothing

    def some(self, value: Any) -> Any:
        """Return a Scala Option with a value."""
        return self.jvm.scala.Option.apply(value)

    def type(self, ddl: str) -> Any:
        """Return a type by its name in Spark's DDL."""
        return self.spark.types.DataType.fromDDL(ddl)

    # Expressions

    def alias(self, value: Any, name: str, id_: Any = None, metadata: Any = None) -> Any:
        """Return an expression with a name, and with an id of its own unless one is given.

        It has the metadata of the expression, unless others are given.
        """
        id_ = id_ or self.expressions.NamedExpression.newExprId()
        given = self.none if metadata is None else self.some(metadata)
        return self.expressions.Alias(value, name, id_, self.nothing, given, self.nothing)

    def literal(self, value: Any, type_: str) -> Any:
        """Return a constant of a type in Spark's DDL."""
        return self.expressions.Literal.create(value, self.type(type_))

    def only_if(self, condition: Any, value: Any) -> Any:
        """Return a value, or null if a condition does not hold."""
        nothing = self.expressions.Literal.create(None, value.dataType())
        return self.expressions.If(condition, value, nothing)

    def cast(self, value: Any, type_: Any) -> Any:
        """Return a value as another type of Spark's."""
        return self.expressions.Cast(value, type_, self.none)

    def as_text(self, value: Any) -> Any:
        """Return a value as STRING, with times in the zone of the session.

        In an analyzed plan, Spark gives a cast the zone; in a physical one, it has to have it.
        """
        conf = scala_object(self.spark.internal, "SQLConf").get()
        zone = self.some(conf.sessionLocalTimeZone())
        return self.expressions.Cast(value, self.type("string"), zone)

    def normalized(self, value: Any) -> Any:
        """Return a value with the same bytes for all that are equal: NaN and -0.0 have several."""
        return scala_object(self.catalyst.optimizer, "NormalizeFloatingNumbers").normalize(value)

    def whole(self, number: int) -> Any:
        """Return a constant BIGINT; Py4J would make an INT of a small number."""
        parser = scala_object(self.catalyst.parser, "CatalystSqlParser")
        return parser.parseExpression(f"{number}L")

    def zero(self, type_: str) -> Any:
        """Return the constant 0 of a type of numbers, also of one that py4j does not send."""
        return self.expressions.Literal.default(self.type(type_))

    def struct(self, values: Sequence[Any], names: Sequence[str | None] = ()) -> Any:
        """Return a struct of expressions; a field without a name is called by its place."""
        named = []
        for place, value in enumerate(values):
            name = (names[place] if names else None) or f"_{place}"
            named += [self.literal(name, "string"), value]
        return self.expressions.CreateNamedStruct(self.seq(named))

    def field(self, struct: Any, place: int) -> Any:
        """Return a field of a struct."""
        return self.expressions.GetStructField(struct, place, self.none)

    def smallest(self, row: Any, size: int) -> Any:
        """Return the aggregate function that gives an array of the `size` smallest rows, sorted."""
        return self._top_rows.function(row, size)

    # Operators of logical plans

    def project(self, columns: Sequence[Any], child: Any) -> Any:
        """Return a SELECT of columns."""
        return self.logical.Project(self.seq(columns), child)

    def filter(self, condition: Any, child: Any) -> Any:
        """Return a WHERE."""
        return self.logical.Filter(condition, child)

    def aggregate(
        self, groups: Sequence[Any], columns: Sequence[Any], child: Any, hint: Any = None
    ) -> Any:
        """Return a GROUP BY; `hint` is that of an Aggregate that it replaces."""
        hint = self.none if hint is None else hint
        return self.logical.Aggregate(self.seq(groups), self.seq(columns), child, hint)

    def hashed(self, distribution: Any, *arguments: Any) -> Any:
        """Return a physical aggregate by a hash table, whatever the types of its buffers.

        Spark would sort the rows where a buffer has no fixed length, such as max of a string. The
        table of objects takes any type, needs no sort, and keeps the order of the rows of a group.
        """
        aggregates = self.spark.execution.aggregate
        return aggregates.ObjectHashAggregateExec(distribution, False, self.none, *arguments)

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        """Return an operator or an expression with other children."""
        return node.withNewChildren(self.seq(children))


def scala_object(package: Any, name: str) -> Any:
    """Return an object of Scala, which is the one instance of a class of Java."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def replaced(expression: Any, change: Callable[[Any], Any | None], make: Catalyst) -> Any:
    """Return an expression in which `change` has replaced what it gives something for."""
    changed = change(expression)
    if changed is not None:
        return changed
    children = items(expression.children())
    made = [replaced(each, change, make) for each in children]
    if all(new is old for new, old in zip(made, children, strict=True)):
        return expression
    return make.with_children(expression, made)
