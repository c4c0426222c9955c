"""Tokens from a function of user code: what is asked, and the errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka import clients
from kafka_pipeline.common.kafka.oauth import TokenCallback
from tests.unit.common.config_texts import BASE, load

SECRET = "a-token-of-somebody"
MODULE = f"""
import time

def token(config):
    return "{SECRET}", time.time() + 3600, "tester", {{"scope": config}}

def broken(config):
    raise ConnectionError("refused with {SECRET}")

nothing = None
"""
SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.config": "scope=kafka",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "login_code.py").write_text(MODULE)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("login_code", None)


def config(folder: Path, reference: str) -> Config:
    kafka = {**SETTINGS, "sasl.oauthbearer.callback": reference}
    return replace(load(BASE), modules=("login_code",), python_path=(folder,), kafka=kafka)


def callback(function: Any) -> TokenCallback:
    return TokenCallback("login_code:token", function)


def test_every_client_gets_a_callback_of_its_own_and_librdkafka_no_setting(folder: Path) -> None:
    given = config(folder, "login_code:token")
    kinds: tuple[clients.ClientKind, ...] = ("admin", "consumer", "producer")
    found = [clients.client_config(given, kind) for kind in kinds]
    assert len({id(each["oauth_cb"]) for each in found}) == 3
    assert all("sasl.oauthbearer.callback" not in each for each in found)
    token, expiry, principal, extensions = found[0]["oauth_cb"]("scope=kafka")
    assert (token, principal, extensions) == (SECRET, "tester", {"scope": "scope=kafka"})
    assert expiry > time.time()


def test_the_first_token_is_asked_for_once() -> None:
    asked: list[str] = []

    def function(config: str) -> tuple[str, float]:
        asked.append(config)
        return SECRET, time.time() + 60

    made = callback(function)
    made.prepare("scope=a")
    assert [made("scope=a")[0], made("scope=a")[0]] == [SECRET, SECRET]
    assert asked == ["scope=a"] * 2


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("login_code:missing", 'module "login_code" has no "missing"'),
        ("login_code:nothing", 'module "login_code" has no "nothing"'),
        ("os:getenv", 'module "os" is not on the list modules: of config.yaml'),
        ("login_code.token", 'did you mean "login_code:token"?'),
    ],
)
def test_function_that_cannot_be_used_is_an_error_of_config_yaml(
    folder: Path, reference: str, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        clients.client_config(config(folder, reference), "admin")
    assert said in str(raised.value)
    assert "kafka: in config.yaml: sasl.oauthbearer.callback" in str(raised.value)


def test_exception_of_the_function_is_an_error_without_its_message(folder: Path) -> None:
    settings = clients.client_config(config(folder, "login_code:broken"), "producer")
    with pytest.raises(UnavailableError) as raised:
        clients.connect(Producer, settings)
    assert "raised ConnectionError at login_code.py:8 in broken" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "must return (token, expiry in seconds since 1970[, principal[, extensions]])"),
        ((SECRET,), "returned a tuple of 1"),
        ((SECRET, 9e9, "p", {}, 1), "returned a tuple of 5"),
        ((b"token", 9e9), "returned bytes as the token"),
        ((SECRET, "soon"), "returned str as the expiry"),
        ((SECRET, True), "returned bool as the expiry"),
        ((SECRET, 9e9, 5), "returned int as the principal"),
        ((SECRET, 9e9, "p", []), "returned list as the extensions"),
        ((SECRET, 1.0), "returned a token that has expired"),
        ((SECRET, time.time() * 1000 + 900_000), "expiry that is not in seconds since 1970"),
        ((SECRET, inf), "returned an expiry that is not in seconds since 1970"),
        ((SECRET, nan), "returned an expiry that is not in seconds since 1970"),
    ],
)
def test_wrong_answer_is_an_error_that_does_not_quote_it(returned: Any, said: str) -> None:
    with pytest.raises(UnavailableError) as raised:
        callback(lambda _: returned).prepare("")
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)


def test_failures_to_renew_a_token_are_logged_ever_more_rarely() -> None:
    made = callback(lambda _: None)
    with capture_logs() as logs:
        for _ in range(5):
            with pytest.raises(UnavailableError):
                made("")
    assert [log["count"] for log in logs] == [1, 2, 4]


@pytest.mark.parametrize("given", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_kerberos_is_explained(given: dict[str, str]) -> None:
    kafka = {"security.protocol": "SASL_SSL", **given}
    settings = clients.client_config(replace(load(BASE), kafka=kafka), "producer")
    with pytest.raises(ConfigError) as raised:
        clients.connect(Producer, settings)
    assert "the wheels of confluent-kafka do not have it" in str(raised.value)
    assert "Set sasl.mechanism to PLAIN, SCRAM-SHA-256" in str(raised.value)
