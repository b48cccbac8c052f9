"""In which zone a StatefulSet is, what says so, which are zones of one group, and how it is named.

The zone is read from where the pods may run; from the name only where nothing else says it. Zones
of one group have one name but for its end, and belong to one application: image, selector and
labels are the same but for the zone. Names that stand in a command which a person pastes are those
that the API server takes: a file may say anything, and a line break would end a comment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

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
_NUMBER: Final = re.compile(r"(\d+)$", re.ASCII)
_PREFIX: Final = re.compile(r"^(?:zone|az)-?")
_SHORT_END: Final = re.compile(r"(zone|az)?-?(?:([a-z])|\d+)")
_CANARY: Final = "canary"
# What charts distinguish releases, components and canaries by, where selectors do not.
_APPLICATION: Final = (
    *("app", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
    *("component", "release", "track"),
)
_OF_ZONES: Final = frozenset({*TOPOLOGY_KEYS, ZONE_LABEL, GROUP_LABEL, GROUP_LABEL_LONG})

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
    zone, source = choose_zone(sts)
    if zone and sts.name.endswith(f"-{zone}") and len(sts.name) > len(zone) + 1:
        base = sts.name.removesuffix(f"-{zone}")
        return base.removesuffix("-zone") or base
    if source not in (ZoneSource.NONE, ZoneSource.NAME_SUFFIX) and _has_number(sts.name, zone):
        return _strip_number(sts.name)
    return _ENDS.sub("", sts.name) or sts.name


def _has_number(name: str, zone: str) -> bool:
    """Return whether a name such as `mq-2` ends with the number of its zone, as `westeurope-2`."""
    own, given = _NUMBER.search(name), _NUMBER.search(zone)
    if own is None or given is None or not _strip_number(name):
        return False
    return int(own[1]) == int(given[1])


def _strip_number(name: str) -> str:
    """Return `mq` of `mq-2`, empty where no number stands after a hyphen."""
    base = _NUMBER.sub("", name)
    return base[:-1] if base != name and base.endswith("-") else ""


def read_group(sts: AdoptableSet) -> str:
    """Return the rollout group that a StatefulSet has already, empty where it has none."""
    return sts.labels.get(GROUP_LABEL, sts.labels.get(GROUP_LABEL_LONG, ""))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """StatefulSets that may become one group."""

    name: str
    members: tuple[AdoptableSet, ...]
    """By name in byte order: as rollouts take them."""
    other: AdoptableSet | None = None
    """One whose name is like theirs, and which is no zone of theirs."""
    left_out: tuple[str, ...] = ()
    """Zones of the same group by all that is known, which were not named."""


def group_sets(
    sets: Sequence[AdoptableSet], chosen: frozenset[str], group: str
) -> Sequence[Candidate]:
    """Return the groups to be, by name.

    `chosen` are the names that are meant. `group` is what they are called, empty where their own
    names say it. A set that is in such a group already belongs to it as well.
    """
    bases = _choose_bases(sets)
    kinds = {
        sts.name: (bases[sts.name], *_list_traits(sts, bases[sts.name]).items()) for sts in sets
    }
    groups: dict[str, list[list[AdoptableSet]]] = {}
    alike: dict[object, list[AdoptableSet]] = {}
    for sts in sorted(sets, key=lambda sts: sts.name):
        if sts.name in chosen:
            alike.setdefault(group or kinds[sts.name], []).append(sts)
    for members in alike.values():
        name = group or next(filter(None, map(read_group, members)), bases[members[0].name])
        groups.setdefault(name, []).append(members)
    found: list[Candidate] = []
    for name, parts in sorted(groups.items()):
        there = [sts for sts in sets if sts.name not in chosen and read_group(sts) == name]
        for part, other in _split(name, parts, there):
            if chosen.isdisjoint(sts.name for sts in part):
                continue
            known = {kinds[sts.name] for sts in part}
            left_out = [sts for sts in sets if kinds[sts.name] in known and sts not in part]
            found.append(
                Candidate(
                    name=name,
                    members=tuple(sorted(part, key=lambda sts: sts.name)),
                    other=other,
                    left_out=tuple(sts.name for sts in left_out if sts.name not in chosen),
                )
            )
    return found


def _split(
    name: str, parts: Sequence[list[AdoptableSet]], there: Sequence[AdoptableSet]
) -> Iterator[tuple[Sequence[AdoptableSet], AdoptableSet | None]]:
    """Yield what may become one group of a name, each with another that may not be part of it."""
    first = [*there, *(sts for part in parts for sts in part if read_group(sts) == name)]
    rest = [*parts]
    if first:
        joined = [
            part
            for part in parts
            if any(sts in first for sts in part) or not explain_difference(part[0], first[0])
        ]
        rest = [part for part in parts if part not in joined]
        yield [*there, *(sts for part in joined for sts in part)], None
    large = [part for part in rest if len(part) > 1]
    for part in rest:
        others = first or [each[0] for each in large or rest if each is not part]
        is_alone = len(large) == 1 and not first and part in large
        yield part, None if is_alone or not others else others[0]


def explain_difference(sts: AdoptableSet, other: AdoptableSet, *, is_end_told: bool = False) -> str:
    """Return in words by what another set is shown to be none of its zones; empty: by nothing."""
    own, others = (_list_traits(each, choose_base(each)) for each in (sts, other))
    for what in (*own, *others):
        if own.get(what) != others.get(what) and (what != _END or is_end_told):
            mine, theirs = (_show_trait(each, what) for each in (sts, other))
            return f"its {what} is {mine}, that of {other.name} {theirs}"
    return ""


_END: Final = "end of the name"
_IMAGE: Final = "image"
_LABEL: Final = "label "
_SELECTOR: Final = "selector for "


def _list_traits(sts: AdoptableSet, base: str) -> Mapping[str, str]:
    """Return what zones of one application have in common, without what says the zone."""
    end = sts.name[len(base) + 1 :]
    zone, _ = choose_zone(sts)
    marks = {mark for text in (end, zone) for mark in (text, _PREFIX.sub("", text)) if mark}
    labels = {
        f"{_SELECTOR}{key}": value
        for key, value in sorted(sts.selector.items())
        if key not in _OF_ZONES
    }
    for key in _APPLICATION:
        if value := sts.pod_labels.get(key, sts.labels.get(key, "")):
            labels[f"{_LABEL}{key}"] = value
    image = sts.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return {
        _END: _name_shape(end),
        _IMAGE: image,
        **{what: _take_out(value, sts.name, marks) for what, value in labels.items()},
    }


def _name_shape(end: str) -> str:
    """Return what kind of end it is: `a` and `zone-a` are two, and so are `zone-a` and `canary`."""
    if match := _SHORT_END.fullmatch(end):
        return f"{match[1] or ''} {'letter' if match[2] else 'number'}"
    return _CANARY if _CANARY in end else "word" if end else ""


def _take_out(value: str, name: str, marks: Iterable[str]) -> str:
    """Return the value of a label without the zone, which it has as a whole, before or after."""
    if value == name:
        return ""
    for mark in sorted(marks, key=len, reverse=True):
        if _PREFIX.sub("", value) == _PREFIX.sub("", mark):
            return ""
        value = value.removesuffix(f"-{mark}").removeprefix(f"{mark}-")
    return value


def _show_trait(sts: AdoptableSet, what: str) -> str:
    if what == _END:
        return quote(sts.name[len(choose_base(sts)) :])
    if what == _IMAGE:
        return quote(sts.image)
    key = what.removeprefix(_SELECTOR).removeprefix(_LABEL)
    labels = sts.selector if what.startswith(_SELECTOR) else {**sts.labels, **sts.pod_labels}
    return quote(labels[key]) if key in labels else "absent"


def _choose_bases(sets: Iterable[AdoptableSet]) -> Mapping[str, str]:
    """Return the base of each name. Numbers are zones where they are for every one, else shards."""
    bases = {sts.name: choose_base(sts) for sts in sets}
    shards = {_strip_number(name) for name, base in bases.items() if base == name}
    return {
        name: name if base in shards and base == _strip_number(name) else base
        for name, base in bases.items()
    }


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
