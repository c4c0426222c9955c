"""Values of NumPy as arguments of calls to the JVM.

The first call that has an argument asks PySpark's converters whether it is a value of NumPy. They
import PySpark's tools for tests then, to know whether NumPy is installed, and with them pandas,
PyArrow and protobuf: 70 MB in each process that starts Spark, though it has no query.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from py4j.protocol import INPUT_CONVERTER
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter


def recognize_numpy_values() -> None:
    """Have py4j recognize NumPy's values without these imports, and convert them as before."""
    own = {NumpyScalarConverter: _Scalar(), NumpyArrayConverter: _Array()}
    INPUT_CONVERTER[:] = [own.get(type(each), each) for each in INPUT_CONVERTER]


class _Scalar(NumpyScalarConverter):
    """A number, a string or a time."""

    def can_convert(self, obj: Any) -> bool:
        return isinstance(obj, np.generic)


class _Array(NumpyArrayConverter):
    """A list of numbers or strings."""

    def can_convert(self, obj: Any) -> bool:
        return isinstance(obj, np.ndarray) and obj.ndim == 1
