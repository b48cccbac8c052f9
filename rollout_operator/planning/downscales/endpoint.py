"""Where the pods of a set are called before a downscale.

Decides which port, path and names may become part of a request (D-27): what a tenant writes into an
annotation must reach nothing but the pods of its own set. A review names port and path, a delayed
downscale a URL (DELAY-04), of which all but its host is taken: each pod has its own. Which pods are
called is decided by the callers, how they are called in `pods.client`.
"""

import re
from collections.abc import Collection, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import DOWNSCALE_DELAY_URL, PREPARE_PATH, PREPARE_PORT
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.units import quote

# Digits and letters are spelt out: `\d` and `\w` know those of other scripts, which one parser
# takes for a port and the next does not.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# The flag is the operator's own, and capitals in a domain are legal; a dot may end it (FQDN-02).
_DOMAIN_LABEL: Final = re.compile(_LABEL.pattern, re.IGNORECASE | re.ASCII)

_SCHEMES: Final = ("http", "https")
# Delayed downscales may be called by https; preparing has no way to say so.
_PREPARE_SCHEME: Final = "http"
_LARGEST_PORT: Final = 65535
_LONGEST_PATH: Final = 256
# As in DNS, the dot at the end not counted.
_LONGEST_HOST: Final = 253
# Refusals go into messages and logs, where hundreds of pods may repeat them.
_LONGEST_SHOWN: Final = 200

# Of the URL of a delayed downscale.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Request lines of 8 KiB are read by every server; the names of a path rarely have a hundred.
_LONGEST_URL: Final = 1024
# All that can be seen in ASCII. A backslash is a slash to some parsers, and to others it is not.
_SEEN: Final = re.compile(r"[!-\[\]-~]*")
_URL: Final = re.compile(r"([A-Za-z]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._~!$&'()*+,;=-]*")
_URL_PORT: Final = re.compile(r":[^:\]]*\Z")
_URL_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"%([01][0-9A-Fa-f]|7[Ff])")
# What a path means once it is decoded.
_DECODED: Final = {"%2e": ".", "%2f": "/", "%5c": "/"}

_PATH_RULE: Final = (
    f"letters, digits and . _ ~ - between single slashes, no . or .. alone,"
    f" at most {_LONGEST_PATH} characters"
)


class DelayTarget(Target, frozen=True, kw_only=True):
    """Where the pods of a set are called for their delayed downscale; `path` is as written."""

    query: str = ""
    shows_port: bool = True
    """Whether the URL names a port; where not, it is the default of the scheme."""


class NoTarget(msgspec.Struct, frozen=True):
    """Why the pods of a set cannot be called."""

    problem: str
    is_missing: bool = False
    """Whether something is not set, and not set wrongly."""

    @property
    def sentence(self) -> str:
        """Return the end of the sentence that refuses it: PREP-06 to 08 end with a full stop."""
        return f"{self.problem}." if self.is_missing else self.problem


def plan_target(annotations: Mapping[str, str], service_name: str) -> Target | NoTarget:
    """Return where the pods of a set are to be called, or why they cannot be.

    The port is judged first, then the path, then the name of the Service (PREP-06 to PREP-08).
    """
    port_text = annotations.get(PREPARE_PORT, "")
    path = annotations.get(PREPARE_PATH, "")
    problem = _judge_port(port_text) or _judge_path(path) or _judge_service(service_name)
    if problem:
        return problem
    return Target(port=int(port_text), path=path.lstrip("/"), service=service_name)


def judge_target(target: Target) -> str:
    """Return what is wrong with a target that comes from somewhere else, empty where nothing is."""
    if target.scheme not in _SCHEMES:
        return f"the scheme is none of {', '.join(_SCHEMES)}: {show(target.scheme)}"
    is_plain = not target.path.startswith("/")
    problem = _judge_port(str(target.port)) or _judge_path(target.path if is_plain else "")
    problem = problem or _judge_service(target.service)
    return problem.sentence if problem else ""


def judge_place(target: Target, sts: StatefulSet, ports: Collection[int]) -> str:
    """Return why pods of a set cannot have been called at a place that an annotation names.

    `ports` are those of the containers of the annotated pod. The annotation is not signed: it is
    believed only as far as the set and the pod's own spec say the same. Nothing confirms the path:
    the set may name another path by now.
    """
    if target.scheme != _PREPARE_SCHEME:
        return f"scheme: pods are prepared by {_PREPARE_SCHEME} only: {show(target.scheme)}"
    if target.service != sts.service_name:
        return f"service: it is not the serviceName of the set: {show(target.service)}"
    if target.port not in ports and str(target.port) != sts.annotations.get(PREPARE_PORT):
        return f"port: neither a container of the pod nor the set names it: {target.port}"
    return ""


def plan_delay_target(url: str, service_name: str) -> DelayTarget | NoTarget:
    """Return how the pods of a set are called for a delayed downscale, or why they cannot be.

    The host of `url` may be anything, or nothing: pods have their own.
    """
    parsed = _URL.fullmatch(url) if len(url) <= _LONGEST_URL else None
    scheme, authority, path, query, fragment = parsed.groups(default="") if parsed else [""] * 5
    port = _URL_PORT.search(authority)
    problem = _judge_url(url, scheme.lower())
    problem = problem or _judge_authority(authority, port[0] if port else "")
    if fragment and not problem:
        problem = "has a fragment, which no pod would be sent"
    problem = problem or _judge_url_path(path) or _judge_escapes(path + query)
    if problem:
        shown = show(_without_user(url))
        return NoTarget(f"the {DOWNSCALE_DELAY_URL} annotation {problem}: {shown}")
    return _judge_service(service_name) or DelayTarget(
        scheme=scheme.lower(),
        port=int(port[0][1:]) if port else _DEFAULT_PORTS[scheme.lower()],
        shows_port=port is not None,
        path=path.removeprefix("/"),
        query=query,
        service=service_name,
    )


def plan_endpoint(pod: Pod, target: Target, cluster_domain: str) -> Endpoint | str:
    """Return where one pod is called, or why it cannot be.

    `target` has been checked. `cluster_domain` is the flag as given; its dot at the end stays part
    of the host.
    """
    host = f"{pod.name}.{target.service}.{pod.namespace}.svc.{cluster_domain}"
    problem = _judge_names(pod, cluster_domain)
    if problem:
        return problem
    if len(host.removesuffix(".")) > _LONGEST_HOST:
        return f"the DNS name of pod {pod.name} is longer than {_LONGEST_HOST} characters"
    ip = _read_address(pod.ip)
    if ip is None:
        shown = f"has no valid address: {show(pod.ip)}" if pod.ip else "has no address yet"
        return f"pod {pod.name} {shown}"
    query, shows_port = "", True
    if isinstance(target, DelayTarget):
        query, shows_port = target.query, target.shows_port
    return Endpoint(
        pod=pod.name,
        uid=pod.uid,
        ip=ip,
        host=host,
        port=target.port,
        path=target.path,
        scheme=target.scheme,
        query=query,
        shows_port=shows_port,
    )


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and int(text) <= _LARGEST_PORT


def _judge_service(name: str) -> NoTarget | None:
    if not name:
        return _missing("the serviceName")
    if _LABEL.fullmatch(name):
        return None
    return NoTarget(f"the serviceName is no DNS label: {show(name)}")


def _missing(what: str) -> NoTarget:
    return NoTarget(f"{what} is not set or empty", is_missing=True)


def show(text: str) -> str:
    """Return text in double quotes, on one printable line, cut where it is long."""
    escaped = escape(quote(text))
    return escaped if len(escaped) <= _LONGEST_SHOWN else f'{escaped[: _LONGEST_SHOWN - 4]}..."'


def escape(text: str) -> str:
    """Return text on one printable line."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _judge_port(text: str) -> NoTarget | None:
    """Return what is wrong, None where nothing is; so do those of path and service."""
    if not text:
        return _missing(f"the {PREPARE_PORT} annotation")
    if _is_port(text):
        return None
    return NoTarget(
        f"the {PREPARE_PORT} annotation is no port from 1 to {_LARGEST_PORT}: {show(text)}"
    )


def _judge_path(text: str) -> NoTarget | None:
    if not text:
        return _missing(f"the {PREPARE_PATH} annotation")
    path = text.lstrip("/")
    # A dot segment is resolved by its first reader: `a/../b` may be `b` to a proxy.
    has_dots = not {".", ".."}.isdisjoint(path.split("/"))
    if len(path) <= _LONGEST_PATH and _PATH.fullmatch(path) and not has_dots:
        return None
    return NoTarget(f"the {PREPARE_PATH} annotation is no plain path: {show(text)} ({_PATH_RULE})")


def _judge_names(pod: Pod, cluster_domain: str) -> str:
    if not _are_labels(pod.name, _LABEL):
        return f"the name of a pod is no DNS name: {show(pod.name)}"
    if not _LABEL.fullmatch(pod.namespace):
        return f"the namespace of pod {pod.name} is no DNS label: {show(pod.namespace)}"
    if not _are_labels(cluster_domain.removesuffix("."), _DOMAIN_LABEL):
        return f"the cluster domain is no DNS name: {show(cluster_domain)}"
    return ""


def _are_labels(name: str, label: re.Pattern[str]) -> bool:
    # The length first: texts of megabytes are not matched.
    return len(name) <= _LONGEST_HOST and all(map(label.fullmatch, name.split(".")))


def _read_address(text: str) -> str | None:
    """Return an IP address in its one canonical spelling, None for all else."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A zone such as `fe80::1%eth0` is a name of the machine that wrote it, and free text.
    has_zone = isinstance(address, IPv6Address) and address.scope_id is not None
    return None if has_zone else str(address)


def _judge_url(url: str, scheme: str) -> str:
    # The length first: texts of megabytes are not matched.
    if len(url) > _LONGEST_URL:
        return f"is longer than {_LONGEST_URL} characters"
    if not _SEEN.fullmatch(url):
        return "has a blank or another character that stands in no URL"
    return "" if scheme in _DEFAULT_PORTS else "is no http or https URL"


def _judge_authority(authority: str, port: str) -> str:
    """Judge user, host and port; `port` begins with its colon, or is empty."""
    if "@" in authority:
        return "has a user, and pods are sent no credentials"
    if not _HOST.fullmatch(authority.removesuffix(port)):
        return "has a host that is none"
    if port and not _is_port(port[1:]):
        return f"has no port from 1 to {_LARGEST_PORT}"
    return ""


def _judge_url_path(path: str) -> str:
    if not _URL_PATH.fullmatch(path):
        return "has a path with characters that must be escaped"
    decoded = path.lower()
    for escape, char in _DECODED.items():
        decoded = decoded.replace(escape, char)
    # A dot segment is resolved by its first reader: `a/../b` may be `b` to a proxy.
    return "" if {".", ".."}.isdisjoint(decoded.split("/")) else "has a path with . or .. in it"


def _judge_escapes(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        return "has a % that begins no escape"
    return "has an escaped control character" if _CONTROL.search(text) else ""


def _without_user(text: str) -> str:
    """Return a URL for messages: what may be a password is in none (SI-23)."""
    before, at, rest = text.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    return f"{scheme if slashes else ''}{slashes}***@{rest}" if at else text
