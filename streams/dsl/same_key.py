"""Whether two keys are the same: whether their bytes are, as in topics and stores.

Python's `==` says something else: `1 == True == 1.0`, `0.0 == -0.0`, and NaN differs from itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Same = Callable[[Any, Any], bool]


def same_by(write: Callable[[Any], bytes]) -> Same:
    """Return a function that compares two keys by the bytes that `write` makes of them.

    It raises what `write` raises.
    """

    def is_same(a: Any, b: Any) -> bool:
        if a is b:
            return True
        # Equal strings have equal bytes, and need not be written.
        if a.__class__ is str and b.__class__ is str and a == b:
            return True
        return write(a) == write(b)

    return is_same
