"""SIGTERM, Ctrl-C and a closed terminal: before it has anything to end, and afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

HANGUP = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""The tests themselves may run under nohup."""
BEGIN = """
import os, signal, sys
from kafka_pipeline.common.process.stop_signals import StopSignals
signals = StopSignals()
signals.install()
number = signal.Signals[sys.argv[1]]
"""


def run(code: str, number: str, *prefix: str) -> tuple[int, str]:
    """Return the exit code and the output of a process that sends itself a signal."""
    code = ("" if prefix else HANGUP) + BEGIN + code
    command = [*prefix, sys.executable, "-c", code, number]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_ends_what_has_nothing_to_end_with_0_and_in_silence(number: str) -> None:
    code = """
try:
    signal.raise_signal(number)
finally:
    print("goes on")
"""
    assert run(code, number) == (0, "")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_held_signal_is_noted_and_the_second_one_ends_the_process(number: str) -> None:
    code = """
signals.hold()
print(signals.is_requested)
signal.raise_signal(number)
print(signals.is_requested, flush=True)
signal.raise_signal(number)
print("goes on")
"""
    exit_code, output = run(code, number)
    assert (output, -exit_code) == ("False\nTrue\n", 15 if number == "SIGTERM" else 2)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_forwarded_signal_calls_back(number: str) -> None:
    code = """
signals.hold()
print(signals.forward(lambda: print("asked to stop")))
signal.raise_signal(number)
"""
    assert run(code, number) == (0, "True\nasked to stop\n")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_closed_terminal_does_not_cut_an_orderly_end_short(number: str) -> None:
    """The shell sends SIGHUP, and the kernel another one when the shell has ended."""
    code = """
signals.hold()
signal.raise_signal(number)
signal.raise_signal(signal.SIGHUP)
print("commits")
"""
    assert run(code, number) == (0, "commits\n")


def test_process_that_nohup_started_goes_on_without_its_terminal() -> None:
    code = """
signal.raise_signal(signal.SIGHUP)
signals.hold()
signal.raise_signal(signal.SIGHUP)
print(signals.is_requested)
"""
    assert run(code, "SIGHUP", "nohup") == (0, "False\n")


def test_signal_that_came_before_it_is_forwarded_is_told_to_the_caller() -> None:
    code = """
signals.hold()
signal.raise_signal(number)
print(signals.forward(lambda: print("asked to stop")))
"""
    assert run(code, "SIGTERM") == (0, "False\n")
