"""The type variables of the classes that users meet.

Their default is `Any`, so a class without parameters, such as `Stream` or `Processor`, is a type as
it is, also in strict mode (PEP 696).
"""

from typing import Any

from typing_extensions import TypeVar

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)

K_co = TypeVar("K_co", default=Any, covariant=True)
V_co = TypeVar("V_co", default=Any, covariant=True)

KIn = TypeVar("KIn", default=Any, contravariant=True)
VIn = TypeVar("VIn", default=Any, contravariant=True)
KOut = TypeVar("KOut", default=Any, covariant=True)
VOut = TypeVar("VOut", default=Any, covariant=True)
KForward = TypeVar("KForward", default=Any, contravariant=True)
VForward = TypeVar("VForward", default=Any, contravariant=True)

K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")
"""What a function of the user makes: the result of a join, an aggregate."""
