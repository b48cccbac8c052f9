"""Manifests, indexes and config blobs → what an image says of itself.

Decides where each text is looked for, the first that is not empty counts: annotations of the
manifest, those of its config's descriptor, labels of the config. Of an image for several platforms
it is the index first, then the manifest of the first platform. Pure; what is fetched for that is
decided in `client`.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.reference import check_digest
from rollout_operator.model.releases.release import ReleaseMetadata
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.oci.errors import BadAnswer

# Registries take manifests of up to 4 MiB; configs are smaller.
LONGEST_MANIFEST: Final = 4 * 1024 * 1024
LONGEST_CONFIG: Final = 4 * 1024 * 1024
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT: Final = ", ".join((*_INDEXES, *_MANIFESTS))
# Configs of charts and other artifacts have no labels.
_IMAGE_CONFIGS: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# Of a text that goes into the status of a Rollout.
_LONGEST_TEXT: Final = 1024
# Builds that come out the same each time write 1970, or 1980 for the sake of zip files.
_OLDEST: Final = datetime(1981, 1, 1, tzinfo=UTC)
_PREFIX: Final = "org.opencontainers.image."


class Labels(msgspec.Struct, frozen=True):
    """What annotations and labels say of an image."""

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
        """Return whether it is of a kind that has labels."""
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
        """Return what it says itself, in the order in which it counts."""
        of_config = self.config.annotations if self.config is not None else None
        return [labels for labels in (self.annotations, of_config) if labels is not None]


class _ImageSettings(msgspec.Struct, frozen=True):
    labels: Labels | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct, frozen=True):
    config: _ImageSettings | None = None
    created: str | None = None


_MANIFEST: Final = msgspec.json.Decoder(Manifest)
_CONFIG: Final = msgspec.json.Decoder(_Config)
_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def verify_digest(digest: str, body: bytes) -> None:
    """Raise BadAnswer where these are not the bytes that the digest names."""
    algorithm = digest.partition(":")[0]
    if compute_digest(body, algorithm) != digest:
        raise BadAnswer(f"what it sent as {digest} is something else")


def compute_digest(body: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of these bytes."""
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def decode_manifest(body: bytes, content_type: str) -> Manifest:
    """Return a manifest or an index. Raises BadAnswer for what is neither, or both."""
    try:
        manifest = _MANIFEST.decode(body)
    except _BROKEN:
        manifest = None
    if manifest is None:
        raise BadAnswer("its manifest is no JSON of a manifest")
    # The field has been optional; of two that differ one is a lie, and engines choose either.
    kind = manifest.media_type or content_type
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise BadAnswer("its manifest is of no kind that is known")
    is_index = kind in _INDEXES
    if (manifest.manifests is not None) != is_index or (manifest.config is None) != is_index:
        raise BadAnswer("its manifest is not of the kind that it says")
    return msgspec.structs.replace(manifest, media_type=kind)


def choose_platform(index: Manifest) -> Descriptor | None:
    """Return the manifest of the first platform of an index, None where it names no platform.

    Those of attestations are for platform `unknown`; an index within an index is not read.
    """
    for descriptor in index.manifests or ():
        platform = descriptor.platform
        if descriptor.media_type in _MANIFESTS and not (platform and platform.os == "unknown"):
            return _checked(descriptor)
    return None


def choose_config(manifest: Manifest) -> Descriptor | None:
    """Return the config of a manifest, None where it is of a kind without labels."""
    config = manifest.config
    return _checked(config) if config is not None and config.is_image_config else None


def decode_config(body: bytes) -> Labels:
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


def is_complete(sources: Sequence[Labels]) -> bool:
    """Return whether nothing more can be learned."""
    return all(_choose(sources, name) for name in Labels.__struct_fields__)


def make_metadata(digest: str, manifest: Manifest, sources: Sequence[Labels]) -> ReleaseMetadata:
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
    """Return a time, None for what is no time, or only stands for none."""
    try:
        time = parse_rfc3339(text or "")
    except InvalidInput:
        return None
    return time if time >= _OLDEST else None
