"""The client on the reference registry of the specification, by password (RELB-29, RT-93)."""

import json
from collections.abc import Iterator

import pytest

from rollout_operator.releases.model.releases import ReleaseMetadata, parse_reference
from rollout_operator.releases.registry import (
    RegistryAccess,
    RegistryDenied,
    RegistryUnreachable,
    ReleaseNotFound,
    decode_pull_secret,
)
from tests.oci.registries import CONFIG, INDEX, MANIFEST, NAME, Reader, labels
from tests.world.registry import PASSWORD, USER, push, push_blob, serving

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("registry")) as host:
        push_tags(host)
        yield host


def push_tags(host: str) -> None:
    """Push an image whose labels stand in its config, and an index of it."""
    config = push_blob(host, {"config": {"Labels": labels(title="App", source="https://x/y")}})
    document = {"config": config, "layers": [], "annotations": labels(revision="main@1")}
    image = push(host, "1.0.0", document, MANIFEST)
    platform = {**image, "platform": {"os": "linux", "architecture": "amd64"}}
    index = {"manifests": [platform], "annotations": labels(version="1.1.0")}
    push(host, "1.1.0", index, INDEX)
    for number in range(3):
        push(host, f"2.{number}.0", document, MANIFEST)


def access(host: str, password: str = PASSWORD) -> RegistryAccess:
    entry = {"username": USER, "password": password}
    data = {".dockerconfigjson": json.dumps({"auths": {f"http://{host}/v2/": entry}}).encode()}
    return RegistryAccess(keyring=decode_pull_secret(data), is_insecure=True)


@pytest.mark.parametrize(
    ("tag", "kind", "version"), [("1.0.0", CONFIG, ""), ("1.1.0", INDEX, "1.1.0")]
)
async def test_a_release_is_read(
    host: str, reader: Reader, tag: str, kind: str, version: str
) -> None:
    """RELB-30, RT-93: with the password of a pull secret, of one platform and of an index."""
    image = parse_reference(f"{host}/{NAME}:{tag}")
    found = await reader.client.fetch_release(image, access(host))

    assert found == ReleaseMetadata(
        digest=found.digest,
        artifact_type=kind,
        version=version,
        revision="main@1",
        source="https://x/y",
        title="App",
    )
    assert found == await reader.client.fetch_release(image, access(host))
    by_digest = parse_reference(f"{host}/{NAME}@{found.digest}")
    assert found == await reader.client.fetch_release(by_digest, access(host))


async def test_what_it_refuses_is_named(host: str, reader: Reader) -> None:
    """RELB-29: no password, a wrong one, no such tag, and no TLS where that is not said."""
    image = parse_reference(f"{host}/{NAME}:1.0.0")
    anonymous, absent = RegistryAccess(is_insecure=True), parse_reference(f"{host}/{NAME}:9.9.9")
    with pytest.raises(RegistryDenied, match="it wants credentials"):
        await reader.client.fetch_release(image, anonymous)
    with pytest.raises(RegistryDenied, match="it does not accept the pull secret's entry"):
        await reader.client.fetch_release(image, access(host, "wrong"))
    with pytest.raises(ReleaseNotFound):
        await reader.client.fetch_release(absent, access(host))
    with pytest.raises(RegistryUnreachable, match="no TLS connection"):
        await reader.client.fetch_release(image, RegistryAccess())
