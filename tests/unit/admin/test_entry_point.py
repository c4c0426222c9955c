"""The entry point of the `pipeline` command: what Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kafka_pipeline.admin.cli import main
from kafka_pipeline.common.cli import INTERRUPTED_EXIT_CODE


@pytest.fixture(autouse=True)
def _handler_of_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("is_pressed", [True, False])
def test_ctrl_c_that_confluent_kafka_loses_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, is_pressed: bool
) -> None:
    """It came while librdkafka logged that no broker answers: a traceback of a SystemError."""

    def poll() -> None:
        if is_pressed:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        raise SystemError("poll returned NULL without setting an exception")

    monkeypatch.setattr("kafka_pipeline.admin.app.app", poll)
    with pytest.raises(SystemExit if is_pressed else SystemError) as ended:
        main()
    assert not is_pressed or ended.value.args == (INTERRUPTED_EXIT_CODE,)
