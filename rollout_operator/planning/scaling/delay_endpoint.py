"""Where the pods of a set are asked for their delayed downscale.

Decides what of the annotated URL may become part of a request (DELAY-04, D-27): all of it but its
host, which is that of each pod, so that whatever a tenant writes reaches nothing but the pods of
its own set. Whom to ask, and whether a delay is wanted at all, is left to `delays`.
"""

import re
from dataclasses import dataclass
from typing import Final

from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import DOWNSCALE_DELAY_URL
from rollout_operator.model.objects import Pod
from rollout_operator.planning.downscales.endpoint import (
    LARGEST_PORT,
    is_port,
    judge_service,
    plan_place,
    show,
)

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# Request lines of 8 KiB are read by every server; the names of a path rarely have a hundred.
_LONGEST_URL: Final = 1024

# All that can be seen in ASCII. A backslash is a slash to some parsers, and to others it is not.
_SEEN: Final = re.compile(r"[!-\[\]-~]*")
_URL: Final = re.compile(r"([A-Za-z]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._~!$&'()*+,;=-]*")
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"%([01][0-9A-Fa-f]|7[Ff])")
# What a path means once somebody has decoded it.
_MEANT: Final = {"%2e": ".", "%2f": "/", "%5c": "/"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayTarget:
    """What the endpoints of all pods of a set share, checked."""

    scheme: str
    port: int
    """As in the URL, or the default of the scheme."""
    shows_port: bool
    """Whether the URL names a port."""
    path: str
    """As written, without its first slash."""
    query: str
    service: str


@dataclass(frozen=True, slots=True)
class _Url:
    """The parts of a URL, as written."""

    scheme: str
    authority: str
    path: str
    query: str
    fragment: str

    @property
    def host(self) -> str:
        return self.authority[: len(self.authority) - len(self.port)]

    @property
    def port(self) -> str:
        """Return the port with its colon, empty where there is none."""
        found = re.search(r":[^:\]]*\Z", self.authority)
        return found[0] if found else ""


def plan_delay_target(url: str, service_name: str) -> DelayTarget | str:
    """Return how the pods of a set are to be asked, or why they cannot be.

    The host of `url` may be anything, or nothing: pods have their own.
    """
    parts = _split(url)
    problem = parts if isinstance(parts, str) else _judge(parts)
    if problem:
        return f"the {DOWNSCALE_DELAY_URL} annotation {problem}: {show(_without_user(url))}"
    assert isinstance(parts, _Url)  # else there was a problem
    problem = judge_service(service_name)
    if problem:
        return problem
    port = parts.port.removeprefix(":")
    return DelayTarget(
        scheme=parts.scheme,
        port=int(port) if port else DEFAULT_PORTS[parts.scheme],
        shows_port=bool(port),
        path=parts.path.removeprefix("/"),
        query=parts.query,
        service=service_name,
    )


def plan_delay_endpoint(pod: Pod, target: DelayTarget, cluster_domain: str) -> Endpoint | str:
    """Return where one pod is asked, or why it cannot be.

    `cluster_domain` is the flag as given; its dot at the end stays part of the host.
    """
    place = plan_place(pod, target.service, cluster_domain)
    if isinstance(place, str):
        return place
    return Endpoint(
        pod=pod.name,
        uid=pod.uid,
        ip=place.ip,
        host=place.host,
        port=target.port,
        path=target.path,
        scheme=target.scheme,
        query=target.query,
        shows_port=target.shows_port,
    )


def _split(text: str) -> _Url | str:
    """Return the parts of a URL, or what is wrong with the whole."""
    # The length first: texts of megabytes are not worth a look.
    if len(text) > _LONGEST_URL:
        return f"is longer than {_LONGEST_URL} characters"
    if not _SEEN.fullmatch(text):
        return "has a blank or another character that stands in no URL"
    found = _URL.fullmatch(text)
    if found is None or found[1].lower() not in DEFAULT_PORTS:
        return "is no http or https URL"
    scheme, authority, path, query, fragment = found.groups(default="")
    return _Url(scheme.lower(), authority, path, query, fragment)


def _judge(url: _Url) -> str:
    """Return what is wrong, empty where nothing is; so do the others of this name."""
    if "@" in url.authority:
        return "has a user, and pods are told no credentials"
    if not _HOST.fullmatch(url.host):
        return "has a host that is none"
    if url.port and not is_port(url.port.removeprefix(":")):
        return f"has no port from 1 to {LARGEST_PORT}"
    if url.fragment:
        return "has a fragment, which nobody would be sent"
    return _judge_path(url.path) or _judge_escapes(url.path + url.query)


def _judge_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        return "has a path with characters that must be escaped"
    meant = path.lower()
    for escape, char in _MEANT.items():
        meant = meant.replace(escape, char)
    # A dot segment is resolved by whoever reads it first: `a/../b` may be `b` to a proxy.
    return "" if {".", ".."}.isdisjoint(meant.split("/")) else "has a path with . or .. in it"


def _judge_escapes(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        return "has a % that begins no escape"
    return "has an escaped control character" if _CONTROL.search(text) else ""


def _without_user(text: str) -> str:
    """Return a URL for messages: what may be a password is in none (SI-23)."""
    before, at, rest = text.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    return f"{scheme if slashes else ''}{slashes}***@{rest}" if at else text
