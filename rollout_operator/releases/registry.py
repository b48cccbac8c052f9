"""Read a registry: which digest a tag names, and what the image says of itself.

The digest comes first: the image that it names never changes, so it is read once. The first text
that is not empty counts: annotations of the manifest, then of its config's descriptor, then labels
of the config. An index counts before the manifest of its first platform. How requests are made is
decided in `exchange`; when a registry is read is left to callers.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import format_duration, parse_rfc3339, quote
from rollout_operator.releases.exchange import (
    BadAnswer,
    Keyring,
    LookUp,
    NoAnswer,
    NotAccepted,
    RegistryAnswer,
    RegistryBusy,
    RegistryCredential,
    RegistryDenied,
    RegistryDistrusted,
    RegistryError,
    RegistryExchange,
    RegistryQuestion,
    RegistryUnreachable,
    ReleaseNotFound,
    Route,
)
from rollout_operator.releases.model.releases import (
    ImageReference,
    ReleaseMetadata,
    Repository,
    check_digest,
)

# Registries take manifests of up to 4 MiB; configs are smaller.
_LONGEST_MANIFEST: Final = 4 * 1024 * 1024
_LONGEST_CONFIG: Final = 4 * 1024 * 1024
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT: Final = ", ".join((*_INDEXES, *_MANIFESTS))
# Configs of charts and other artifacts have no labels.
_IMAGE_CONFIGS: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# Longest text that goes into the status of a Rollout.
_LONGEST_TEXT: Final = 1024
# Reproducible builds write 1970, or 1980 for the sake of zip files.
_OLDEST: Final = datetime(1981, 1, 1, tzinfo=UTC)
_PREFIX: Final = "org.opencontainers.image."
# Errors of decoding a body that is broken.
_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

RESULTS: Final[Mapping[type[RegistryError], str]] = {
    ReleaseNotFound: "not_found",
    RegistryDenied: "denied",
    RegistryBusy: "busy",
    RegistryUnreachable: "unreachable",
    RegistryDistrusted: "distrusted",
}
"""The names of outcomes of look-ups, beside `ok`, `invalid` and `cancelled`."""

# For all requests of a look-up, to token servers and blob stores as well.
_LOOK_UP_LIMIT: Final = timedelta(seconds=60)
# Most take a kilobyte or less, the largest seven.
_MOST_CACHED: Final = 1000
_DIGEST_HEADER: Final = "Docker-Content-Digest"
# Statuses of registries and proxies that do not serve HEAD.
_WITHOUT_HEAD: Final = frozenset({400, 405, 501})

# A registry that asks us to wait a year must not silence us for a year.
_LONGEST_WAIT: Final = timedelta(hours=1)
# Only codes are shown: messages are free text, which may repeat credentials that we sent.
_CODE: Final = re.compile(r"[A-Z_]{1,40}")


class Labels(msgspec.Struct, frozen=True):
    version: str | None = msgspec.field(default=None, name=f"{_PREFIX}version")
    revision: str | None = msgspec.field(default=None, name=f"{_PREFIX}revision")
    source: str | None = msgspec.field(default=None, name=f"{_PREFIX}source")
    title: str | None = msgspec.field(default=None, name=f"{_PREFIX}title")
    description: str | None = msgspec.field(default=None, name=f"{_PREFIX}description")
    created: str | None = msgspec.field(default=None, name=f"{_PREFIX}created")


class _Platform(msgspec.Struct, frozen=True):
    architecture: str | None = None
    os: str | None = None


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """What a manifest refers to."""

    digest: str = ""
    media_type: str = ""
    annotations: Labels | None = None
    platform: _Platform | None = None

    @property
    def is_image_config(self) -> bool:
        return self.media_type in _IMAGE_CONFIGS


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """A manifest, or an index of those of several platforms."""

    media_type: str = ""
    artifact_type: str | None = None
    annotations: Labels | None = None
    config: Descriptor | None = None
    manifests: tuple[Descriptor, ...] | None = None

    @property
    def labels(self) -> list[Labels]:
        """Return its own labels, in the order in which they count."""
        of_config = self.config.annotations if self.config is not None else None
        return [labels for labels in (self.annotations, of_config) if labels is not None]


class _ImageSettings(msgspec.Struct, frozen=True):
    labels: Labels | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct, frozen=True):
    config: _ImageSettings | None = None
    created: str | None = None


_MANIFEST: Final = msgspec.json.Decoder(Manifest)
_CONFIG: Final = msgspec.json.Decoder(_Config)


def _verify_digest(digest: str, body: bytes) -> None:
    """Raise BadAnswer unless these are the bytes that the digest names."""
    algorithm = digest.partition(":")[0]
    if _compute_digest(body, algorithm) != digest:
        raise BadAnswer(f"what it sent as {digest} is something else")


def _compute_digest(body: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def _decode_manifest(body: bytes, content_type: str) -> Manifest:
    """Return a manifest or an index. Raises BadAnswer for a body that is neither, or both."""
    try:
        manifest = _MANIFEST.decode(body)
    except _BROKEN:
        manifest = None
    if manifest is None:
        raise BadAnswer("its manifest is no JSON of a manifest")
    # The field was optional once: then the header counts. A body that does not fit its kind is
    # refused below, since container engines may read it either way.
    kind = manifest.media_type or content_type
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise BadAnswer("its manifest is of no kind that is known")
    is_index = kind in _INDEXES
    if (manifest.manifests is not None) != is_index or (manifest.config is None) != is_index:
        raise BadAnswer("its manifest is not of the kind that it says")
    return msgspec.structs.replace(manifest, media_type=kind)


def _choose_platform(index: Manifest) -> Descriptor | None:
    """Return the manifest of the first platform of an index, None where it names no platform.

    Attestations have the platform `unknown`; an index within an index is not read.
    """
    for descriptor in index.manifests or ():
        platform = descriptor.platform
        if descriptor.media_type in _MANIFESTS and not (platform and platform.os == "unknown"):
            return _checked(descriptor)
    return None


def _choose_config(manifest: Manifest) -> Descriptor | None:
    config = manifest.config
    return _checked(config) if config is not None and config.is_image_config else None


def _decode_config(body: bytes) -> Labels:
    """Return the labels of a config, and when its image was made. Raises BadAnswer."""
    try:
        config = _CONFIG.decode(body)
    except _BROKEN:
        config = None
    if config is None:
        raise BadAnswer("its config is no JSON of a config")
    labels = (config.config and config.config.labels) or Labels()
    if _read_time(labels.created) is not None:
        return labels
    made = _read_time(config.created)
    return msgspec.structs.replace(labels, created=config.created if made else None)


def _is_complete(sources: Sequence[Labels]) -> bool:
    return all(_choose(sources, name) for name in Labels.__struct_fields__)


def _make_metadata(digest: str, manifest: Manifest, sources: Sequence[Labels]) -> ReleaseMetadata:
    """Return what all sources together say, the first of them before the others."""
    config_type = manifest.config.media_type if manifest.config is not None else ""
    times = (_read_time(labels.created) for labels in sources)
    return ReleaseMetadata(
        digest=digest,
        artifact_type=_cut(manifest.artifact_type or config_type or manifest.media_type),
        version=_choose(sources, "version"),
        revision=_choose(sources, "revision"),
        source=_choose(sources, "source"),
        title=_choose(sources, "title"),
        description=_choose(sources, "description"),
        created=next((time for time in times if time is not None), None),
    )


def _checked(descriptor: Descriptor) -> Descriptor:
    try:
        check_digest(descriptor.digest)
    except InvalidInput as error:
        raise BadAnswer(f"its manifest refers to what is no digest: {error}") from error
    return descriptor


def _choose(sources: Sequence[Labels], name: str) -> str:
    return _cut(next((text for labels in sources if (text := getattr(labels, name))), ""))


def _cut(text: str) -> str:
    return text[:_LONGEST_TEXT]


def _read_time(text: str | None) -> datetime | None:
    try:
        time = parse_rfc3339(text or "")
    except InvalidInput:
        return None
    return time if time >= _OLDEST else None


class RegistryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry may be read, as its ImageRepository says."""

    keyring: Keyring = msgspec.field(default_factory=Keyring)
    is_insecure: bool = False
    """Whether a registry without TLS is read all the same. No bad certificate is accepted."""
    route: Route = msgspec.field(default_factory=Route)


class _Unsuccessful(Exception):
    """The registry answered with an error; never leaves this module."""

    def __init__(self, answer: RegistryAnswer) -> None:
        super().__init__(f"HTTP status {answer.status}")
        self.answer = answer


class RegistryClient:
    """Look-ups in all registries; every method raises InvalidInput and RegistryError only."""

    def __init__(
        self,
        exchange: RegistryExchange,
        clock: Clock,
        count: Callable[[str], object] = lambda result: None,
        limit: timedelta = _LOOK_UP_LIMIT,
    ) -> None:
        """`count` is called with the name of the outcome of each look-up."""
        self._exchange = exchange
        self._clock = clock
        self._count = count
        self._limit = limit
        self._cache: OrderedDict[tuple[Repository, str], ReleaseMetadata] = OrderedDict()

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return what an image says of itself; without tag and digest it is the tag `latest`.

        The digest is requested from the registry each time, even if the rest is cached, so that
        the cache shows no image to a person who may not read it.
        """
        shown = image.digest or f"tag {image.tag or 'latest'}"
        with self._counted():
            look_up = LookUp(
                repository=image.repository,
                credential=access.keyring.choose(image.repository),
                is_insecure=access.is_insecure,
                route=access.route,
            )
            return await self._bounded(look_up, shown, self._read_release(look_up, image))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        result = "cancelled"
        try:
            yield
            result = "ok"
        except InvalidInput:
            result = "invalid"
            raise
        except RegistryError as error:
            result = RESULTS[type(error)]
            raise
        finally:
            self._count(result)

    async def _bounded(
        self, look_up: LookUp, shown: str, work: Coroutine[Any, Any, ReleaseMetadata]
    ) -> ReleaseMetadata:
        """Do the work within the limit. Raises RegistryError, in one sentence, if it fails."""
        repository = look_up.repository
        subject = f"cannot read {shown} of {repository.name} in registry {repository.registry}"
        try:
            async with asyncio.timeout(self._limit.total_seconds()):
                return await work
        except _Unsuccessful as error:
            raise _error_of(subject, error.answer, look_up.credential, self._clock.now()) from error
        except NotAccepted as error:
            raise _deny(subject, repository.registry, look_up.credential) from error
        except NoAnswer as error:
            raise RegistryUnreachable(f"{subject}: {error}; it is called again later") from error
        except BadAnswer as error:
            text = f"{subject}: {error}; its answer is not used: mend the registry or the image"
            raise RegistryDistrusted(text) from error
        except TimeoutError as error:
            limit = format_duration(self._limit)
            text = f"{subject}: it took longer than {limit}; it is called again later"
            raise RegistryUnreachable(text) from error

    async def _read_release(self, look_up: LookUp, image: ImageReference) -> ReleaseMetadata:
        digest = await self._fetch_digest(look_up, image)
        if digest and (cached := self._cache.get((look_up.repository, digest))) is not None:
            self._cache.move_to_end((look_up.repository, digest))
            return cached
        reference = digest or image.tag or "latest"
        manifest, digest = await self._read_manifest(look_up, reference, digest)
        sources = await self._list_sources(look_up, manifest)
        metadata = _make_metadata(digest, manifest, sources)
        self._cache[look_up.repository, digest] = metadata
        while len(self._cache) > _MOST_CACHED:
            self._cache.popitem(last=False)
        return metadata

    async def _fetch_digest(self, look_up: LookUp, image: ImageReference) -> str | None:
        """Return the digest of an image, None if the registry does not send it for a HEAD."""
        reference = image.digest or image.tag or "latest"
        question = RegistryQuestion(path=f"manifests/{reference}", method="HEAD", accept=_ACCEPT)
        answer = await self._exchange.fetch(look_up, question)
        if answer.status in _WITHOUT_HEAD:
            return image.digest
        _check(answer)
        return image.digest or _read_digest(answer)

    async def _read_manifest(
        self, look_up: LookUp, reference: str, digest: str | None
    ) -> tuple[Manifest, str]:
        question = RegistryQuestion(
            path=f"manifests/{reference}", accept=_ACCEPT, longest=_LONGEST_MANIFEST
        )
        answer = _check(await self._exchange.fetch(look_up, question))
        digest = digest or _read_digest(answer) or _compute_digest(answer.body)
        _verify_digest(digest, answer.body)
        content_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return _decode_manifest(answer.body, content_type), digest

    async def _list_sources(self, look_up: LookUp, manifest: Manifest) -> list[Labels]:
        """Return the labels of an image, fetching only as much as is still missing."""
        sources = list(manifest.labels)
        try:
            if not _is_complete(sources) and (platform := _choose_platform(manifest)) is not None:
                digest = platform.digest
                manifest, _ = await self._read_manifest(look_up, digest, digest)
                sources += manifest.labels
            if not _is_complete(sources) and (config := _choose_config(manifest)) is not None:
                sources.append(await self._read_config(look_up, config.digest))
        except _Unsuccessful as error:
            # A mirror may lack platforms that its index names.
            if error.answer.status != 404:
                raise
        return sources

    async def _read_config(self, look_up: LookUp, digest: str) -> Labels:
        question = RegistryQuestion(path=f"blobs/{digest}", longest=_LONGEST_CONFIG)
        answer = _check(await self._exchange.fetch(look_up, question))
        _verify_digest(digest, answer.body)
        return _decode_config(answer.body)


def _check(answer: RegistryAnswer) -> RegistryAnswer:
    if not 200 <= answer.status < 300:
        raise _Unsuccessful(answer)
    return answer


def _read_digest(answer: RegistryAnswer) -> str | None:
    try:
        return check_digest(answer.headers.get(_DIGEST_HEADER, ""))
    except InvalidInput:
        return None


class _RegistryRefusal(msgspec.Struct):
    code: str = ""


class _Refusals(msgspec.Struct):
    errors: list[_RegistryRefusal] | None = None


_REFUSALS: Final = msgspec.json.Decoder(_Refusals)


def _deny(subject: str, host: str, credential: RegistryCredential | None) -> RegistryDenied:
    """Return the error for a registry that wants credentials, or others than it got."""
    if credential is None:
        return RegistryDenied(
            f"{subject}: it wants credentials, or there is no such repository; name a pull secret "
            f"with an entry for {host} in the ImageRepository's spec.secretRef"
        )
    return RegistryDenied(
        f"{subject}: it does not accept the pull secret's entry {quote(credential.key)}; renew "
        "that entry, or give it the right to pull"
    )


def _error_of(
    subject: str, answer: RegistryAnswer, credential: RegistryCredential | None, now: datetime
) -> RegistryError:
    """Return the error for an answer without success; `subject` begins its sentence."""
    shown = ", ".join(filter(None, (f"HTTP status {answer.status}", _read_code(answer.body))))
    if answer.status == 404:
        return ReleaseNotFound(
            f"{subject}: there is no such tag or repository ({shown}); push it, or correct its name"
        )
    if answer.status == 403:
        whose = (
            f"the pull secret's entry {quote(credential.key)}"
            if credential
            else "clients without credentials"
        )
        return RegistryDenied(
            f"{subject}: it does not let {whose} pull ({shown}); change the rights there"
        )
    wait = parse_retry_after(answer.headers, now)
    if answer.status == 429:
        return RegistryBusy(
            f"{subject}: too many requests ({shown}); it is called again later, and less often"
            " with a longer spec.releaseUpdateInterval",
            retry_after=wait,
        )
    return RegistryUnreachable(
        f"{subject}: it answered with {shown}; it is called again later", retry_after=wait
    )


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long to wait, at most an hour; None where the registry does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=int(text)) if len(text) < 8 else _LONGEST_WAIT
    else:
        try:
            time = parsedate_to_datetime(text)
            wait = (time if time.tzinfo else time.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            return None
    return min(wait, _LONGEST_WAIT) if wait > timedelta(0) else None


def _read_code(body: bytes) -> str:
    try:
        errors = _REFUSALS.decode(body).errors or []
    except _BROKEN:
        return ""
    return next((error.code for error in errors if _CODE.fullmatch(error.code)), "")
