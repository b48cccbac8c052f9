"""Put the image together for each platform, with its bills of materials and its provenance."""

import importlib.metadata
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from release.archives import pack_tree
from release.image.debian import (
    ARCHITECTURES,
    LOCK,
    SUITE,
    BaseError,
    Package,
    fetch_base,
    read_base,
)
from release.image.oci import Descriptor, Layer, Layout, Settings, add_image, add_index, attach
from release.image.provenance import HOME, MEDIA_TYPE, render_statement
from release.image.rootfs import (
    add_operator,
    architecture_here,
    close,
    compile_base,
    unpack_base,
    write_interpreter,
)
from release.lock import read_lock
from release.sbom import LICENCE, Component, describe_pins, describe_subject, render_sbom
from release.source import Source, copy_source

CYCLONEDX: Final = "application/vnd.cyclonedx+json"
USER: Final = "65532:65532"
LAUNCHER: Final = "/usr/bin/rollout-operator"
_PORTS: Final = (8001, 8443, 8444)
_DESCRIPTION: Final = (
    "Rolling updates for stateful applications spread over availability zones, one zone at a time"
)
_ENVIRON: Final = {
    "PATH": "/usr/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What an image for one platform is put together from."""

    architecture: str
    packages: tuple[Package, ...]
    base: Path
    """The folder of the base, and, apart from it, of what comes on top."""
    added: Path


def build_image(source: Source, out: Path, scratch: Path, name: str) -> list[Path]:
    """Write archive, bills and statement into `out`; return them. Raises BaseError."""
    tree = scratch / "tree"
    copy_source(source, tree)
    layout = Layout()
    labels = map_labels(source)
    written: list[Path] = []
    images: list[Descriptor] = []
    platforms = assemble(tree, scratch)
    for platform in platforms:
        image = add_image(layout, list_layers(platform, source.epoch), _settings(source, labels),
                          platform.architecture)  # fmt: skip
        images.append(image)
        bill = out / f"rollout-operator-{source.version}-linux-{platform.architecture}.cdx.json"
        bill.write_text(render_bill(source, platform, image))
        attach(layout, image, bill.read_bytes(), CYCLONEDX)
        written.append(bill)
    index = add_index(layout, images, labels, name)
    statement = out / f"rollout-operator-{source.version}.provenance.json"
    statement.write_bytes(_render_statement(source, index, images, platforms))
    attach(layout, index, statement.read_bytes(), MEDIA_TYPE)
    archive = out / f"rollout-operator-{source.version}.oci.tar"
    archive.write_bytes(layout.pack(source.epoch))
    return [archive, *written, statement]


def assemble(tree: Path, scratch: Path) -> list[Platform]:
    """Make the file systems of all platforms below `scratch`. Raises BaseError."""
    locked = read_base(tree / LOCK)
    files = fetch_base(locked, find_cache(), scratch / "apt")
    platforms = []
    for architecture in ARCHITECTURES:
        base = scratch / architecture / "base"
        base.mkdir(parents=True)
        packages = tuple(one for one in locked if one.architecture in (architecture, "all"))
        unpack_base(base, {one: files[one] for one in packages})
        platforms.append(
            Platform(
                architecture=architecture,
                packages=packages,
                base=base,
                added=scratch / architecture / "added",
            )
        )
    (here,) = (one.base for one in platforms if one.architecture == architecture_here())
    python = write_interpreter(here, scratch / "python3.13")
    for platform in platforms:
        compile_base(platform.base, python)
        close(platform.base)
        add_operator(platform.added, tree, platform.architecture, python)
    return platforms


def list_layers(platform: Platform, epoch: int) -> list[Layer]:
    """Return the base, which stays the same over releases, and the operator. Raises BaseError."""
    made_by = ("Debian packages of image/base.lock", "image/assemble")
    layers = [
        Layer(content=pack_tree(root, root.rglob("*"), epoch), made_by=by)
        for root, by in zip((platform.base, platform.added), made_by, strict=True)
    ]
    # Byte code that names the folder of one build is not what another one makes.
    if any(str(platform.base.parent).encode() in layer.content for layer in layers):
        raise BaseError(f"the image for {platform.architecture} names {platform.base.parent}")
    return layers


def map_labels(source: Source) -> Mapping[str, str]:
    """DEP-22: what the image says of itself."""
    said = {
        "title": "rollout-operator",
        "description": _DESCRIPTION,
        "source": HOME,
        "licenses": LICENCE,
        "version": source.version,
        "revision": source.revision,
        "created": _time_of(source),
        "base.name": f"debian:{SUITE}",
    }
    return {f"org.opencontainers.image.{key}": value for key, value in said.items()}


def render_bill(source: Source, platform: Platform, image: Descriptor) -> str:
    """Return what the image for one platform holds: what is there, and not what was meant."""
    library = platform.added / "usr" / "lib" / "rollout-operator"
    there = {
        canonicalize_name(one.metadata["Name"])
        for one in importlib.metadata.distributions(path=[str(library)])
    }
    pins = [pin for pin in read_lock(source.root / "requirements.lock") if pin.name in there]
    assert {pin.name for pin in pins} == there, "nothing is installed that is not locked"
    digest = image["digest"].replace(":", "%3A")
    purl = f"pkg:oci/rollout-operator@{digest}?arch={platform.architecture}"
    base = [
        Component(name=one.name, version=one.version, purl=one.purl, sha256=one.sha256)
        for one in platform.packages
    ]
    return render_sbom(
        describe_subject(source, pins, purl), [*describe_pins(pins), *base], source.epoch
    )


def find_cache() -> Path:
    """Return where packages are kept between two runs, each under its digest."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (cache if cache.is_dir() else Path(tempfile.gettempdir())) / "rollout-operator-image"


def _settings(source: Source, labels: Mapping[str, str]) -> Settings:
    return Settings(
        entrypoint=LAUNCHER,
        user=USER,
        environ=_ENVIRON,
        ports=_PORTS,
        labels=labels,
        created=_time_of(source),
    )


def _render_statement(
    source: Source, index: Descriptor, images: Sequence[Descriptor], platforms: Sequence[Platform]
) -> bytes:
    names = ("rollout-operator", *(f"rollout-operator/{one.architecture}" for one in platforms))
    digests = (one["digest"].removeprefix("sha256:") for one in (index, *images))
    packages = sorted({each for one in platforms for each in one.packages})
    return render_statement(source, dict(zip(names, digests, strict=True)), packages)


def _time_of(source: Source) -> str:
    return datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
