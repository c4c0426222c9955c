"""Names of Java's packages, classes and static methods, which are looked up once.

py4j asks the JVM for each part of `jvm.org.apache.spark.sql.functions.col` whenever it is read.
For a name that is not a class, such as that of a package, the JVM then searches all jars of Spark.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember, JavaPackage, JVMView


def keep_names(gateway: JavaGateway) -> None:
    """Have everybody who reads names of this JVM from now on look each of them up once."""
    asked = gateway.jvm
    gateway.jvm = _View(asked._gateway_client, asked._jvm_name, id=asked._id)


class _View(JVMView):  # type: ignore[misc]
    """A JVM, as py4j shows it."""

    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


class _Package(JavaPackage):  # type: ignore[misc]
    """A package."""

    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


class _Class(JavaClass):  # type: ignore[misc]
    """A class. Its static fields may change, and its methods stay."""

    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


def _kept(owner: Any, name: str, found: Any) -> Any:
    """Return what py4j has found, as an attribute that stays unless it is an object."""
    if type(found) is JavaPackage:
        found = _Package(found._fqn, found._gateway_client, found._jvm_id)
    elif type(found) is JavaClass:
        found = _Class(found._fqn, found._gateway_client)
    elif type(found) is not JavaMember:
        return found
    owner.__dict__[name] = found
    return found
