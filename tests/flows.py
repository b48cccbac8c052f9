"""What NetworkPolicies let through, as Kubernetes defines it: for a test without a network.

A field that is not known here is an error, so that no flow is judged by half a policy.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Final

import msgspec

# Parsed YAML: whatever the file says.
Object = dict[str, Any]

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


class UnknownFieldError(Exception):
    """A policy says something that is not known here."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a connection: a pod, or an address outside of all namespaces."""

    address: str
    namespace: str = ""
    """Empty where it is no pod."""
    labels: Mapping[str, str] = {}


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that a client tries to open."""

    source: End
    target: End
    port: int
    protocol: str = "TCP"


def passes(policies: Iterable[Object], flow: Flow) -> bool:
    """Return whether a flow gets through, out of its source and into its target."""
    known = list(policies)
    outwards = _is_let_through(known, "Egress", flow.source, flow.target, flow)
    return outwards and _is_let_through(known, "Ingress", flow.target, flow.source, flow)


def _is_let_through(policies: list[Object], way: str, own: End, other: End, flow: Flow) -> bool:
    """Return whether `own` may, where a policy is about it; where none is it may do everything."""
    about = [one for one in policies if _is_about(one, way, own)]
    return not about or any(_allows(one, way, other, flow) for one in about)


def _is_about(policy: Object, way: str, own: End) -> bool:
    spec = _only(policy["spec"], "podSelector", "policyTypes", "ingress", "egress")
    is_there = policy["metadata"]["namespace"] == own.namespace
    return is_there and way in spec["policyTypes"] and _selects(spec["podSelector"], own.labels)


def _allows(policy: Object, way: str, other: End, flow: Flow) -> bool:
    key, peers = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[way]
    home = policy["metadata"]["namespace"]
    return any(
        _fits_port(rule.get("ports"), flow)
        and (not rule.get(peers) or any(_is_peer(one, other, home) for one in rule[peers]))
        for rule in (_only(each, peers, "ports") for each in policy["spec"].get(key, ()))
    )


def _fits_port(ports: list[Object] | None, flow: Flow) -> bool:
    """Return whether a rule without ports, or with this one, is about the flow."""
    return not ports or any(
        (one["protocol"], one["port"]) == (flow.protocol, flow.port)
        for one in (_only(each, "protocol", "port") for each in ports)
    )


def _is_peer(peer: Object, other: End, home: str) -> bool:
    """Both selectors of one peer must fit; a selector of pods alone means those at home."""
    _only(peer, "ipBlock", "namespaceSelector", "podSelector")
    if "ipBlock" in peer:
        return ip_address(other.address) in ip_network(_only(peer["ipBlock"], "cidr")["cidr"])
    spaces = peer.get("namespaceSelector", {"matchLabels": {NAMESPACE_LABEL: home}})
    is_pod = bool(other.namespace)
    in_space = is_pod and _selects(spaces, {NAMESPACE_LABEL: other.namespace})
    return in_space and _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    wanted: Mapping[str, str] = _only(selector, "matchLabels").get("matchLabels", {})
    return wanted.items() <= labels.items()


def _only(given: Object, *known: str) -> Object:
    if unknown := set(given) - set(known):
        raise UnknownFieldError(str(sorted(unknown)))
    return given
