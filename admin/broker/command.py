"""`pipeline broker`: a Kafka on this machine, without Docker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import AsJson
from kafka_pipeline.admin.broker.jars import KAFKA_VERSION
from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.admin.broker.ports import MAX_PORT
from kafka_pipeline.admin.broker.secrets_folder import ADMIN, FOLDER, MECHANISM, PRINCIPALS
from kafka_pipeline.admin.paths import state_home
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.common.suggest import counted

DEFAULT_PORT = 9092
NOT_RUNNING_EXIT_CODE = 3

broker_app = typer.Typer(
    help="Run a real Kafka on this machine, for trying things out.", no_args_is_help=True
)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Where the broker keeps its data, log and state.",
        show_default="$XDG_STATE_HOME/kafka-pipeline/broker",
    ),
]


@broker_app.command()
@run_command
def start(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_PORT,
            help="Port of the first broker; the others follow it.",
            show_default=str(DEFAULT_PORT),
        ),
    ] = None,
    directory: Directory = None,
    brokers: Annotated[
        int | None,
        typer.Option(min=1, max=7, help="How many brokers form the cluster.", show_default="1"),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="With TLS, users and passwords; nobody may do anything without an ACL."
        ),
    ] = False,
) -> None:
    """Start Kafka in the background and wait until it serves clients.

    With --secure, it makes certificates and users, in the folder `secrets` of DIR, and prints where
    they are: a section `kafka:` for config.yaml for each user. Needs the extra `secure`.
    """
    folder = _resolve(directory)
    with _alone_in(folder):
        cluster = LocalCluster.find(folder)
        if cluster is None:
            cluster = _new_cluster(folder, port or DEFAULT_PORT, brokers or 1, is_secure=secure)
        else:
            _require_same(cluster, port, brokers)
            if secure and not cluster.is_secure:
                raise UnavailableError(
                    f"Kafka already runs in {folder}, and is not secured. Choose another folder "
                    "for a secured one (--dir)."
                )
            if cluster.is_running():
                typer.echo(f"Kafka already runs at {cluster.bootstrap_servers}")
                return
        cluster.start()
    typer.echo(
        f"Kafka {KAFKA_VERSION} runs at {cluster.bootstrap_servers}, its data and log in {folder}"
    )
    if cluster.is_secure:
        typer.echo(_about_secrets(cluster))


@broker_app.command()
@run_command
def stop(
    directory: Directory = None,
    delete: Annotated[
        bool, typer.Option("--delete-data", help="Also delete all topics and what is in them.")
    ] = False,
) -> None:
    """Stop Kafka; what its topics hold stays for the next start."""
    folder = _resolve(directory)
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        typer.echo(f"no Kafka runs in {folder}")
        return
    except OSError as error:
        raise _unusable(folder, error) from error
    with _alone_in(folder):
        cluster = LocalCluster.find(folder)
        if cluster is not None:
            cluster.stop()
        if delete:
            delete_data(folder)
    typer.echo(f"no Kafka runs in {folder}" if cluster is None else "Kafka is stopped")


@broker_app.command()
@run_command
def status(
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether Kafka runs, and where: exit code 0 if all of it does, 3 if not."""
    folder = _resolve(directory)
    cluster = LocalCluster.find(folder)
    typer.echo(_as_json(folder, cluster) if as_json else _as_text(folder, cluster))
    if cluster is None or not cluster.is_running():
        raise typer.Exit(NOT_RUNNING_EXIT_CODE)


def _as_text(folder: Path, cluster: LocalCluster | None) -> str:
    if cluster is None:
        return f"no Kafka runs in {folder}"
    lines = []
    for node in cluster.nodes:
        process = cluster.process(node.id)
        what = f"runs, process {process.pid}" if process else "does not run"
        lines.append(
            f"broker {node.id} at port {node.port}: {what}, log {cluster.log_file(node.id)}"
        )
    return "\n".join(lines)


def _as_json(folder: Path, cluster: LocalCluster | None) -> str:
    status: dict[str, object] = {"running": False, "dir": str(folder)}
    if cluster is not None:
        status["running"] = cluster.is_running()
        status["bootstrap_servers"] = cluster.bootstrap_servers
        status["secure"] = cluster.is_secure
        status["brokers"] = [
            {
                "id": node.id,
                "port": node.port,
                "tls_port": node.tls_port,
                "pid": process.pid if (process := cluster.process(node.id)) else None,
                "log": str(cluster.log_file(node.id)),
            }
            for node in cluster.nodes
        ]
    return json.dumps(status, indent=2)


def _resolve(directory: Path | None) -> Path:
    try:
        return (directory or state_home() / "broker").expanduser().absolute()
    except (RuntimeError, OSError) as error:
        # The user after the ~ does not exist, or the current folder is gone.
        raise ConfigError(f"--dir {directory}: {error} Give its full path.") from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Make a second start or stop in the same folder wait until this one is done.

    Raises `UnavailableError` if the lock cannot be taken or a file in the folder cannot be used.
    """
    is_locked = False
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(folder / ".lock"))
            is_locked = True
            yield
        except OSError as error:
            if is_locked and not _lies_in(folder, error.filename):
                raise
            raise _unusable(folder, error) from error


def _lies_in(folder: Path, filename: object) -> bool:
    return isinstance(filename, str | bytes) and Path(os.fsdecode(filename)).is_relative_to(folder)


def _unusable(folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{folder} cannot be used: {error}. Make it writable or choose another folder (--dir)."
    )


def _about_secrets(cluster: LocalCluster) -> str:
    """Say where everything is. Passwords stay in files: terminals and logs keep what they show."""
    folder = cluster.directory / FOLDER
    return "\n".join(
        (
            "It wants TLS, and a user:",
            f"  with a password, at {cluster.bootstrap_servers} (SASL_SSL, {MECHANISM})",
            f"  with a certificate, at {cluster.tls_servers} (SSL)",
            f"In {folder}:",
            "  ca.pem              the certificate of the authority",
            "  USER.yaml           the section kafka: of config.yaml, with the password",
            "  USER.tls.yaml       the same with the certificate instead",
            "  USER.pem            the key and certificate of a user",
            "  USER.password       the password of a user",
            f"  {ADMIN}.properties    for kafka-acls.sh --command-config, at {cluster.tls_servers}",
            f"USER is {', '.join(PRINCIPALS)}, which may do nothing before they have ACLs",
            f"(`pipeline acls`), or {ADMIN}, which may do everything.",
        )
    )


def _new_cluster(folder: Path, port: int, brokers: int, *, is_secure: bool) -> LocalCluster:
    if port + brokers - 1 > MAX_PORT:
        raise ConfigError(f"--port {port} leaves no room for {brokers} brokers: {MAX_PORT} is last")
    return LocalCluster(folder, num_brokers=brokers, port=port, is_secure=is_secure)


def _require_same(cluster: LocalCluster, port: int | None, brokers: int | None) -> None:
    """Refuse a start that asks for a different port or number of brokers than the cluster's."""
    runs_at = cluster.nodes[0].port
    if port not in (None, runs_at) or brokers not in (None, len(cluster.nodes)):
        raise UnavailableError(
            f"Kafka already runs in {cluster.directory} with "
            f"{counted(len(cluster.nodes), 'broker')} from port {runs_at}. Stop it first "
            "(`pipeline broker stop`), or choose another folder for a second one (--dir)."
        )
