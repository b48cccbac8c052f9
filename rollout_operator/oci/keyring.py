"""Pull secrets of Kubernetes, and which credential is for a repository: chosen as the kubelet does.

They are `kubernetes.io/dockerconfigjson` and `.../dockercfg`. A key is a host, perhaps with a port
and the beginning of a path; `*`, `?` and `[a-z]` stand in its labels as in names of files, and `*`
never for more than one label. Scheme and `/v1/` or `/v2/` do not count. An entry that cannot be
read stops only the repositories that it is for. No error holds a value out of a secret: keys are
hosts, and are all that is quoted. Pure; what is sent to a registry is decided in `tokens`.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.reference import DOCKER_HUB, DOCKER_HUB_ALIASES, Repository
from rollout_operator.model.units import Confidential, quote

# No label of a host is longer; a pattern that is would only cost time.
_LONGEST_LABEL: Final = 63
_API_PATHS: Final = ("/v1", "/v2")

T = TypeVar("T")

DOCKER_CONFIG_JSON: Final = ".dockerconfigjson"
DOCKER_CFG: Final = ".dockercfg"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCredential:
    """A credential for a registry. Its texts stand in no log and no repr."""

    key: str
    """The key of its entry in the pull secret, for people."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """For tokens of the registry's token server, without a password."""
    registry_token: str = field(default="", repr=False)
    """Such a token itself."""


class KeyringEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a pull secret: a credential, or what is wrong with it."""

    host: str
    """With its port; a pattern."""
    path: str
    """How the repository begins; empty for all."""
    credential: RegistryCredential | None
    problem: str = ""

    def matches(self, host: str, name: str) -> bool:
        """Return whether this entry is for a repository of this host and name."""
        # A prefix of the text, as the kubelet has it: `team` is also for `team-b`.
        return f"/{name}".startswith(self.path) and _match_host(self.host, host)


class Keyring(msgspec.Struct, frozen=True):
    """All entries of a pull secret."""

    entries: tuple[KeyringEntry, ...] = ()

    def choose(self, repository: Repository) -> RegistryCredential | None:
        """Return the credential for a repository, None for none: the most specific one.

        Raises InvalidInput, which names its key, where the credential cannot be read.
        """
        best = max(self._list_matches(repository), key=_rank, default=None)
        if best is None:
            return None
        if best.problem:
            raise InvalidInput(best.problem)
        return best.credential

    def _list_matches(self, repository: Repository) -> Iterator[KeyringEntry]:
        of_hub = repository.registry == DOCKER_HUB
        hosts = DOCKER_HUB_ALIASES if of_hub else (repository.registry,)
        for entry in self.entries:
            if any(entry.matches(host, repository.name) for host in hosts):
                yield entry


def split_key(key: str) -> tuple[str, str]:
    """Return host and path of a key: `https://index.docker.io/v1/` is the host alone."""
    for scheme in ("https://", "http://"):
        key = key.removeprefix(scheme)
    host, slash, rest = key.partition("/")
    path = f"{slash}{rest}"
    for api in _API_PATHS:
        if path == api or path.startswith(f"{api}/"):
            path = path.removeprefix(api)
    return host.lower(), "" if path == "/" else path


def _rank(entry: KeyringEntry) -> str:
    """Return what the kubelet sorts by, the last first: hosts before patterns, long before short.

    Of equal entries `max` takes the first.
    """
    return f"{entry.host}{entry.path}"


def _match_host(pattern: str, host: str) -> bool:
    pattern_name, pattern_port = _split_port(pattern)
    host_name, host_port = _split_port(host)
    patterns, labels = pattern_name.split("."), host_name.split(".")
    return (
        pattern_port == host_port
        and len(patterns) == len(labels)
        and all(_match_label(*pair) for pair in zip(patterns, labels, strict=True))
    )


def _match_label(pattern: str, label: str) -> bool:
    if pattern == label:
        return True
    # Go negates a class by `^`.
    return len(pattern) <= _LONGEST_LABEL and fnmatchcase(label, pattern.replace("[^", "[!"))


def _split_port(host: str) -> tuple[str, str]:
    # Of `[::1]` the brackets belong to the address.
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


class _Entry(Confidential, msgspec.Struct):
    username: str | None = None
    password: str | None = None
    auth: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class _Config(msgspec.Struct):
    auths: dict[str, msgspec.Raw] | None = None


_CONFIG: Final = msgspec.json.Decoder(_Config)
_ENTRIES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_Entry)


def decode_pull_secret(data: Mapping[str, bytes]) -> Keyring:
    """Return the credentials in the data of a Secret, its values no longer in base64.

    A Secret with neither key has none, and is no error: registries are read without credentials
    (REL-38). Raises InvalidInput where a key is there and does not hold what it should.
    """
    if DOCKER_CONFIG_JSON in data:
        config = _decode(_CONFIG, data[DOCKER_CONFIG_JSON])
        entries = None if config is None else config.auths or {}
    else:
        entries = _decode(_ENTRIES, data[DOCKER_CFG]) if DOCKER_CFG in data else {}
    if entries is None:
        key = DOCKER_CONFIG_JSON if DOCKER_CONFIG_JSON in data else DOCKER_CFG
        raise InvalidInput(f"data[{key}] of the pull secret is no JSON of Docker's credentials")
    read = (_read_entry(key, entry) for key, entry in entries.items())
    return Keyring(tuple(entry for entry in read if entry is not None))


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    """Return the decoded data, None where malformed: errors of the library may quote it."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_entry(key: str, data: msgspec.Raw) -> KeyringEntry | None:
    """Return an entry, None for an entry that says nothing, as those of credential helpers do."""
    host, path = split_key(key)
    shown = f"the pull secret's entry {quote(key)}"
    entry = _decode(_ENTRY, data)
    if entry is None:
        problem = f"{shown} is no JSON object of texts"
        return KeyringEntry(host=host, path=path, credential=None, problem=problem)
    username, password = entry.username or "", entry.password or ""
    if entry.auth:
        pair = _split_auth(entry.auth)
        if pair is None:
            problem = f"{shown}: auth is not `username:password` in base64"
            return KeyringEntry(host=host, path=path, credential=None, problem=problem)
        username, password = pair
    credential = RegistryCredential(
        key=key,
        username=username,
        password=password,
        identity_token=entry.identitytoken or "",
        registry_token=entry.registrytoken or "",
    )
    if credential == RegistryCredential(key=key):
        return None
    return KeyringEntry(host=host, path=path, credential=credential)


def _split_auth(text: str) -> tuple[str, str] | None:
    """Return the two halves, None for what has none. It may lack the padding of base64."""
    plain = text.strip().rstrip("=")
    try:
        decoded = base64.b64decode(f"{plain}{'=' * (-len(plain) % 4)}", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    username, colon, password = decoded.partition(":")
    # Old Docker clients filled it up with zeros.
    return (username, password.strip("\x00")) if colon else None
