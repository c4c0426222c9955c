"""Names of Java are looked up once, and fields whenever they are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from py4j import protocol
from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError

from kafka_pipeline.streams.spark.jvm_names import keep_names

ERROR: str = protocol.ERROR


class Client:
    """A JVM with one package, one class, a method and a field, which counts what it is asked."""

    answers: ClassVar[dict[str, str]] = {
        "org": protocol.SUCCESS_PACKAGE,
        "org.Clock": protocol.SUCCESS_CLASS + "org.Clock",
        "org.Clock now": protocol.SUCCESS + protocol.METHOD_TYPE,
        "org.Clock ticks": protocol.SUCCESS + protocol.INTEGER_TYPE + "3",
    }

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gateway_property = SimpleNamespace(pool=None)
        self.converters: list[Any] = []

    def send_command(self, command: str) -> str:
        _, kind, name, member, *_ = command.split("\n")
        if kind == protocol.REFL_GET_MEMBER_SUB_COMMAND_NAME.strip():
            name = f"{name} {member}"
        self.asked.append(name)
        return self.answers.get(name, ERROR)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def jvm(client: Client) -> Any:
    gateway: Any = SimpleNamespace(jvm=JVMView(client, "a JVM", id="id"))
    keep_names(gateway)
    return gateway.jvm


def test_packages_classes_and_methods_are_looked_up_once(client: Client, jvm: Any) -> None:
    for _ in range(3):
        assert jvm.org.Clock.now.command_header == f"{protocol.STATIC_PREFIX}org.Clock\nnow\n"
    assert client.asked == ["org", "org.Clock", "org.Clock now"]


def test_a_static_field_is_read_each_time(client: Client, jvm: Any) -> None:
    clock = jvm.org.Clock
    assert [clock.ticks, clock.ticks] == [3, 3]
    assert client.asked[2:] == ["org.Clock ticks"] * 2


def test_a_name_that_is_not_there_is_an_error_each_time(jvm: Any) -> None:
    for _ in range(2):
        with pytest.raises(Py4JError, match=r"org.Clock.then does not exist in the JVM"):
            _ = jvm.org.Clock.then
