"""Names: those that Kafka accepts, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.names import name_problem

any_names = st.text(max_size=12) | st.text(alphabet="a./\\_-\0 \n~", max_size=8)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_names_that_kafka_takes_are_fine(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (".", "is a name that Kafka refuses"),
        ("..", "is a name that Kafka refuses"),
        (
            "a b",
            'has the character " ", which Kafka refuses in topic names: '
            'use letters, digits, ".", "_" and "-"',
        ),
        ("x" * 250, "has 250 characters, Kafka takes at most 249"),
    ],
)
def test_names_that_kafka_refuses_come_with_the_reason(name: str, problem: str) -> None:
    assert name_problem(name) == problem


@pytest.mark.parametrize("letter", ["é", "٣", "\n", "/"])
def test_letters_and_digits_beyond_ascii_are_refused(letter: str) -> None:
    assert name_problem(f"a{letter}") is not None


@given(any_names)
def test_a_name_is_one_folder_in_any_other(name: str) -> None:
    if name_problem(name) is None:
        assert (Path("/a/b") / name).parts == ("/", "a", "b", name)
        assert name != ".."
