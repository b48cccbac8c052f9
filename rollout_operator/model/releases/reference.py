"""Names of images: `ghcr.io/team/app:1.2.3@sha256:...`, read as container engines read them.

Decides which part of a name is the registry, what is meant where it names none, and which names no
registry can hold. What is refused here is never sent anywhere: a name that passes has nothing in
it that leads out of the path of a URL. Parsers raise InvalidInput, which quotes the name.
"""

import re
from typing import Final, NamedTuple

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote

DOCKER_HUB: Final = "docker.io"
# It answers under another name than the names of images have.
_DOCKER_HUB_HOST: Final = "registry-1.docker.io"
DOCKER_HUB_ALIASES: Final = (DOCKER_HUB, "index.docker.io", _DOCKER_HUB_HOST)
"""The names under which people write down credentials of Docker Hub."""

_LONGEST_NAME: Final = 255
_LONGEST_HOST: Final = 253
_LARGEST_PORT: Final = 65535
# Nothing that is a reference is longer: host, port, name, tag and a digest of 512 bits.
_LONGEST: Final = 1024

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_COMPONENT: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Repository(msgspec.Struct, frozen=True):
    """Where the versions of one image are kept."""

    registry: str
    """Host in small letters, with its port where the name has one."""
    name: str

    @property
    def host(self) -> str:
        """Return which host is called, with its port where the name has one."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}"


class ImageReference(msgspec.Struct, frozen=True):
    """One image; without a tag and a digest any of its repository."""

    repository: Repository
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


class _Split(NamedTuple):
    registry: str
    name: str


def parse_reference(text: str) -> ImageReference:
    """Return the image that a text names. Raises InvalidInput."""
    rest, at, digest = text.partition("@")
    # A colon before the last slash is that of a port.
    name, colon, tag = rest.rpartition(":") if ":" in rest.rpartition("/")[2] else (rest, "", "")
    try:
        if len(text) > _LONGEST:
            raise InvalidInput(f"longer than {_LONGEST} characters")
        return ImageReference(
            _read_repository(name),
            tag=check_tag(tag) if colon else None,
            digest=check_digest(digest) if at else None,
        )
    except InvalidInput as error:
        raise InvalidInput(f"{quote(text)} is no name of an image: {error}") from error


def parse_repository(text: str) -> Repository:
    """Return the repository that a text names without tag and digest. Raises InvalidInput."""
    reference = parse_reference(text)
    if reference.tag is not None or reference.digest is not None:
        raise InvalidInput(f"{quote(text)} is no name of a repository: it has a tag or a digest")
    return reference.repository


def check_tag(text: str) -> str:
    """Return a tag as it is. Raises InvalidInput for what is none."""
    if not _TAG.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is no tag: up to 128 of letters, digits, `_`, `.`, `-`")
    return text


def check_digest(text: str) -> str:
    """Return a digest as it is. Raises InvalidInput for what is none that can be verified."""
    if not _DIGEST.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is no digest by sha256 or sha512")
    return text


def _read_repository(text: str) -> Repository:
    registry, name = _split(text)
    if registry in DOCKER_HUB_ALIASES[:2]:
        registry = DOCKER_HUB
        name = name if "/" in name else f"library/{name}"
    if len(name) > _LONGEST_NAME:
        raise InvalidInput(f"a repository has at most {_LONGEST_NAME} characters")
    for component in name.split("/"):
        if not _COMPONENT.fullmatch(component):
            raise InvalidInput(
                f"{quote(component)} is no part of a repository: small letters and digits, "
                "with single separators between them"
            )
    return Repository(_check_registry(registry), name)


def _split(text: str) -> _Split:
    """Return the registry and the rest. A first part that looks like no host is of Docker Hub."""
    first, slash, rest = text.partition("/")
    if "://" in text:
        raise InvalidInput("it has no scheme such as https://")
    host = first.lower()
    is_host = slash and (set(host) & set(".:[") or host == "localhost")
    return _Split(host, rest) if is_host else _Split(DOCKER_HUB, text)


def _check_registry(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or len(match["host"]) > _LONGEST_HOST:
        raise InvalidInput(f"{quote(text)} is no host")
    if match["port"] is not None and not 1 <= int(match["port"]) <= _LARGEST_PORT:
        raise InvalidInput(f"{match['port']} is no port")
    return text
