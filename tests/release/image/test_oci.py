"""The archive of an image: every blob is what its digest says, and everything is reached."""

import gzip
import hashlib
import io
import json
import tarfile
from typing import Any

from release.image.oci import Layer, Layout, Settings, add_image, add_index, attach

SETTINGS = Settings(
    entrypoint="/usr/bin/it",
    user="65532:65532",
    environ={"B": "2", "A": "1"},
    ports=(8001,),
    labels={"org.opencontainers.image.title": "it"},
    created="1970-01-01T00:00:07Z",
)
NAME = "registry.example.org/it:1.2.3"


def make() -> bytes:
    """Return the archive of an image for two platforms, with a document for one and for both."""
    layout = Layout()
    images = [
        add_image(
            layout,
            [Layer(content=b"base", made_by="us"), Layer(content=one.encode(), made_by="us")],
            SETTINGS,
            one,
        )
        for one in ("amd64", "arm64")
    ]
    attach(layout, images[0], b"{}\n", "application/vnd.cyclonedx+json")
    attach(layout, add_index(layout, images, SETTINGS.labels, NAME), b"[]\n", "application/x")
    return layout.pack(epoch=7)


def read(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {each.name: tar.extractfile(each) for each in tar if each.isfile()}
        return {name: content.read() for name, content in files.items() if content}


def follow(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return what a descriptor points to, checked."""
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def test_dep27_made_again_it_has_the_same_bytes() -> None:
    """DEP-27."""
    assert make() == make()


def test_each_platform_is_reached_with_its_layers() -> None:
    """DEP-22: by the tag; digests of layers are of what is in them, and of what is stored."""
    files = read(make())
    entries = json.loads(files["index.json"])["manifests"]
    (entry,) = (one for one in entries if "annotations" in one)
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1.2.3"
    assert entry["annotations"]["io.containerd.image.name"] == NAME
    reached = {entry["digest"]}
    platforms = {}
    for image in json.loads(follow(files, entry))["manifests"]:
        manifest = json.loads(follow(files, image))
        config = json.loads(follow(files, manifest["config"]))
        contents = [gzip.decompress(follow(files, one)) for one in manifest["layers"]]
        assert contents == [b"base", image["platform"]["architecture"].encode()]
        assert config["rootfs"]["diff_ids"] == [
            f"sha256:{hashlib.sha256(one).hexdigest()}" for one in contents
        ]
        platforms[image["platform"]["architecture"]] = config["config"]
        reached |= {image["digest"], manifest["config"]["digest"]}
        reached |= {one["digest"] for one in manifest["layers"]}

    assert platforms.keys() == {"amd64", "arm64"}
    assert platforms["amd64"]["Env"] == ["A=1", "B=2"]
    assert platforms["amd64"]["User"] == "65532:65532"
    for referrer in (one for one in entries if "annotations" not in one):
        manifest = json.loads(follow(files, referrer))
        assert manifest["subject"]["digest"] in reached
        assert manifest["artifactType"] == referrer["artifactType"]
        reached |= {referrer["digest"], manifest["config"]["digest"]}
        reached |= {one["digest"] for one in manifest["layers"]}
    # Nothing is in it that nothing leads to.
    blobs = {name.removeprefix("blobs/").replace("/", ":") for name in files if "blobs" in name}
    assert blobs == reached
