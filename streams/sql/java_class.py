"""Compiles the Java of this package in Spark's JVM, by the compiler of Spark's generated code.

What takes many steps in the JVM is slow through py4j, in which each step is a call between two
processes. Works on Spark 4, which has Janino.
"""

from __future__ import annotations

import threading
from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

_PACKAGE = "kafka_pipeline"
_compiled: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_lock = threading.Lock()


def java_class(jvm: Any, name: str) -> Any:
    """Return the Class of `java/NAME.java`, which a JVM compiles once."""
    with _lock:
        classes = _compiled.setdefault(jvm, {})
        if name not in classes:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            thread = jvm.java.lang.Thread.currentThread()
            compiler.setParentClassLoader(thread.getContextClassLoader())
            compiler.cook(files(__package__).joinpath("java", f"{name}.java").read_text())
            classes[name] = compiler.getClassLoader().loadClass(f"{_PACKAGE}.{name}")
        return classes[name]
