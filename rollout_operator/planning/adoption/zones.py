"""In which zone a StatefulSet is, what says so, which are zones of one group, and how it is named.

The zone is read from where the pods may run; from the name only where nothing else says it. Zones
of one group have one name but for its end. Names that stand in a command which a person pastes are
those that the API server takes: a file may say anything, and a line break would end a comment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rollout_operator.model.adoption.namespace import AdoptableNamespace, AdoptableSet
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, TOPOLOGY_KEYS
from rollout_operator.model.placement import ZoneSource
from rollout_operator.model.units import quote
from rollout_operator.planning.placement import ZONE_LABEL, choose_label, choose_permitted_zone

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
# `ingester-zone-a`, `db-az1`, `vault-b`. A number alone is more often a shard than a zone.
_ENDS: Final = re.compile(r"-((?:zone|az)-?[a-z0-9]+|[a-z])$")

_WORDS: Final = {
    ZoneSource.NODE_SELECTOR: "the nodeSelector of its pods",
    ZoneSource.NODE_AFFINITY: "the node affinity of its pods",
    ZoneSource.LABEL: "a topology label",
    ZoneSource.ZONE_LABEL: "the label zone",
    ZoneSource.NAME_SUFFIX: "the end of its name",
}


def describe_zone(zone: str, source: ZoneSource) -> str:
    """Return the zone and what says so, in words."""
    if source is ZoneSource.NONE:
        return "nothing says its zone"
    return f"zone {zone}, by {_WORDS[source]}"


def choose_zone(sts: AdoptableSet) -> tuple[str, ZoneSource]:
    """Return the zone of a StatefulSet and what says so; the zone is empty where nothing does."""
    return next(_list_zones(sts), ("", ZoneSource.NONE))


def _list_zones(sts: AdoptableSet) -> Iterator[tuple[str, ZoneSource]]:
    if zone := choose_label(TOPOLOGY_KEYS, sts.node_selector):
        yield zone, ZoneSource.NODE_SELECTOR
    if zone := choose_permitted_zone(sts.node_terms, TOPOLOGY_KEYS):
        yield zone, ZoneSource.NODE_AFFINITY
    if zone := choose_label(TOPOLOGY_KEYS, sts.pod_labels, sts.labels):
        yield zone, ZoneSource.LABEL
    if zone := choose_label((ZONE_LABEL,), sts.pod_labels, sts.labels):
        yield zone, ZoneSource.ZONE_LABEL
    if match := _ENDS.search(sts.name):
        yield match[1], ZoneSource.NAME_SUFFIX


def choose_base(sts: AdoptableSet) -> str:
    """Return the name of a StatefulSet without its zone, the whole name where it has none."""
    zone, _ = choose_zone(sts)
    if zone and sts.name.endswith(f"-{zone}") and len(sts.name) > len(zone) + 1:
        base = sts.name.removesuffix(f"-{zone}")
        return base.removesuffix("-zone") or base
    return _ENDS.sub("", sts.name) or sts.name


def read_group(sts: AdoptableSet) -> str:
    """Return the rollout group that a StatefulSet has already, empty where it has none."""
    return sts.labels.get(GROUP_LABEL, sts.labels.get(GROUP_LABEL_LONG, ""))


def group_sets(
    sets: Iterable[AdoptableSet], chosen: frozenset[str], group: str
) -> Mapping[str, Sequence[AdoptableSet]]:
    """Return the zones of each group to be, by name in byte order: as rollouts take them.

    `chosen` are the names that are meant. `group` is what they are called, empty where their own
    names say it. A set that is in such a group already belongs to it as well.
    """
    bases: dict[str, list[AdoptableSet]] = {}
    for sts in sorted(sets, key=lambda sts: sts.name):
        if sts.name in chosen:
            bases.setdefault(group or choose_base(sts), []).append(sts)
    groups: dict[str, list[AdoptableSet]] = {}
    for base, members in bases.items():
        groups.setdefault(group or _choose_name(base, members), []).extend(members)
    for sts in sets:
        if sts.name not in chosen and read_group(sts) in groups:
            groups[read_group(sts)].append(sts)
    return {
        name: tuple(sorted(members, key=lambda member: member.name))
        for name, members in sorted(groups.items())
    }


def _choose_name(base: str, members: Sequence[AdoptableSet]) -> str:
    """Return the group that some of them have already, else what their names begin with."""
    return next(filter(None, map(read_group, members)), base)


def refuse_names(seen: AdoptableNamespace) -> None:
    """Raise InvalidInput where the namespace or a StatefulSet has a name that the API refuses."""
    names = [seen.namespace] if seen.namespace else []
    for name in (*names, *(sts.name for sts in seen.sets)):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{quote(name)} is no name of an object in Kubernetes")


def refuse_group(name: str) -> None:
    """Raise InvalidInput where a group has a name that is no value of a label."""
    if not _LABEL_VALUE.fullmatch(name):
        raise InvalidInput(
            f"{quote(name)} is no value of a label, which the name of a group has to be:"
            " choose another name with -group"
        )


def name_budget(group: str) -> str:
    """Return the name of a group's budget: labels allow upper case and underscores, names do not.

    Each part between dots begins and ends with a letter or a digit.
    """
    parts = group.lower().replace("_", "-").split(".")
    return ".".join(filter(None, (part.strip("-") for part in parts)))
