"""How Spark's errors are translated, without a Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException

from kafka_pipeline.streams.sql.messages import (
    how_process_ended,
    may_be_a_records_fault,
    one_line,
    without_values,
)
from kafka_pipeline.streams.sql.plan_calls import JavaError

FAILURE = "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times: "


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        'java.io.IOException: Cannot run program "python3": error=24, Too many open files',
        "java.net.SocketException: Too many open files",
        "java.lang.OutOfMemoryError: unable to create native thread",
        "TaskResultLost (result lost from block manager)",
        "java.io.IOException: org.apache.spark.SparkException: Failed to get broadcast_3_piece0",
        "Could not execute broadcast in 300 secs. You can increase the timeout",
        "java.io.FileNotFoundException: /tmp/blockmgr-1b2c/0e/temp_shuffle_1 (No such file)",
        "Job 5 cancelled part of cancelled job tags query 1",
        "No space left on device",
    ],
)
def test_failure_of_spark_is_not_the_fault_of_a_record(text: str) -> None:
    assert not may_be_a_records_fault(PySparkException(FAILURE + text))
    assert not may_be_a_records_fault(JavaError(FAILURE + text, is_of_python=False))


@pytest.mark.parametrize(
    "error",
    [
        PySparkException(FAILURE + "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"),
        PySparkException(
            "[CAST_INVALID_INPUT] The value 'cancelled' of the type \"STRING\" cannot be cast to "
            '"INT" because it is malformed. SQLSTATE: 22018'
        ),
        PySparkException("[USER_RAISED_EXCEPTION] flight was cancelled SQLSTATE: P0001"),
        PySparkException(FAILURE + "java.lang.NullPointerException"),
        PythonException("Traceback (most recent call last):\nValueError: Too many open files?"),
        JavaError("a.B: Traceback …\nValueError: Too many open files?", is_of_python=True),
        JavaError("a.B: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", is_of_python=False),
    ],
)
def test_failure_on_data_may_be_the_fault_of_a_record(error: Exception) -> None:
    assert may_be_a_records_fault(error)


CRASHED = FAILURE + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
STACK = """: Fatal Python error: Segmentation fault

Current thread 0x00007f1c (most recent call first):
  File "/home/ann/shop.py", line 12 in parse

Thread 0x00007f1d (most recent call first):
  File "/home/ann/other.py", line 3 in wait

	at org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (CRASHED + STACK, "SIGSEGV in native code, called from /home/ann/shop.py:12 in parse"),
        (CRASHED + ". Consider setting 'x'\n\tat a.B", "it exited, or got SIGKILL; Spark does not"),
        (FAILURE + "java.net.SocketException: Connection reset", ""),
        (
            "[CAST_INVALID_INPUT] The value 'Python worker exited unexpectedly (crashed)' cannot "
            'be cast to "INT". SQLSTATE: 22018',
            "",
        ),
    ],
)
def test_end_of_the_process_of_a_function_is_known_as_such(text: str, how: str) -> None:
    found = how_process_ended(PySparkException(text))
    assert found.startswith(how)
    assert bool(found) == bool(how)


def test_function_whose_error_speaks_of_the_end_of_a_process_has_not_ended_it() -> None:
    quoted = "Python worker exited unexpectedly (crashed)"
    error = PythonException(f"Traceback (most recent call last):\nValueError: {quoted}")
    assert how_process_ended(error) == ""


CARD = "4111111111111111"
CAST = (
    f'[CAST_INVALID_INPUT] The value \'{CARD}\' of the type "STRING" cannot be cast to "INT" '
    "because it is malformed. SQLSTATE: 22018"
)
TRACEBACK = f"""An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "/opt/pyspark/worker.py", line 1400, in main
    process()
  File "/home/ann/shop.py", line 17, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal for int() with base 10: '{CARD}
Order: {CARD}'

	at org.apache.spark.api.python.BasePythonRunner"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PySparkException(CAST), "CAST_INVALID_INPUT (SQLSTATE 22018)"),
        (
            PySparkException(
                f"{FAILURE}org.apache.spark.SparkNumberFormatException: {CAST}\n"
                "== SQL (line 1, position 8) ==\nSELECT CAST(value AS INT)\n       ^^^^\n"
            ),
            "CAST_INVALID_INPUT (SQLSTATE 22018)",
        ),
        (PythonException(TRACEBACK), "ValueError (shop.py:17 in parse)"),
        (
            PythonException(TRACEBACK.replace("ValueError: ", "shop.errors.OrderError: ")),
            "shop.errors.OrderError (shop.py:17 in parse)",
        ),
        (
            PySparkException(f"java.lang.IllegalStateException: {CARD} is odd"),
            "IllegalStateException",
        ),
        (PySparkException(f"{CARD} is odd"), "PySparkException"),
        (PySparkException(f"{FAILURE}No space left on device, {CARD}"), "No space left"),
        (PySparkException("[USER_RAISED_EXCEPTION] no sale SQLSTATE: P0001"), "no sale"),
        (
            PySparkException(
                "[USER_RAISED_EXCEPTION] collect_list(…) has more than 2 values in the group "
                f"{{{CARD}, 1}}: see max_collected SQLSTATE: P0001"
            ),
            "collect_list(…) has more than 2 values in a group: see max_collected",
        ),
        (
            PySparkException(
                "[USER_RAISED_EXCEPTION] rank() keeps more than 2 rows of the group "
                f"{{{CARD}, 1}}: see max_collected SQLSTATE: P0001"
            ),
            "rank() keeps more than 2 rows of a group: see max_collected",
        ),
        (AnalysisException("[UNRESOLVED_COLUMN] no column x SQLSTATE: 42703"), "no column x"),
        (ValueError(f"{CARD} is odd"), "ValueError"),
    ],
)
def test_without_values_errors_about_data_have_their_kind_only(
    error: Exception, shown: str
) -> None:
    assert without_values(error) == shown
    assert (CARD in one_line(error)) is (CARD in str(error))


def ambiguous(name: str, *found: str) -> AnalysisException:
    return AnalysisException(
        f"[AMBIGUOUS_REFERENCE] Reference `{name}` is ambiguous, could be: [{', '.join(found)}]. "
        "SQLSTATE: 42704; line 1 pos 11"
    )


def test_a_field_with_the_name_of_a_column_of_every_record_is_explained() -> None:
    error = ambiguous("timestamp", *2 * ["`orders`.`timestamp`"])
    assert one_line(error) == (
        "Reference `timestamp` is ambiguous, could be: [`orders`.`timestamp`, "
        "`orders`.`timestamp`]. (line 1, column 12): every record has a column timestamp, so the "
        "schema cannot have it as a field. Leave it out there or, if its values are needed, read "
        "them by format: string and from_json"
    )


def test_a_column_of_two_tables_is_ambiguous_for_another_reason() -> None:
    error = ambiguous("key", "`orders`.`key`", "`customers`.`key`")
    assert one_line(error).endswith("`customers`.`key`]. (line 1, column 12)")


def test_what_follows_a_colon_is_part_of_the_message() -> None:
    error = PySparkException(
        "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] You may get a "
        "different result due to the upgrading to Spark >= 3.0:\n"
        "Fail to recognize 'YYYY' pattern in the DateTimeFormatter.\nMore. SQLSTATE: 42K0B"
    )
    assert one_line(error) == (
        "You may get a different result due to the upgrading to Spark >= 3.0: "
        "Fail to recognize 'YYYY' pattern in the DateTimeFormatter."
    )
