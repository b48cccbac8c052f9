"""Manifests pushed as `flux push artifact` pushes them: one archive, in media types of Flux."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from typing import Final

from tests.oci.registries import MANIFEST, labels
from tests.world.registry import push, push_bytes

CONFIG: Final = "application/vnd.cncf.flux.config.v1+json"
CONTENT: Final = "application/vnd.cncf.flux.content.v1.tar+gzip"
CREATED: Final = "2026-01-02T03:04:05Z"


def push_manifests(host: str, tag: str, files: Mapping[str, str]) -> str:
    """Push files by their names, and return the digest of the manifest."""
    archive = _pack(files)
    unpacked = hashlib.sha256(gzip.decompress(archive)).hexdigest()
    config = (
        f'{{"created":"{CREATED}","architecture":"","os":"","config":{{}},'
        f'"rootfs":{{"type":"layers","diff_ids":["sha256:{unpacked}"]}}}}'
    )
    document = {
        "config": push_bytes(host, config.encode(), CONFIG),
        "layers": [push_bytes(host, archive, CONTENT)],
        "annotations": labels(created=CREATED, revision=f"{tag}@sha1:0", source="tests"),
    }
    return str(push(host, tag, document, MANIFEST)["digest"])


def _pack(files: Mapping[str, str]) -> bytes:
    """Return an archive that is the same for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in sorted(files.items()):
            body = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return gzip.compress(packed.getvalue(), mtime=0)
