"""Look-ups of releases in registries: beside everything else, remembered, and never too often.

A pass waits a moment for an answer, so that most releases are recorded with all that their image
says of itself; a registry that hangs delays no deployment beyond that. A tag is looked up once, and
again after the Rollout's interval where that failed, or where its digest moved.

An ImageRepository says by which credentials and which proxy a registry is read. Secrets are read
before each read of a registry, and kept nowhere. An error names a Secret and its key: no text has
anything of its values.
"""

import asyncio
import base64
import binascii
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.api import SECRETS, Reader
from rollout_operator.model.errors import ApiError, InvalidInput, NotFound
from rollout_operator.model.releases.flux import ImageRepository
from rollout_operator.model.releases.reference import ImageReference
from rollout_operator.model.releases.release import ReleaseMetadata
from rollout_operator.model.units import Confidential
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.errors import RegistryError, ReleaseNotFound
from rollout_operator.oci.keyring import Keyring, decode_pull_secret
from rollout_operator.oci.sender import Route
from rollout_operator.telemetry.logs import log

_NO_CLOUD: Final = ("", "generic")
# The newer name, and the name of earlier releases of Flux.
_CA: Final = ("ca.crt", "caFile")
_CERTIFICATE: Final = ("tls.crt", "certFile")
_KEY: Final = ("tls.key", "keyFile")

# For so long a pass waits for an answer that is not there yet.
PATIENCE: Final = timedelta(seconds=5)
# Of one Rollout: what its policy selects, what it is pinned to, and what these were before.
MOST_TAGS: Final = 4


class _Secret(Confidential, msgspec.Struct):
    data: dict[str, str] | None = None


_SECRET: Final = msgspec.json.Decoder(_Secret)


async def read_access(reader: Reader, repository: ImageRepository) -> RegistryAccess:
    """Return how to read the registry of an ImageRepository.

    Raises InvalidInput where a person must change something, and what `Reader.fetch` raises.
    """
    return RegistryAccess(
        keyring=await _read_keyring(reader, repository),
        is_insecure=repository.is_insecure,
        route=Route(
            trust=await _read_trust(reader, repository),
            proxy=await _read_proxy(reader, repository),
        ),
    )


async def _read_keyring(reader: Reader, repository: ImageRepository) -> Keyring:
    if repository.pull_secret is not None:
        return decode_pull_secret(await _read(reader, repository, repository.pull_secret))
    if repository.provider not in _NO_CLOUD:
        raise InvalidInput(
            f"{_name(repository)}: spec.provider: credentials of {repository.provider} are not"
            " fetched here; name a pull secret in spec.secretRef"
        )
    return Keyring()


async def _read_trust(reader: Reader, repository: ImageRepository) -> ssl.SSLContext | None:
    if repository.certificates is None:
        return None
    data = await _read(reader, repository, repository.certificates)
    where = f"{_name(repository)}: secret {repository.certificates}"
    ca, certificate, key = (_find(data, names) for names in (_CA, _CERTIFICATE, _KEY))
    has_pair = certificate is not None or key is not None
    context = ssl.create_default_context()
    try:
        if ca is not None or not has_pair:
            context.load_verify_locations(cadata=(ca or b"").decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InvalidInput(f"{where}: ca.crt holds no certificates in PEM") from None
    try:
        if has_pair:
            _load_pair(context, certificate or b"", key or b"")
    except (ssl.SSLError, OSError, ValueError):
        text = "tls.crt and tls.key are no certificate with its key, in PEM and without a password"
        raise InvalidInput(f"{where}: {text}") from None
    return context


def _find(data: Mapping[str, bytes], names: Iterable[str]) -> bytes | None:
    return next((data[name] for name in names if name in data), None)


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a client certificate shown to servers that require it.

    The library reads it from a file: from a file in memory, and that no other process sees.
    """
    with os.fdopen(os.memfd_create("client certificate"), "wb") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        # Without a password it would prompt at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")


async def _read_proxy(reader: Reader, repository: ImageRepository) -> str | None:
    if repository.proxy is None:
        return None
    data = await _read(reader, repository, repository.proxy)
    address, *pair = (data.get(key, b"") for key in ("address", "username", "password"))
    try:
        url = urlsplit(address.decode("ascii").strip())
        has_host = url.scheme in {"http", "https"} and bool(url.hostname)
    except ValueError:
        has_host = False
    if not has_host:
        text = f"{_name(repository)}: secret {repository.proxy}: address is no URL of a proxy"
        raise InvalidInput(text)
    host = url.netloc.rpartition("@")[2]
    user = ":".join(quote(part, safe="") for part in pair) + "@" if pair[0] else ""
    return f"{url.scheme}://{user}{host}"


async def _read(reader: Reader, repository: ImageRepository, name: str) -> Mapping[str, bytes]:
    """Return the data of a Secret beside the ImageRepository."""
    where = f"{_name(repository)}: secret {name}"
    try:
        body = await reader.fetch(SECRETS, repository.head.namespace, name)
    except NotFound as error:
        raise InvalidInput(f"{where}: there is none") from error
    try:
        data = _SECRET.decode(body).data or {}
        return {key: base64.b64decode(value) for key, value in data.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error):
        # The cause would quote what it read.
        raise InvalidInput(f"{where}: its data cannot be read") from None


def _name(repository: ImageRepository) -> str:
    return f"ImageRepository {repository.head.key}"


class LookUpKey(msgspec.Struct, frozen=True):
    """The subject of a look-up: a tag of the images of one ImageRepository, for one Rollout."""

    rollout: str
    tag: str


class _LookUpState(msgspec.Struct, kw_only=True):
    repository: ImageRepository
    interval: timedelta
    digest: str | None
    """As the image policy has it: another digest is another image."""
    answered: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    metadata: ReleaseMetadata | None = None
    is_known: bool = False
    """Whether the registry answered, be it that there is no such tag."""
    due_at: timedelta | None = None
    """When it is looked up again; None for never, as long as it is the same image."""


class Registries(Protocol):
    """Reads of registries; the implementation is `oci.client.RegistryClient`."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return what an image says of itself. Raises InvalidInput and RegistryError."""
        ...


class ReleaseLookUps:
    """Look-ups for the Rollouts of one namespace."""

    def __init__(
        self,
        registries: Registries,
        secrets: Reader,
        clock: Clock,
        wake: Callable[[str, timedelta], None],
    ) -> None:
        """`wake` has a Rollout reconciled after so long: there may be new answers."""
        self._registries = registries
        self._secrets = secrets
        self._clock = clock
        self._wake = wake
        self.queue: WorkQueue[LookUpKey] = WorkQueue()
        self._states: dict[str, OrderedDict[str, _LookUpState]] = {}
        self._problems: dict[str, dict[str, tuple[str, int]]] = {}
        """By Rollout and tag: what was in the way last, and how often in a row."""

    async def fetch(
        self,
        key: LookUpKey,
        repository: ImageRepository,
        interval: timedelta,
        digest: str | None = None,
    ) -> tuple[bool, ReleaseMetadata | None]:
        """Return whether the registry answered, and what it said; None where it has no such tag.

        Waits a moment for the first answer.
        """
        state = self._find(key)
        if state is None or (state.repository.image, state.digest) != (repository.image, digest):
            state = _LookUpState(repository=repository, interval=interval, digest=digest)
            self._remember(key, state)
            self.queue.add(key)
        elif state.due_at is not None and self._clock.elapsed() >= state.due_at:
            state.repository, state.interval, state.due_at = repository, interval, None
            self.queue.add(key)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await state.answered.wait()
        except TimeoutError:
            # The next caller waits no more: the answer wakes the Rollout.
            state.answered.set()
        return state.is_known, state.metadata

    def forget(self, rollout: str) -> None:
        """Forget a Rollout that is gone."""
        self._states.pop(rollout, None)
        self._problems.pop(rollout, None)

    def report_problem(self, key: LookUpKey, error: Exception) -> None:
        """Log why a release cannot be looked up; again only once that changes, or seldom."""
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", rollout=key.rollout, tag=key.tag, err=error)

    async def look_up(self, key: LookUpKey) -> Result:
        """Read a registry once."""
        state = self._find(key)
        if state is None:
            return Result()
        image = ImageReference(state.repository.image, tag=key.tag)
        try:
            access = await read_access(self._secrets, state.repository)
            state.metadata = await self._registries.fetch_release(image, access)
            state.is_known = True
            self._problems.get(key.rollout, {}).pop(key.tag, None)
        except ReleaseNotFound as error:
            state.metadata, state.is_known = None, True
            self._retry(key, state, error, state.interval)
        except RegistryError as error:
            wait = max(state.interval, error.retry_after or timedelta(0))
            self._retry(key, state, error, wait)
        except (InvalidInput, ApiError) as error:
            self._retry(key, state, error, state.interval)
        state.answered.set()
        self._wake(key.rollout, timedelta(0))
        if state.due_at is not None:
            self._wake(key.rollout, state.due_at - self._clock.elapsed())
        return Result()

    def _retry(
        self, key: LookUpKey, state: _LookUpState, error: Exception, wait: timedelta
    ) -> None:
        state.due_at = self._clock.elapsed() + wait
        names = {"rollout": key.rollout, "tag": key.tag}
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", **names, again_in=wait, err=error)

    def _is_news(self, key: LookUpKey, problem: str) -> bool:
        """Return whether a problem is worth a warning: when it is new, then ever more rarely."""
        problems = self._problems.setdefault(key.rollout, {})
        before, times = problems.get(key.tag, ("", 0))
        times = times + 1 if problem == before else 1
        problems[key.tag] = problem, times
        if len(problems) > MOST_TAGS:
            del problems[next(iter(problems))]
        return times.bit_count() == 1

    def _find(self, key: LookUpKey) -> _LookUpState | None:
        tags = self._states.get(key.rollout)
        return None if tags is None else tags.get(key.tag)

    def _remember(self, key: LookUpKey, state: _LookUpState) -> None:
        tags = self._states.setdefault(key.rollout, OrderedDict())
        tags.pop(key.tag, None)
        tags[key.tag] = state
        while len(tags) > MOST_TAGS:
            tags.popitem(last=False)
