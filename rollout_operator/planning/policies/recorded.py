"""The zones of a policy as its status has recorded them: for readers that do not resolve them anew.

Zones may follow from nodes, which a person with a kubeconfig may not read. What the operator found
last is in the status; what is not there is in no zone yet.
"""

from collections.abc import Iterable
from contextlib import suppress

from rollout_operator.model.placement import ZoneSource
from rollout_operator.model.policy.status import PolicySetStatus, PolicyStatus
from rollout_operator.model.policy.zones import (
    ResolvedSet,
    ResolvedZone,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.planning.policies.conditions import ZONES_RESOLVED


def read_resolution(status: PolicyStatus) -> ZoneResolution:
    """Return the zones that a status names, in their order."""
    zones = tuple(
        ResolvedZone(name=zone.name, sets=tuple(_read_sets(zone.name, zone.stateful_sets)))
        for zone in sorted(status.zones, key=lambda zone: zone.order)
        if zone.stateful_sets
    )
    condition = status.find_condition(ZONES_RESOLVED)
    code = ZonesCode.ALL_RESOLVED
    findings: tuple[ZoneFinding, ...] = ()
    if condition is not None:
        with suppress(ValueError):
            code = ZonesCode(condition.reason)
        if code is ZonesCode.SPANS_ZONES:
            findings = (ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text=condition.message),)
    sets = sorted((each for zone in zones for each in zone.sets), key=lambda each: each.name)
    return ZoneResolution(
        code=code,
        zones=zones,
        sets=tuple(sets),
        unknown_zones=status.unknown_zones,
        findings=findings,
    )


def _read_sets(zone: str, sets: Iterable[PolicySetStatus]) -> Iterable[ResolvedSet]:
    for each in sets:
        source = ZoneSource.NONE
        with suppress(ValueError):
            source = ZoneSource(each.source)
        yield ResolvedSet(name=each.name, zone=zone, source=source)
