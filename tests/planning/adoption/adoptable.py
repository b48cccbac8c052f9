"""Plain StatefulSets of three zones, as they are before anything is adopted."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from rollout_operator.model.adoption import AdoptableSet, RolloutProgress
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.planning.adoption import AdoptionPlan, plan_adoption

APP = {"app": "ingester"}
DONE = RolloutProgress(
    observed_generation=1,
    replicas=3,
    updated_replicas=3,
    current_revision="one",
    update_revision="one",
)
STATUSES = {
    "none": None,
    "underway": replace(DONE, updated_replicas=1, update_revision="two"),
    "lagging": replace(DONE, observed_generation=0),
    "unrecorded": replace(DONE, current_revision="zero"),
}


def plain(name: str, **fields: object) -> AdoptableSet:
    """Return a StatefulSet at rest, of three pods."""
    known: dict[str, object] = {
        "name": name,
        "generation": 1,
        "labels": APP,
        "pod_labels": {**APP, "name": name},
        "replicas": 3,
        "status": DONE,
    }
    return AdoptableSet(**{**known, **fields})  # type: ignore[arg-type]  # by name, in each test


def three(**fields: object) -> tuple[AdoptableSet, ...]:
    """Return three zones that have the same fields."""
    return tuple(plain(f"ingester-zone-{zone}", **fields) for zone in "abc")


def plan(sets: Sequence[AdoptableSet], *names: str, group: str = "") -> AdoptionPlan:
    """Return what is proposed for these, of which the named ones are meant."""
    return plan_adoption("prod", sets, frozenset(names), group)


def read_sets(text: str) -> list[AdoptableSet]:
    """Return the sets of a line such as `db-{a,b} node=eu-{}; db-canary image=x`."""
    found = []
    for part in text.split(";"):
        name, *fields = part.split()
        braces = re.search(r"\{(.*)\}", name)
        for end in braces[1].split(",") if braces else [""]:
            full = name.replace(braces[0], end) if braces else name
            found.append(_read_set(full, [field.replace("{}", end) for field in fields]))
    return found


def _read_set(name: str, fields: Sequence[str]) -> AdoptableSet:
    labels, pod_labels, selector = {**APP}, {**APP, "name": name}, dict[str, str]()
    others: dict[str, object] = {}
    for field in fields:
        key, _, value = field.partition("=")
        kind, _, label = key.partition(".")
        match kind:
            case "l":
                labels[label] = value
            case "pod":
                pod_labels[label] = value
            case "sel":
                selector[label] = value
            case "app":
                labels["app"] = pod_labels["app"] = value
            case "zone":
                labels["zone"] = value
            case "group":
                labels["rollout-group"] = value
            case "node":
                others["node_selector"] = {TOPOLOGY_KEYS[0]: value}
            case "old":
                others["node_selector"] = {TOPOLOGY_KEYS[1]: value}
            case "at":
                labels[TOPOLOGY_KEYS[0]] = value
            case "terms":
                terms = [_read_term(one) for one in value.split("/")]
                others["node_terms"] = tuple(terms)
            case "limit":
                others["annotations"] = {"rollout-max-unavailable": value}
            case "unavailable":
                many = int(value) if value.isdigit() else value.strip('"')
                others["rolling_update"] = {"partition": 0, "maxUnavailable": many}
            case "owner":
                others["controller"] = value.replace("/", " ")
            case "writer":
                others["writers"] = ("helm", value)
            case "partition":
                others["rolling_update"] = {"partition": int(value)}
            case "generation":
                others[key] = int(value)
            case "status":
                others["status"] = STATUSES[value]
            case _:
                others[key] = value
    return plain(name, labels=labels, pod_labels=pod_labels, selector=selector, **others)


def _read_term(text: str) -> dict[str, tuple[str, ...]]:
    """Return zones of nodes such as `a,b`, or `b,c@old` beside them."""
    found = {}
    for part in text.split("&"):
        values, _, key = part.partition("@")
        keys = {"": TOPOLOGY_KEYS[0], "old": TOPOLOGY_KEYS[1]}
        found[keys.get(key, key)] = tuple(values.split(","))
    return found
