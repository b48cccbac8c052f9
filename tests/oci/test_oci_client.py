"""What is read of a release, from where, and how often (REL-37, RELB-01, RELB-30)."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from rollout_operator.model.releases import ReleaseMetadata
from rollout_operator.oci.exchange import RegistryDistrusted, ReleaseNotFound
from tests.oci.registries import (
    CONFIG,
    INDEX,
    MANIFEST,
    NAME,
    FakeRegistry,
    Reader,
    access,
    labels,
    refuse,
)

DOCKER = "application/vnd.docker"
ALL = labels(
    version="1.0.0", revision="main@1", source="https://x/y", title="App",
    description="An app", created="2026-01-02T03:04:05Z",
)  # fmt: skip
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = {"version": "1.0.0", "revision": "main@1", "source": "https://x/y", "title": "App",
        "description": "An app", "created": CREATED}  # fmt: skip


async def read(reader: Reader, registry: FakeRegistry, tag: str = "1.0.0") -> ReleaseMetadata:
    return await reader.client.fetch_release(registry.image(tag), access(registry))


def descriptor(digest: str, kind: str, **more: object) -> Mapping[str, object]:
    return {"digest": digest, "mediaType": kind, "size": 1, **more}


def platform(digest: str, os: str = "linux") -> Mapping[str, object]:
    return descriptor(digest, MANIFEST, platform={"os": os, "architecture": "amd64"})


async def test_annotations_of_a_manifest_say_it_all(registry: FakeRegistry, reader: Reader) -> None:
    """REL-37: no config is fetched where nothing is missing."""
    config = descriptor(f"sha256:{'0' * 64}", CONFIG)
    document = {"mediaType": MANIFEST, "config": config, "layers": [], "annotations": ALL}
    digest = registry.push("1.0.0", document)

    found = await read(reader, registry)

    assert found == ReleaseMetadata(digest=digest, artifact_type=CONFIG, **FULL)  # type: ignore[arg-type]  # fields by name
    assert registry.paths() == ["HEAD manifests/1.0.0", f"GET manifests/{digest}"]
    assert reader.results == ["ok"]


async def test_a_digest_is_read_once(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-01: the digest of the tag is read, and what that names does not change."""
    config = descriptor(f"sha256:{'0' * 64}", CONFIG)
    document = {"mediaType": MANIFEST, "config": config, "annotations": ALL}
    registry.push("1.0.0", document)
    first = await read(reader, registry)
    registry.seen.clear()
    registry.push("1.0.1", document)

    assert await read(reader, registry) == await read(reader, registry, "1.0.1") == first
    assert registry.paths() == ["HEAD manifests/1.0.0", "HEAD manifests/1.0.1"]


@pytest.mark.parametrize(
    ("annotations", "of_config", "image_labels", "expected"),
    [
        ({}, {}, {}, {}),
        (labels(version="1"), labels(version="2", title="b"), labels(title="c", source="d"),
         {"version": "1", "title": "b", "source": "d"}),
        (labels(version="", title="a"), labels(version="2"), {}, {"version": "2", "title": "a"}),
        (labels(created="yesterday"), labels(created="2026-01-02T03:04:05Z"), {},
         {"created": CREATED}),
        (labels(created="1970-01-01T00:00:00Z"), {}, ALL, FULL),
        ({}, {}, ALL, FULL),
    ],
)  # fmt: skip
async def test_the_first_text_that_is_not_empty_counts(
    registry: FakeRegistry,
    reader: Reader,
    annotations: Mapping[str, str],
    of_config: Mapping[str, str],
    image_labels: Mapping[str, str],
    expected: Mapping[str, object],
) -> None:
    """REL-37, RELB-30: manifest, descriptor of the config, labels."""
    blob = registry.push_blob({"config": {"Labels": image_labels}})
    config = descriptor(blob, CONFIG, annotations=of_config)
    document = {"mediaType": MANIFEST, "config": config, "annotations": annotations}
    digest = registry.push("1.0.0", document)

    found = await read(reader, registry)

    assert found == ReleaseMetadata(digest=digest, artifact_type=CONFIG, **expected)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize("is_docker", [False, True])
async def test_an_image_for_several_platforms(
    registry: FakeRegistry, reader: Reader, is_docker: bool
) -> None:
    """RELB-30: the index, then the first platform, which no attestation is."""
    manifest_kind = f"{DOCKER}.distribution.manifest.v2+json" if is_docker else MANIFEST
    index_kind = f"{DOCKER}.distribution.manifest.list.v2+json" if is_docker else INDEX
    blob = registry.push_blob({"created": "2026-01-02T03:04:05Z", "config": {"Labels": ALL}})
    config = descriptor(blob, f"{DOCKER}.container.image.v1+json" if is_docker else CONFIG)
    child = registry.push(
        "child", {"mediaType": manifest_kind, "config": config, "annotations": labels(title="B")},
        manifest_kind,
    )  # fmt: skip
    document = {
        "mediaType": index_kind,
        "annotations": labels(version="from the index"),
        "manifests": [
            platform(f"sha256:{'0' * 64}", "unknown"),
            {**platform(child), "mediaType": manifest_kind},
            platform(f"sha256:{'1' * 64}"),
        ],
    }
    digest = registry.push("1.0.0", document, index_kind)

    found = await read(reader, registry)

    expected = {**FULL, "version": "from the index", "title": "B"}
    assert found == ReleaseMetadata(digest=digest, artifact_type=index_kind, **expected)  # type: ignore[arg-type]  # fields by name
    assert registry.paths()[-1] == f"GET blobs/{blob}"


async def test_a_copy_may_lack_a_platform(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-30: what the index says itself is known all the same."""
    document = {"mediaType": INDEX, "manifests": [platform(f"sha256:{'0' * 64}")],
                "annotations": labels(version="1")}  # fmt: skip
    registry.push("1.0.0", document, INDEX)

    assert (await read(reader, registry)).version == "1"


async def test_when_a_config_was_made_is_taken_last(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-30: except where the time stands for none."""
    for tag, time, expected in (
        ("1.0.0", "2026-01-02T03:04:05Z", CREATED),
        ("1.0.1", "1970-01-01T00:00:00Z", None),
        ("1.0.2", "0001-01-01T00:00:00Z", None),
    ):
        blob = registry.push_blob({"created": time, "config": {}})
        document = {"mediaType": MANIFEST, "config": descriptor(blob, CONFIG)}
        registry.push(tag, document)
        assert (await read(reader, registry, tag)).created == expected


async def test_an_artifact_has_no_labels(registry: FakeRegistry, reader: Reader) -> None:
    """REL-37: its config is not fetched, and its type is what it says."""
    config = descriptor(f"sha256:{'0' * 64}", "application/vnd.cncf.flux.config.v1+json")
    for tag, more, kind in (
        ("1.0.0", {}, "application/vnd.cncf.flux.config.v1+json"),
        ("1.0.1", {"artifactType": "application/x"}, "application/x"),
    ):
        registry.push(tag, {"mediaType": MANIFEST, "config": config, **more})
        assert (await read(reader, registry, tag)).artifact_type == kind
    assert not [path for path in registry.paths() if "blobs" in path]


@pytest.mark.parametrize("status", [400, 405, 501])
async def test_a_proxy_that_knows_no_head(
    registry: FakeRegistry, reader: Reader, status: int
) -> None:
    """RELB-30: the manifest is read by its tag, and its digest computed."""
    digest = registry.push("1.0.0", {"config": {"mediaType": "application/x"}})
    registry.guard = lambda request: (
        refuse(status, "UNSUPPORTED") if request.method == "HEAD" else None
    )

    assert (await read(reader, registry)).digest == digest


async def test_an_image_is_read_by_its_digest(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-30: the tag beside it is not read."""
    digest = registry.push("1.0.0", {"config": {}})
    image = registry.image("other", digest)

    assert (await reader.client.fetch_release(image, access(registry))).digest == digest


async def test_a_tag_that_is_absent_is_named(registry: FakeRegistry, reader: Reader) -> None:
    with pytest.raises(ReleaseNotFound) as caught:
        await read(reader, registry, "2.0.0")
    assert str(caught.value) == (
        f"cannot read tag 2.0.0 of {NAME} in registry {registry.host}: there is no such tag or "
        "repository (HTTP status 404); push it, or correct its name"
    )
    assert reader.results == ["not_found"]


@pytest.mark.parametrize(
    ("document", "kind", "problem"),
    [
        ([], MANIFEST, "no JSON of a manifest"),
        ({"annotations": {"org.opencontainers.image.title": 1}}, MANIFEST, "no JSON of a manifest"),
        ({"schemaVersion": 1}, "application/vnd.docker.distribution.manifest.v1+json", "no kind"),
        ({"config": {}}, "text/html", "no kind"),
        ({"config": {}, "manifests": []}, MANIFEST, "not of the kind that it says"),
        ({"config": {}, "manifests": []}, INDEX, "not of the kind that it says"),
        ({"mediaType": INDEX}, MANIFEST, "not of the kind that it says"),
        ({"layers": []}, MANIFEST, "not of the kind that it says"),
        ({"config": {"mediaType": CONFIG, "digest": "../x"}}, MANIFEST, '"../x" is no digest'),
        ({"manifests": [{"mediaType": MANIFEST, "digest": "md5:0"}]}, INDEX, "is no digest"),
    ],
)
async def test_what_is_no_manifest_is_refused(
    registry: FakeRegistry, reader: Reader, document: Mapping[str, object], kind: str, problem: str
) -> None:
    """RELB-30: also where two readers of it would see two images."""
    registry.push("1.0.0", document, kind)
    with pytest.raises(RegistryDistrusted) as caught:
        await read(reader, registry)
    assert problem in str(caught.value)


async def test_long_texts_are_cut(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-30: they go into the status of a Rollout."""
    registry.push("1.0.0", {"config": {}, "annotations": labels(description="x" * 100_000)})

    assert len((await read(reader, registry)).description) == 1024
