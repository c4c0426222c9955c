"""Makes functions of the JVM from its methods, so that Spark walks over a plan in one call.

Walked from Python, each node of a plan and each expression in it takes several calls to the JVM.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_CATALYST = "org.apache.spark.sql.catalyst"
_NODE = f"{_CATALYST}.trees.TreeNode"
_PLAN = f"{_CATALYST}.plans.QueryPlan"
_COLUMN = f"{_CATALYST}.expressions.NamedExpression"
_ID = f"{_CATALYST}.expressions.ExprId"
_SEQ = "scala.collection.immutable.Seq"
_FUNCTION = "scala.Function1"
_OBJECT = "java.lang.Object"
_STRING = "java.lang.String"


class JvmFunctions:
    """Answers questions about many parts of a plan, each with a few calls to the JVM."""

    def __init__(self, jvm: Any) -> None:
        invoke = jvm.java.lang.invoke
        self._class, self._type = jvm.java.lang.Class.forName, invoke.MethodType.methodType
        self._find = invoke.MethodHandles.publicLookup().findVirtual
        self._as_instance = invoke.MethodHandleProxies.asInterfaceInstance
        self._name = self._function(self._method("scala.Product", "productPrefix", _STRING))
        itself = invoke.MethodHandles.identity(self._class(_OBJECT))
        to_itself = jvm.java.util.ArrayList()
        to_itself.add(self._function(itself))
        parts = self._method(_NODE, "map", _SEQ, _FUNCTION)
        parts = invoke.MethodHandles.insertArguments(parts, 1, to_itself.toArray())
        self._parts = self._function(parts)
        self._expressions = self._function(self._method(_PLAN, "expressions", _SEQ))
        number = self._find(self._class(_ID), "id", self._type(jvm.java.lang.Long.TYPE))
        id_of = self._method(_COLUMN, "exprId", _ID)
        self._id = self._function(invoke.MethodHandles.filterReturnValue(id_of, number))

    def ids(self, columns: Any) -> list[int]:
        """Return the ids by which plans refer to the columns of a Scala Seq, in its order."""
        return [int(word) for word in _words(columns.map(self._id))]

    def names(self, nodes: Any) -> list[str]:
        """Return the names of the classes of a Scala Seq or of a plan's nodes, without packages."""
        return _words(nodes.map(self._name))

    def found_in(self, plan: Any, names: Collection[str]) -> list[tuple[str, Any]]:
        """Return the expressions in a plan whose classes have these names, each with its name.

        The nodes of its subqueries do not count.
        """
        each = plan.flatMap(self._expressions).flatMap(self._parts)
        found = enumerate(self.names(each))
        return [(name, each.apply(place)) for place, name in found if name in names]

    def _method(self, class_: str, name: str, returned: str, *parameters: str) -> Any:
        types = map(self._class, (returned, *parameters))
        return self._find(self._class(class_), name, self._type(*types))

    def _function(self, method: Any) -> Any:
        """Return a function of Scala that calls a method of its argument."""
        return self._as_instance(self._class(_FUNCTION), method)


def _words(seq: Any) -> list[str]:
    return str(seq.mkString(" ")).split()
