"""Pins that are renewed: what a registry says of a tag, and what a mirror has."""

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from release.image.debian import Package, read_base
from release.image.registry import RegistryError, Tag, fetch_digest
from release.image.renew import renew_dockerfile, renew_lock
from tests.code_rules import ROOT

OLD, NEW = (f"sha256:{digit * 64}" for digit in "01")


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves digests to a client that has fetched the token for all."""

    digests: ClassVar[dict[str, str]] = {}

    def do_HEAD(self) -> None:
        """A tag's digest, or where the token is."""
        if self.headers["Authorization"] != "Bearer anonymous":
            self.send_response(401)
            realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="it",scope="pull"'
            self.send_header("WWW-Authenticate", realm)
        elif digest := self.digests.get(self.path):
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self.send_response(200)
            self.send_header("Docker-Content-Digest", digest)
        else:
            self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        """The token."""
        assert self.path == "/token?service=it&scope=pull"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"token": "anonymous"}')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    """The address of a registry with one image."""
    Registry.digests = {"/v2/python/manifests/3.13": NEW, "/v2/a/run/manifests/nonroot": OLD}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_registry_is_read_with_the_token_it_wants(host: str) -> None:
    """SEC-28: and an unknown tag is an error that names it."""
    assert fetch_digest(f"{host}/python:3.13", scheme="http") == NEW
    with pytest.raises(RegistryError, match=re.escape(f"{host}/python:3.14")):
        fetch_digest(f"{host}/python:3.14", scheme="http")


def test_digests_are_written_behind_tags(host: str, tmp_path: Path) -> None:
    """SEC-28: in the Dockerfile and in what the image says of its base; nothing else changes."""
    path = tmp_path / "Dockerfile"
    before = (
        f"# comment\nARG BUILD={host}/python:3.13@{OLD}\nARG RUNTIME={host}/a/run:nonroot\n"
        'FROM ${BUILD}\nARG RUNTIME\nARG RUNTIME_DIGEST=""\n'
    )
    path.write_text(before)

    changed = renew_dockerfile(path, lambda name: fetch_digest(name, scheme="http"))

    assert changed == [
        f"{host}/python:3.13: {OLD} -> {NEW}",
        f"{host}/a/run:nonroot: no digest -> {OLD}",
    ]
    written = before.replace(f"@{OLD}", f"@{NEW}").replace(":nonroot", f":nonroot@{OLD}")
    assert path.read_text() == written.replace('DIGEST=""', f'DIGEST="{OLD}"')
    assert renew_dockerfile(path, lambda name: fetch_digest(name, scheme="http")) == []


def test_the_images_of_the_dockerfile_are_such_names() -> None:
    text = (ROOT / "Dockerfile").read_text()
    names = re.findall(r"^ARG (?:BUILD|RUNTIME)=(\S+)$", text, re.MULTILINE)

    assert [Tag.parse(name).host for name in names] == ["docker.io", "gcr.io"]
    with pytest.raises(RegistryError, match="host/repository:tag"):
        Tag.parse("python")


def test_a_lock_says_what_is_new(tmp_path: Path) -> None:
    """SEC-28."""
    old, new = (
        Package(name="libc6", version=version, architecture="amd64", sha256=digit * 64)
        for version, digit in (("2.41-1", "0"), ("2.41-2", "1"))
    )
    path = tmp_path / "base.lock"

    assert renew_lock(path, [old]) == ["libc6 2.41-1 amd64"]
    assert renew_lock(path, [new, new]) == ["libc6 2.41-2 amd64"]
    assert renew_lock(path, [new]) == []
    assert read_base(path) == [new]
