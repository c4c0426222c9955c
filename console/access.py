"""Access to actions and records: a request needs the console's token."""

from __future__ import annotations

import asyncio
import hmac
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import structlog

from kafka_pipeline.common.errors import ConfigError

LEAST_TOKEN = 16
WRONG_TOKEN_WAIT_S = 1.0
_MOST_WAITING = 4
_TOKEN = re.compile(rf"[!-~]{{{LEAST_TOKEN},}}")
_BEARER = re.compile(r"Bearer +([!-~]+)", re.IGNORECASE)

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: an HTTP status, a sentence, and headers of the answer."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


class Access:
    """Compares the tokens of requests with the console's token. For one event loop.

    A wrong token is answered after a second. While four such answers are pending, no token is
    compared at all, so nobody can try more than four per second, from any number of addresses.
    """

    def __init__(self, token: str | None) -> None:
        """Take the token; with `None`, all requests are refused."""
        self._token = None if token is None else token.encode()
        self._waiting = 0

    @property
    def is_possible(self) -> bool:
        """Whether the console has a token."""
        return self._token is not None

    async def refusal(self, authorization: str | None, address: str) -> Refusal | None:
        """Return why a request is refused; `None` if it has the right token.

        `authorization` is its header, and `address` is the sender's, for the log.
        """
        if self._token is None:
            return Refusal(403, "the console has no token: see console_token_file in config.yaml")
        if not authorization:
            return _unauthorized("this needs the console's token: sign in")
        if self._waiting >= _MOST_WAITING:
            reason = "too many wrong tokens at the moment: try again in a few seconds"
            return Refusal(429, reason, (("Retry-After", "2"),))
        found = _BEARER.fullmatch(authorization.strip())
        if found is not None and hmac.compare_digest(found[1].encode(), self._token):
            return None
        logger.warning("a request to the console has a wrong token", address=address)
        self._waiting += 1
        try:
            await asyncio.sleep(WRONG_TOKEN_WAIT_S)
        finally:
            self._waiting -= 1
        return _unauthorized("this is not the console's token")


def read_token(file: Path) -> str:
    """Return the first line of a file, and warn if others on this host can read the file.

    Raises `ConfigError` if the file cannot be read, or if its first line is not a token: at least
    16 printable ASCII characters, without spaces.
    """
    try:
        with file.open(encoding="ascii") as lines:
            token = lines.readline().strip()
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the token of the console cannot be read from {file} (console_token_file in "
            f"config.yaml): {error}"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"the first line of {file} (console_token_file in config.yaml) is not a token: it must "
            f"have at least {LEAST_TOKEN} characters of ASCII without spaces. Make one with "
            "`openssl rand -hex 32`"
        )
    if mode & stat.S_IROTH:
        logger.warning(
            "everyone on this host can read the token of the console: take the right to read it "
            "from others",
            file=str(file),
        )
    return token


def _unauthorized(reason: str) -> Refusal:
    return Refusal(401, reason, (("WWW-Authenticate", "Bearer"),))
