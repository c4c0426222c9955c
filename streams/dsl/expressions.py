"""Column expressions: functions of a record as data, computed by row or by column.

    flights.filter(col("delay") > 15).map_values(struct(origin=col("origin").str.to_uppercase()))

An expression says what to compute from the key, the value and the timestamp of a record.
`expression_rows` computes it in Python, which defines the result; `expression_columns` computes it
for a whole batch with the kernels of Arrow, and gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from kafka_pipeline.streams.dsl.expression_functions import Functions
from kafka_pipeline.streams.errors import InvalidArgumentError

_SCALARS = (bool, int, float, str, bytes)


class Expression(Functions["Expression"]):
    """A function of a record that `col`, `key`, `timestamp`, `value`, `lit` and `when` begin.

    Operators and methods make new expressions; an expression never changes. The rules:

    - Null, which is Python's `None`, in gives null out, except in `is_null`, `is_not_null`,
      `coalesce` and `struct`. A field that a value does not have is null.
    - Arithmetic takes numbers, and `+` also takes two strings. A bool is not a number. Integers are
      exact and never overflow. `/` gives a float, `//` and `%` round down. Dividing by zero rejects
      the record.
    - `<`, `<=`, `>` and `>=` take two numbers, two strings or two bytes. `==` and `!=` take
      anything and compare as Python does. NaN is unequal to everything, itself included.
    - `&`, `|` and `~` take bools, with null as unknown: `False & null` is False, `True & null` is
      null. The right side is computed only if the left one does not decide.
    - Any other type rejects the record, with an error that names the step, the expression and the
      types.
    """

    __slots__ = ()

    # Arithmetic

    def __add__(self, other: object) -> Expression:
        return _binary("+", self, other)

    def __radd__(self, other: object) -> Expression:
        return _binary("+", other, self)

    def __sub__(self, other: object) -> Expression:
        return _binary("-", self, other)

    def __rsub__(self, other: object) -> Expression:
        return _binary("-", other, self)

    def __mul__(self, other: object) -> Expression:
        return _binary("*", self, other)

    def __rmul__(self, other: object) -> Expression:
        return _binary("*", other, self)

    def __truediv__(self, other: object) -> Expression:
        return _binary("/", self, other)

    def __rtruediv__(self, other: object) -> Expression:
        return _binary("/", other, self)

    def __floordiv__(self, other: object) -> Expression:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: object) -> Expression:
        return _binary("//", other, self)

    def __mod__(self, other: object) -> Expression:
        return _binary("%", self, other)

    def __rmod__(self, other: object) -> Expression:
        return _binary("%", other, self)

    def __neg__(self) -> Expression:
        return Call("negate", (self,))

    def __abs__(self) -> Expression:
        return Call("abs", (self,))

    # Comparison

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _binary("==", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _binary("!=", self, other)

    def __lt__(self, other: object) -> Expression:
        return _binary("<", self, other)

    def __le__(self, other: object) -> Expression:
        return _binary("<=", self, other)

    def __gt__(self, other: object) -> Expression:
        return _binary(">", self, other)

    def __ge__(self, other: object) -> Expression:
        return _binary(">=", self, other)

    __hash__ = object.__hash__

    # Logic

    def __and__(self, other: object) -> Expression:
        return Logic("&", self, _operand("&", other))

    def __rand__(self, other: object) -> Expression:
        return Logic("&", _operand("&", other), self)

    def __or__(self, other: object) -> Expression:
        return Logic("|", self, _operand("|", other))

    def __ror__(self, other: object) -> Expression:
        return Logic("|", _operand("|", other), self)

    def __invert__(self) -> Expression:
        return Call("not", (self,))

    def __bool__(self) -> NoReturn:
        raise InvalidArgumentError(
            f"{self!r} is an expression: it has a value only when records are processed. Write & "
            "for and, | for or, ~ for not, with brackets around comparisons, and when(…).then(…) "
            "for if"
        )

    # Fields

    def __getitem__(self, name: str) -> Expression:
        """Return the field `name` of a dict; dots in the name are part of it."""
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"{self!r}[{name!r}]: the name of a field is a string; lists have no columns, use "
                "a function for them"
            )
        return Field(self, name)

    def __iter__(self) -> Iterator[Any]:
        raise InvalidArgumentError(f"{self!r} is an expression: it cannot be iterated")

    def __contains__(self, item: object) -> bool:
        raise InvalidArgumentError(
            f"in does not work with {self!r}: use is_in for one of several values, or "
            "str.contains for a part of a string"
        )

    def _call(self, function: str, *parameters: Any) -> Expression:
        return Call(function, (self,), parameters)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Key(Expression):
    """The key of the record."""

    def __repr__(self) -> str:
        return "key()"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Value(Expression):
    """The value of the record."""

    def __repr__(self) -> str:
        return "value()"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Timestamp(Expression):
    """The timestamp of the record, in ms."""

    def __repr__(self) -> str:
        return "timestamp()"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Literal(Expression):
    """The same for all records."""

    constant: Any

    def __repr__(self) -> str:
        return repr(self.constant)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Field(Expression):
    """A field of a dict."""

    parent: Expression
    name: str

    def __repr__(self) -> str:
        path = self.path
        if path is not None and not any("." in name for name in path):
            return f'col("{".".join(path)}")'
        return f'{self.parent!r}["{self.name}"]'

    @property
    def path(self) -> tuple[str, ...] | None:
        """The names from the value to the field; `None` if it is not a field of the value."""
        if isinstance(self.parent, Value):
            return (self.name,)
        above = self.parent.path if isinstance(self.parent, Field) else None
        return None if above is None else (*above, self.name)


_OPERATORS = frozenset(["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">="])
_PREFIXES = {"negate": "-", "not": "~"}
_SPELLINGS = {
    "cast_int": "cast(int)",
    "cast_float": "cast(float)",
    "cast_str": "cast(str)",
    "str.contains_literal": "str.contains({}, literal=True)",
    "str.replace_all_literal": "str.replace_all({}, literal=True)",
}
"""The code of functions whose names are not their methods."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Call(Expression):
    """A function of one or two expressions, with parameters that are the same for all records."""

    function: str
    arguments: tuple[Expression, ...]
    parameters: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        first = _bracketed(self.arguments[0])
        if self.function in _OPERATORS:
            return f"{first} {self.function} {_bracketed(self.arguments[1])}"
        if self.function in _PREFIXES:
            return f"{_PREFIXES[self.function]}{first}"
        if self.function == "abs":
            return f"abs({self.arguments[0]!r})"
        spelling = _SPELLINGS.get(self.function, f"{self.function}({{}})")
        return f"{first}.{spelling.format(', '.join(map(repr, self.parameters)))}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Logic(Expression):
    """And or or."""

    operator: str
    left: Expression
    right: Expression

    def __repr__(self) -> str:
        return f"{_bracketed(self.left)} {self.operator} {_bracketed(self.right)}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Coalesce(Expression):
    """The first of several expressions that is not null."""

    choices: tuple[Expression, ...]

    def __repr__(self) -> str:
        return f"coalesce({', '.join(map(repr, self.choices))})"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Case(Expression):
    """The result of the first condition that is true."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression = Literal(None)

    def when(self, condition: object) -> Then:
        """Add a condition for records for which none of those before is true."""
        return Then(self.branches, condition_of(condition))

    def otherwise(self, result: object) -> Case:
        """Give the result for records for which no condition is true; it is null without this."""
        return Case(self.branches, expression_of(result))

    def __repr__(self) -> str:
        text = "".join(f".when({when!r}).then({then!r})" for when, then in self.branches)
        return f"{text[1:]}.otherwise({self.default!r})"


@dataclass(frozen=True, slots=True)
class Then:
    """A condition that waits for its result."""

    branches: tuple[tuple[Expression, Expression], ...]
    condition: Expression

    def then(self, result: object) -> Case:
        """Give the result for records for which the condition is true."""
        return Case((*self.branches, (self.condition, expression_of(result))))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Struct(Expression):
    """A dict."""

    fields: tuple[tuple[str, Expression], ...]

    def __repr__(self) -> str:
        return f"struct({', '.join(f'{name}={field!r}' for name, field in self.fields)})"


def lit(constant: bool | int | float | str | bytes | None) -> Expression:
    """Return an expression that is the same for all records."""
    if constant is not None and type(constant) not in _SCALARS:
        raise InvalidArgumentError(
            "lit takes None, a bool, an int, a float, a string or bytes, not a "
            f"{type(constant).__name__}"
        )
    return Literal(constant)


def expression_of(given: object) -> Expression:
    """Return an expression as it is, and a constant as a literal."""
    return given if isinstance(given, Expression) else lit(given)  # type: ignore[arg-type]


def condition_of(given: object) -> Expression:
    """Return a condition; refuse what is not an expression."""
    if not isinstance(given, Expression):
        raise InvalidArgumentError(f"when takes an expression, not {given!r}")
    return given


def fields_of(expression: Expression) -> Iterable[Field | Value]:
    """Yield what an expression reads of the value: fields, or `Value` for all of it."""
    match expression:
        case Value():
            yield expression
        case Field() if expression.path is not None:
            yield expression
        case _:
            for each in children(expression):
                yield from fields_of(each)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions that an expression consists of."""
    match expression:
        case Field(parent, _):
            return (parent,)
        case Call(_, arguments, _):
            return arguments
        case Logic(_, left, right):
            return (left, right)
        case Coalesce(choices):
            return choices
        case Case(branches, default):
            return (*(each for pair in branches for each in pair), default)
        case Struct(fields):
            return tuple(each for _, each in fields)
    return ()


def reads_timestamp(expression: Expression) -> bool:
    """Return whether an expression reads the timestamp."""
    return isinstance(expression, Timestamp) or any(map(reads_timestamp, children(expression)))


def _binary(operator: str, left: object, right: object) -> Expression:
    return Call(operator, (_operand(operator, left), _operand(operator, right)))


def _operand(operator: str, given: object) -> Expression:
    if given is None:
        raise InvalidArgumentError(
            f"{operator} with None is null for every record: use is_null() or is_not_null()"
        )
    return expression_of(given)


def _bracketed(expression: Expression) -> str:
    is_compound = isinstance(expression, Logic) or (
        isinstance(expression, Call)
        and (expression.function in _OPERATORS or expression.function in _PREFIXES)
    )
    return f"({expression!r})" if is_compound else repr(expression)


def col(name: str) -> Expression:
    """Return a field of a value that is a dict; `col("plane.model")` is a field of a field.

    It is null if the value does not have the field, or is null. For names with dots in them, use
    `value()["a.b"]`.
    """
    if not isinstance(name, str) or not all(name.split(".")):
        raise InvalidArgumentError(f'col takes the name of a field, as "a" or "a.b", not {name!r}')
    found: Expression = Value()
    for part in name.split("."):
        found = Field(found, part)
    return found


def key() -> Expression:
    """Return the key of the record."""
    return Key()


def value() -> Expression:
    """Return the value of the record."""
    return Value()


def timestamp() -> Expression:
    """Return the timestamp of the record, in ms since the epoch. Tables do not have it."""
    return Timestamp()


def when(condition: object) -> Then:
    """Begin a choice: `when(col("delay") > 15).then("late").otherwise("on time")`.

    The first condition that is true decides; a condition that is null is not true. Only the result
    that is chosen is computed.
    """
    return Then((), condition_of(condition))


def coalesce(*choices: object) -> Expression:
    """Return the first of several expressions that is not null."""
    if not choices:
        raise InvalidArgumentError("coalesce takes one expression or more")
    return Coalesce(tuple(map(expression_of, choices)))


def struct(**fields: object) -> Expression:
    """Return a dict with these fields, for `map_values`."""
    if not fields:
        raise InvalidArgumentError("struct takes fields: struct(name=expression, …)")
    return Struct(tuple((name, expression_of(each)) for name, each in fields.items()))
