"""Where the pods of a set are called before a downscale.

Decides which port, path and names may become part of a request (D-27): what a tenant writes into an
annotation must reach nothing but the pods of its own set. Which pods are called is decided by who
asks, how they are called in `pods.client`; what a refusal means for the review is left to
`request`. The URL of delayed downscales is judged in `planning.scaling.delay_endpoint`, by the same
rules for pods, ports and names.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import PREPARE_PATH, PREPARE_PORT
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.units import quote

# Digits and letters are spelt out: `\d` and `\w` know those of other scripts, which one parser
# takes for a port and the next one does not.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# The flag is the operator's own, and capitals in a domain are legal; a dot may end it (FQDN-02).
_DOMAIN_LABEL: Final = re.compile(_LABEL.pattern, re.IGNORECASE | re.ASCII)

SCHEMES: Final = ("http", "https")
# Delayed downscales may be asked for by https; preparing has no way to say so.
PREPARE_SCHEME: Final = "http"
LARGEST_PORT: Final = 65535
_LONGEST_PATH: Final = 256
# As in DNS, the dot at the end not counted.
_LONGEST_HOST: Final = 253
# Refusals go into messages and logs, where hundreds of pods may repeat them.
_LONGEST_SHOWN: Final = 200

_PATH_RULE: Final = (
    f"letters, digits and . _ ~ - between single slashes, no . or .. alone,"
    f" at most {_LONGEST_PATH} characters"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Where a pod is, whatever it is asked there."""

    ip: str
    host: str


def plan_target(annotations: Mapping[str, str], service_name: str) -> Target | str:
    """Return where the pods of a set are to be called, or the end of the sentence that refuses it.

    The port is judged first, then the path, then the name of the Service (PREP-06 to PREP-08).
    """
    port_text = annotations.get(PREPARE_PORT, "")
    path = annotations.get(PREPARE_PATH, "")
    problem = _judge_port(port_text) or _judge_path(path) or judge_service(service_name)
    if problem:
        return problem
    return Target(port=int(port_text), path=path.lstrip("/"), service=service_name)


def judge_target(target: Target) -> str:
    """Return what is wrong with a target that comes from somewhere else, empty where nothing is."""
    if target.scheme not in SCHEMES:
        return f"the scheme is none of {', '.join(SCHEMES)}: {show(target.scheme)}"
    is_plain = not target.path.startswith("/")
    problem = _judge_port(str(target.port)) or _judge_path(target.path if is_plain else "")
    return problem or judge_service(target.service)


def judge_place(target: Target, sts: StatefulSet, ports: Collection[int]) -> str:
    """Return why pods of a set cannot have been called at a place that an annotation names.

    `ports` are those of the containers of the annotated pod. The annotation is not signed: it is
    believed only as far as the set and the pod's own spec say the same. Nothing confirms the path:
    the set may name another one by now.
    """
    if target.scheme != PREPARE_SCHEME:
        return f"scheme: pods are prepared by {PREPARE_SCHEME} only: {show(target.scheme)}"
    if target.service != sts.service_name:
        return f"service: it is not the serviceName of the set: {show(target.service)}"
    if target.port not in ports and str(target.port) != sts.annotations.get(PREPARE_PORT):
        return f"port: neither a container of the pod nor the set names it: {target.port}"
    return ""


def plan_endpoint(pod: Pod, target: Target, cluster_domain: str) -> Endpoint | str:
    """Return where one pod is called, or why it cannot be.

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
    )


def plan_place(pod: Pod, service: str, cluster_domain: str) -> PodPlace | str:
    """Return where a pod is and what it is called there, or why it cannot be called.

    `service` has been judged; `cluster_domain` is as in `plan_endpoint`.
    """
    host = f"{pod.name}.{service}.{pod.namespace}.svc.{cluster_domain}"
    problem = _judge_names(pod, cluster_domain)
    if problem:
        return problem
    if len(host.removesuffix(".")) > _LONGEST_HOST:
        return f"the DNS name of pod {pod.name} is longer than {_LONGEST_HOST} characters"
    ip = _read_address(pod.ip)
    if ip is None:
        shown = f"has no valid address: {show(pod.ip)}" if pod.ip else "has no address yet"
        return f"pod {pod.name} {shown}"
    return PodPlace(ip=ip, host=host)


def is_port(text: str) -> bool:
    """Tell whether a text is a port from 1 to 65535, in the one way to write it."""
    return _PORT.fullmatch(text) is not None and int(text) <= LARGEST_PORT


def judge_service(name: str) -> str:
    """Return what is wrong with the `serviceName` of a set, empty where nothing is."""
    if not name:
        return "the serviceName is not set or empty."
    return "" if _LABEL.fullmatch(name) else f"the serviceName is no DNS label: {show(name)}"


def show(text: str) -> str:
    """Return text in double quotes, on one printable line, cut where it is long."""
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in quote(text)
    )
    return escaped if len(escaped) <= _LONGEST_SHOWN else f'{escaped[: _LONGEST_SHOWN - 4]}..."'


def _judge_port(text: str) -> str:
    """Return what is wrong, empty where nothing is; so do the others of this name."""
    if not text:
        return f"the {PREPARE_PORT} annotation is not set or empty."
    if is_port(text):
        return ""
    return f"the {PREPARE_PORT} annotation is no port from 1 to {LARGEST_PORT}: {show(text)}"


def _judge_path(text: str) -> str:
    if not text:
        return f"the {PREPARE_PATH} annotation is not set or empty."
    path = text.lstrip("/")
    # A dot segment is resolved by whoever reads it first: `a/../b` may be `b` to a proxy.
    has_dots = not {".", ".."}.isdisjoint(path.split("/"))
    if len(path) <= _LONGEST_PATH and _PATH.fullmatch(path) and not has_dots:
        return ""
    return f"the {PREPARE_PATH} annotation is no plain path: {show(text)} ({_PATH_RULE})"


def _judge_names(pod: Pod, cluster_domain: str) -> str:
    if not _are_labels(pod.name, _LABEL):
        return f"the name of a pod is no DNS name: {show(pod.name)}"
    if not _LABEL.fullmatch(pod.namespace):
        return f"the namespace of pod {pod.name} is no DNS label: {show(pod.namespace)}"
    if not _are_labels(cluster_domain.removesuffix("."), _DOMAIN_LABEL):
        return f"the cluster domain is no DNS name: {show(cluster_domain)}"
    return ""


def _are_labels(name: str, label: re.Pattern[str]) -> bool:
    # The length first: texts of megabytes are not worth a look.
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
