"""The zones of a policy: in which zone each of its StatefulSets is, and what to know of that.

Which they are is decided in `planning.policies.zones`.
"""

from enum import StrEnum, unique

import msgspec

from rollout_operator.model.placement import ZoneSource


@unique
class ZonesCode(StrEnum):
    """Reasons of the condition `ZonesResolved`. Never renamed."""

    ALL_RESOLVED = "AllResolved"
    SOME_BY_FALLBACK = "SomeByFallback"
    """Of some StatefulSets nothing says the zone."""
    SPANS_ZONES = "StatefulSetSpansZones"
    """It is False: nothing may be updated."""


@unique
class ZoneFindingCode(StrEnum):
    """What is to be known of zones: reasons of Events. Never renamed."""

    ZONE_UNKNOWN = "ZoneUnknown"
    SPANS_ZONES = "StatefulSetSpansZones"
    NODES_UNREADABLE = "NodesUnreadable"


class ResolvedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet, its zone, and what says so."""

    name: str
    zone: str
    source: ZoneSource


class ResolvedZone(msgspec.Struct, frozen=True, kw_only=True):
    """What may be down together: StatefulSets of one zone, by name."""

    name: str
    sets: tuple[ResolvedSet, ...]
    """At least one. They are updated in this order."""


class ZoneFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know of the zones."""

    code: ZoneFindingCode
    text: str


class ZoneResolution(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the zones of a policy."""

    code: ZonesCode
    key: str = ""
    """The label that names zones."""
    zones: tuple[ResolvedZone, ...] = ()
    """In the order of their updates. Empty where a StatefulSet spans several."""
    sets: tuple[ResolvedSet, ...] = ()
    """By name; without those that span several zones."""
    unknown_zones: tuple[str, ...] = ()
    """Zones of `azOrder` that have no StatefulSet, in its order."""
    findings: tuple[ZoneFinding, ...] = ()
