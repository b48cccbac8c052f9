"""Which credential of a pull secret is for a repository: chosen as the kubelet does.

A key is a host, perhaps with a port and the beginning of a path; `*`, `?` and `[a-z]` stand in its
labels as in names of files, and `*` never for more than one label. Scheme and `/v1/` or `/v2/`
do not count. Pure; how secrets are read is decided in `pull_secret`, what is sent to a
registry in `tokens`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.reference import DOCKER_HUB, DOCKER_HUB_ALIASES, Repository

# No label of a host is longer; a pattern that is would only cost time.
_LONGEST_LABEL: Final = 63
_API_PATHS: Final = ("/v1", "/v2")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringEntry:
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


@dataclass(frozen=True, slots=True)
class Keyring:
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
