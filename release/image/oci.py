"""An image as an OCI layout: blobs by digest, a manifest a platform, and what refers to them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from release.archives import compress, pack

_VENDOR: Final = "application/vnd.oci"
MANIFEST: Final = f"{_VENDOR}.image.manifest.v1+json"
INDEX: Final = f"{_VENDOR}.image.index.v1+json"
CONFIG: Final = f"{_VENDOR}.image.config.v1+json"
LAYER: Final = f"{_VENDOR}.image.layer.v1.tar+gzip"
EMPTY: Final = f"{_VENDOR}.empty.v1+json"

# What points to a blob: type, digest and size, and more that the place has to say.
Descriptor = dict[str, Any]


@dataclass(slots=True)
class Layout:
    """A folder of blobs in memory, and the index that leads into it."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    entries: list[Descriptor] = field(default_factory=list)

    def add(self, content: bytes, media_type: str) -> Descriptor:
        """Keep a blob, and return what points to it."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value: object, media_type: str) -> Descriptor:
        """Keep a document, in the one form that its digest is of."""
        return self.add(
            json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), media_type
        )

    def pack(self, epoch: int) -> bytes:
        """Return the whole as one tar file."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.entries}
        files = {f"blobs/sha256/{digest}": (blob, 0o644) for digest, blob in self.blobs.items()}
        files["oci-layout"] = (b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        files["index.json"] = (json.dumps(index, sort_keys=True).encode(), 0o644)
        return pack(files, epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A tar of files, and what the image's history says of it."""

    content: bytes
    made_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a container of the image runs."""

    entrypoint: str
    user: str
    environ: Mapping[str, str]
    ports: Sequence[int]
    labels: Mapping[str, str]
    created: str


def add_image(
    layout: Layout, layers: Sequence[Layer], settings: Settings, architecture: str
) -> Descriptor:
    """Add the image for one platform, and return what an index of platforms lists."""
    platform = {"os": "linux", "architecture": architecture}
    if architecture == "arm64":
        platform["variant"] = "v8"
    config = {
        **platform,
        "created": settings.created,
        "config": {
            "User": settings.user,
            "Env": [f"{key}={value}" for key, value in sorted(settings.environ.items())],
            "Entrypoint": [settings.entrypoint],
            "WorkingDir": "/",
            "ExposedPorts": {f"{port}/tcp": {} for port in settings.ports},
            "StopSignal": "SIGTERM",
            "Labels": dict(settings.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [_diff_id(layer) for layer in layers]},
        "history": [{"created": settings.created, "created_by": layer.made_by} for layer in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add_json(config, CONFIG),
        "layers": [layout.add(compress(layer.content), LAYER) for layer in layers],
        "annotations": dict(settings.labels),
    }
    return {**layout.add_json(manifest, MANIFEST), "platform": platform}


def add_index(
    layout: Layout, images: Sequence[Descriptor], labels: Mapping[str, str], name: str
) -> Descriptor:
    """Add the index of platforms, and let the layout lead to it under the name of an image."""
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": list(images),
        "annotations": dict(labels),
    }
    found = layout.add_json(index, INDEX)
    names = {
        # The tag is what tools find it by; containerd takes the whole name.
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        "io.containerd.image.name": name,
    }
    layout.entries.append({**found, "annotations": names})
    return found


def attach(layout: Layout, subject: Descriptor, content: bytes, media_type: str) -> Descriptor:
    """Add a document that refers to an image, as registries list referrers."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": media_type,
        "config": layout.add(b"{}", EMPTY),
        "layers": [layout.add(content, media_type)],
        "subject": {key: subject[key] for key in ("mediaType", "digest", "size")},
    }
    found = {**layout.add_json(manifest, MANIFEST), "artifactType": media_type}
    layout.entries.append(found)
    return found


def _diff_id(layer: Layer) -> str:
    return f"sha256:{hashlib.sha256(layer.content).hexdigest()}"
