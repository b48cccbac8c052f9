"""What a registry says a tag is: its digest, by the protocol that all registries speak."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from release.image.oci import INDEX, MANIFEST

_SECONDS: Final = 30
_DOCKER: Final = "application/vnd.docker.distribution.manifest"
_ACCEPTED: Final = (INDEX, MANIFEST, f"{_DOCKER}.list.v2+json", f"{_DOCKER}.v2+json")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"^(?P<host>[^/]+)/(?P<repository>[^:@]+):(?P<tag>[\w.-]+)(?:@.*)?$")
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
# Docker's hub answers under another name than its images have.
_HOSTS: Final = {"docker.io": "registry-1.docker.io"}


class RegistryError(Exception):
    """The registry did not tell; the text says why."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of one repository."""

    host: str
    repository: str
    tag: str

    @classmethod
    def parse(cls, name: str) -> "Tag":
        """Read `host/repository:tag`; a digest after it is not looked at. Raises RegistryError."""
        found = _NAME.match(name)
        if found is None:
            raise RegistryError(f"{name} is not host/repository:tag")
        return cls(found["host"], found["repository"], found["tag"])


def fetch_digest(name: str, *, scheme: str = "https") -> str:
    """Return the digest of what a tag names, which is a list of platforms. Raises RegistryError."""
    tag = Tag.parse(name)
    host = _HOSTS.get(tag.host, tag.host)
    url = f"{scheme}://{host}/v2/{tag.repository}/manifests/{tag.tag}"
    try:
        headers = _ask_with_token(url, {"Accept": ", ".join(_ACCEPTED)})
    except OSError as error:
        raise RegistryError(f"{name}: {error}") from error
    digest = headers.get("docker-content-digest", "")
    if not _DIGEST.fullmatch(digest):
        raise RegistryError(f"{name}: the registry names no digest")
    return digest


def _ask_with_token(url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Ask as nobody, and again with the token that the answer leads to."""
    try:
        return _ask(url, headers)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 401:
                raise
            token = _fetch_token(error.headers.get("WWW-Authenticate", ""))
    return _ask(url, {**headers, "Authorization": f"Bearer {token}"})


def _ask(url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    request = urllib.request.Request(url, headers=dict(headers), method="HEAD")  # noqa: S310
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        return {key.lower(): value for key, value in answer.headers.items()}


def _fetch_token(challenge: str) -> str:
    """Ask for the token that everybody gets."""
    asked = dict(_CHALLENGE.findall(challenge))
    realm = asked.pop("realm", "")
    if not realm.startswith(("https://", "http://127.0.0.1:")):
        raise RegistryError(f"the registry wants another proof than a token: {challenge}")
    url = f"{realm}?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310
        body = json.load(answer)
    return str(body.get("token") or body.get("access_token"))
