"""References in config.yaml: `${NAME}`, `${NAME:-default}` and `${file:PATH}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.expansion import ExpansionError, HostValues, expand_text
from tests.unit.common.config_texts import BASE, load, problems_in, with_value


def expanded(text: str, environment: Mapping[str, str], folder: Path = Path()) -> str:
    return expand_text(text, HostValues(environment, folder))


def test_an_expanded_number_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1234")
    monkeypatch.delenv("TMS", raising=False)
    text = with_value("server_port", "${PORT}").replace("tm_number: 2", 'tm_number: "${TMS:-7}"')
    config = load(text)
    assert (config.server_port, config.tm_number) == (1234, 7)


@pytest.mark.parametrize("value", ["abc", "", "1.0", "0x10", "\uff11", "9" * 25])
def test_an_expanded_text_that_is_no_number_is_reported(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", value)
    assert problems_in(with_value("server_port", "${PORT}")) == [
        f'2:14: server_port must be a whole number, got the text "{value}" from ${{PORT}}'
    ]


def test_an_unset_variable_is_the_only_problem_of_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    assert problems_in(with_value("server_port", "${NOPE}") + "kafka: {a: 'x${NOPE}'}") == [
        "2:14: the environment variable NOPE is not set: "
        "set it, or give a default as in ${NOPE:-default}",
        "8:12: the environment variable NOPE is not set: "
        "set it, or give a default as in ${NOPE:-default}",
    ]


@pytest.mark.parametrize(
    "text",
    ["${", "${}", "${1A}", "${A", "${A:?x}", "${A-b}", "a${ B}", "${file:}"],
)
def test_a_reference_that_is_not_written_as_one_is_refused(text: str) -> None:
    with pytest.raises(ExpansionError) as caught:
        expanded(text, {"A": "1", "B": "2"})
    assert str(caught.value) == (
        '"${" starts no reference: write ${NAME}, ${NAME:-default} or ${file:PATH}, '
        'or $${ for the text "${"'
    )


def test_a_file_has_a_password_of_kafka(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "config.yaml").write_text(
        f'{BASE}kafka: {{sasl.password: "${{file:password}}", sasl.username: "${{file:none}}"}}\n'
    )
    with pytest.raises(Exception, match="there is no such file") as caught:
        load_config(tmp_path / "config.yaml")
    assert "8:59: ${file:none}: there is no such file" in str(caught.value)
    (tmp_path / "none").write_text("me")
    config = load_config(tmp_path / "config.yaml")
    assert (config.kafka["sasl.password"], config.kafka["sasl.username"]) == ("hunter2", "me")


@pytest.mark.parametrize(
    ("value", "read"),
    [("hunter2\n", "hunter2"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("a\nb", "a\nb")],
)
def test_a_line_break_at_the_end_of_a_variable_is_left_out(value: str, read: str) -> None:
    """As of a file: `echo secret | base64` leaves one in a Secret of Kubernetes."""
    assert expanded("${A}", {"A": value}) == read
    assert expanded("${A:-}", {"A": value}) == read
    assert expanded("${A:-none}", {"A": value}) == (read or "none")


def test_a_variable_may_be_called_file() -> None:
    assert expanded("${file:-x} ${file:-}", {"file": "f"}) == "f f"


def test_two_dollars_are_no_reference() -> None:
    assert expanded("a $${A} $${ $A ${A}", {"A": "$${A}"}) == "a ${A} ${ $A $${A}"


variables = st.sampled_from(["A", "B_1", "_c"])
plain = st.text(alphabet=st.characters(exclude_characters="{$", exclude_categories=["Cs"]))
values = st.text(max_size=8)


@st.composite
def _parts(draw: st.DrawFn) -> tuple[str, str | None]:
    """Return a piece of a text, and the variable's name if it is a reference."""
    if draw(st.booleans()):
        return draw(plain), None
    name = draw(variables)
    default = draw(st.none() | st.text(max_size=8).filter(lambda text: "}" not in text))
    return (f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"), name


@given(st.lists(_parts()), st.dictionaries(variables, values))
def test_a_text_expands_to_its_parts_expanded(
    parts: list[tuple[str, str | None]], environment: dict[str, str]
) -> None:
    found = []
    for text, name in parts:
        if name is None:
            found.append(text)
        elif ":-" in text:
            found.append(environment.get(name) or text[len(name) + 4 : -1])
        elif name in environment:
            found.append(environment[name])
        else:
            with pytest.raises(ExpansionError):
                expanded("".join(text for text, _ in parts), environment)
            return
    assert expanded("".join(text for text, _ in parts), environment) == "".join(found)
