"""Keep the credential we show to the API server fresh.

Projected service account tokens change every hour or so under the same path, a kubeconfig may name
a token file or a program. Files are read again every half minute; everything is loaded again when
the server refuses what we showed. While loading fails the old value stays: it may still be good.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.connection.lean import LibraryConfiguration
from rollout_operator.model.errors import ConfigError
from rollout_operator.telemetry.logs import log

# The kubelet rotates a token at 80 % of its life, so half a minute late is early enough.
REREAD_EVERY: Final = timedelta(seconds=30)
# A refused credential may be loaded by running a program: not for each of a hundred refused calls.
RELOAD_GAP: Final = timedelta(seconds=10)
# A program that prompts for a password on a terminal which is not there would wait for ever.
LOAD_LIMIT: Final = timedelta(seconds=30)

_MAX_TOKEN: Final = 64 * 1024
_KEY: Final = "BearerToken"

Load = Callable[[], Awaitable[str]]
"""Return the value of the Authorization header; raise ConfigError where there is none."""


class Credential:
    """The value of the Authorization header; made with the first value already loaded.

    `reread_every` None: loaded again only after a refusal, and then not more than once per gap.
    """

    def __init__(
        self, value: str, load: Load, clock: Clock, *, reread_every: timedelta | None = None
    ) -> None:
        self._value = value
        self._load = load
        self._clock = clock
        self._reread_every = reread_every
        self._loaded_at = clock.elapsed()
        self._reload_lock = asyncio.Lock()

    @property
    def value(self) -> str:
        """Return the value that is sent now. Never for logs."""
        return self._value

    async def show_current(self, configuration: LibraryConfiguration) -> None:
        """Give the library the current value, as its hook before each request."""
        age = self._clock.elapsed() - self._loaded_at
        if self._reread_every is not None and age >= self._reread_every:
            await self._load_again()
        configuration.api_key[_KEY] = self._value

    async def replace_refused(self, refused: str) -> None:
        """Load again because the server refused `refused`, unless another call just did so."""
        async with self._reload_lock:
            is_program = self._reread_every is None
            age = self._clock.elapsed() - self._loaded_at
            if self._value == refused and not (is_program and age < RELOAD_GAP):
                await self._load_again()

    async def _load_again(self) -> None:
        self._loaded_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(LOAD_LIMIT.total_seconds()):
                value = await self._load()
        except (ConfigError, TimeoutError) as error:
            log.warn("Keeping the credential that cannot be loaded again", err=error)
            return
        if value != self._value:
            log.debug("Using a new credential")
            self._value = value


def read_token(path: Path) -> str:
    """Return the Authorization header for the token in a file. Raises ConfigError naming it."""
    try:
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN).strip()
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror or error}") from error
    return render_bearer(f"token file {path}", token)


def render_bearer(where: str, token: bytes) -> str:
    """Return the Authorization header. Raises ConfigError, which shows nothing of the token."""
    # Anything else would end the header early, or be refused with an error that shows the token.
    if not token or not all(33 <= byte <= 126 for byte in token):
        raise ConfigError(f"{where}: it holds no token: {len(token)} bytes")
    return f"Bearer {token.decode()}"


def token_file(path: Path, clock: Clock, *, otherwise: str = "") -> Credential:
    """Return the credential in a file that may change.

    Where it cannot be read, `otherwise` counts; where that is empty, raises ConfigError.
    """

    async def load() -> str:
        return read()

    def read() -> str:
        try:
            return read_token(path)
        except ConfigError:
            if not otherwise:
                raise
            return otherwise

    return Credential(read(), load, clock, reread_every=REREAD_EVERY)
