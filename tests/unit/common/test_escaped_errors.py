"""What user code raises that is not an `Exception`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_pipeline.common.code.escapes import nothing_escapes
from kafka_pipeline.common.errors import EscapedError


def raises(kind: type[BaseException]) -> None:
    with nothing_escapes():
        raise kind("of user code")


@pytest.mark.parametrize("kind", [SystemExit, BaseException, KeyboardInterrupt, GeneratorExit])
def test_user_code_on_another_thread_fails_like_any_other(kind: type[BaseException]) -> None:
    with ThreadPoolExecutor() as threads, pytest.raises(EscapedError, match=kind.__name__):
        threads.submit(raises, kind).result()


def test_one_that_cannot_be_shown_is_an_error_like_others() -> None:
    class Mute(BaseException):
        def __str__(self) -> str:
            raise ValueError("no words")

    with pytest.raises(EscapedError, match=r"Mute, .*: its __str__ raised ValueError"):
        raises(Mute)


def test_ctrl_c_ends_what_runs_in_the_main_thread() -> None:
    with pytest.raises(KeyboardInterrupt):
        raises(KeyboardInterrupt)
