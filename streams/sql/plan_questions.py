"""Asks about many parts of a plan in one call to the JVM.

Walked from Python, each node of a plan and each expression in it takes several calls.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka_pipeline.streams.sql.java_class import java_class
from kafka_pipeline.streams.sql.java_objects import items


class PlanQuestions:
    """Answers questions about plans, each with a few calls to the JVM."""

    def __init__(self, jvm: Any) -> None:
        self._java = java_class(jvm, "PlanQuestions").newInstance()

    def ids(self, columns: Any) -> list[int]:
        """Return the ids by which plans refer to the columns of a Scala Seq, in its order."""
        return [int(word) for word in self._java.ids(columns).split()]

    def names(self, nodes: Any) -> list[str]:
        """Return the names of the classes of a Scala Seq or of a plan's nodes, without packages."""
        return str(self._java.names(nodes)).split()

    def used(self, plan: Any) -> set[int]:
        """Return the ids of the columns that a plan gives, or that its operators refer to."""
        return {int(word) for word in self._java.used(plan).split()}

    def found_in(self, plan: Any, names: Collection[str]) -> list[tuple[str, Any]]:
        """Return the expressions in a plan whose classes have these names, each with its name.

        The nodes of its subqueries do not count.
        """
        found = self._java.expressions(plan, " ".join(names))
        return [*zip(self.names(found), items(found), strict=True)]
