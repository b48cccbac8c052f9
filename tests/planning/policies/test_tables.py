"""What is decided for a policy, its zones and StatefulSets, and its status."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from rollout_operator.model.budget import PlacedSet, StatusCondition
from rollout_operator.model.names import GROUP_LABEL_LONG, TOPOLOGY_KEYS, Uid
from rollout_operator.model.objects import (
    LEFT_OUT,
    LabelSelector,
    SelectorTerm,
    StatefulSet,
    Unreadable,
)
from rollout_operator.model.policy import (
    Batch,
    BatchPod,
    Policy,
    PolicyPlan,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicySnapshot,
    PolicyStatus,
    RefusedPolicy,
    ZonesCode,
)
from rollout_operator.planning.conditions import REASONS, list_blocking
from rollout_operator.planning.policies import list_switchable, plan_policy
from rollout_operator.planning.policy_status import (
    find_batch,
    list_dropped,
    list_overridden,
    read_resolution,
    render_policy_status,
)
from rollout_operator.planning.policy_zones import choose_key, map_frozen, resolve_zones, share_sets
from tests.builders import NOW
from tests.model.cases import lengthen
from tests.planning.policies.snapshots import outline, policy, read_policy
from tests.planning.policies.stage import StatusStage
from tests.planning.tables import read_arguments
from tests.stories import check_stories, check_tables

KEY, OLD = TOPOLOGY_KEYS
RACK: Final = "example.com/rack"
NODES: Final = {
    "a1": {KEY: "2a", OLD: "old", RACK: "r1"},
    "a2": {KEY: "2a"},
    "b1": {KEY: "2b", RACK: "r1"},
    "o1": {OLD: "2o"},
    "none": {"zone": "x"},
}
WORDS: Final = {
    "KEY": KEY,
    "OLD": OLD,
    "ZONES": "[{name: 2a, statefulSets: [{name: db, source: Nodes}, {name: x, source: Label}]}]",
}
_BATCH: Final = re.compile(r"BATCH\(([^,]*?)(?:, (.*?))?\)")
_LABELS: Final = {"LONG": GROUP_LABEL_LONG, "MANY": LEFT_OUT}
_TRAITS: Final = ("ageless", "going", "refused")


def show_plan(text: str) -> str:
    """Return the batch that goes, by number, or what holds it, with times in seconds from now."""
    case = read_policy(text.removesuffix("; say"))
    plan = plan_policy(case)
    shown = [_show_action(case, plan)]
    if plan.action is None and case.batch is not None and plan.batch is None:
        shown.append("no batch")
    if plan.action is None and plan.batch is not None and plan.batch.completion is not None:
        shown.append(f"complete {(plan.batch.completion - NOW).total_seconds():g}")
    if plan.next_batch is not None:
        shown.append(f"pause ends {(plan.next_batch - NOW).total_seconds():g}")
    shown += ["stalled"] * plan.is_stalled + ["needs a person"] * plan.needs_person
    if plan.requeue_after is not None:
        shown.append(f"again {plan.requeue_after.total_seconds():g}")
    said = [one.text for one in plan.waits] if text.endswith("; say") else []
    return "\n".join(["; ".join(shown), *said])


def _show_action(case: PolicySnapshot, plan: PolicyPlan) -> str:
    """Check that what goes is recorded before (step 12), or goes on as it was recorded."""
    if plan.action is None:
        return outline(plan)
    sts, last, batch = plan.action.zone, case.batch, plan.batch
    assert batch is not None
    assert plan.is_open
    if last is not None and last.number == batch.number:
        assert batch == replace(last, completion=None)
    else:
        sets = (one for zone in case.resolution.zones for one in zone.sets)
        assert batch == Batch(
            number=last.number + 1 if last else 1,
            zone=next(one.zone for one in sets if one.name == sts.name),
            set_name=sts.name,
            revision=sts.update_revision,
            pods=tuple(BatchPod(name=one.pod.name, uid=one.pod.uid) for one in plan.action.going),
            start=case.group.now - case.group.snapshot_age,
        )
    return f"{batch.number}: {outline(plan)}"


def show_zones(text: str) -> str:
    """Return each zone with its sets and their source, then what else is known of the zones."""
    told, *more = text.removesuffix("; say").split("; ")
    given = {word: rest.split() for word, _, rest in (one.partition(" ") for one in more)}
    found = resolve_zones(
        policy(zone_order=tuple(given.get("order", ())), topology_key=given.get("key", [KEY])[0]),
        [msgspec.convert({"name": name, **(fields or {})}, PlacedSet)
         for name, fields in read_yaml(told).items()],
        None if "forbidden" in given else NODES,
        dict(pair.split("=") for pair in given.get("frozen", ())),
    )  # fmt: skip
    sources = {one.name: f"{one.name} {one.source.value}" for one in found.sets}
    assert [*sources] == sorted(sources)
    zones = [
        f"{zone.name}: {', '.join(sources[one.name] for one in zone.sets)}" for zone in found.zones
    ]
    if found.code is ZonesCode.SPANS_ZONES:
        zones = [f"known {', '.join(sources.values())}"]
    code = [found.code.value] * (found.code is not ZonesCode.ALL_RESOLVED)
    unknown = [f"unknown {' '.join(found.unknown_zones)}"] * bool(found.unknown_zones)
    findings = [one.code.value for one in found.findings if one.code.value != found.code.value]
    said = [one.text for one in found.findings] if text.endswith("; say") else []
    return "\n".join(["; ".join([*zones, *code, *unknown, *findings]), *said])


def read_yaml(text: str) -> dict[str, Any]:
    """Return fields in short, with KEY, OLD, ZONES and BATCH(start, end) for what they stand."""

    def write_batch(match: re.Match[str]) -> str:
        ends = "" if match[2] is None else f', completionTime: "{match[2]}"'
        return (
            "{number: 4, zone: 2a, statefulSet: db, updateRevision: new, pods: [],"
            f' startTime: "{match[1]}"{ends}}}'
        )

    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    found: dict[str, Any] = lengthen(yaml.safe_load(f"{{{_BATCH.sub(write_batch, text)}}}"))
    return found


def show_owners(text: str) -> str:
    """Return what policies own, the groups that they drive, and why others are refused."""
    policies: list[Policy | RefusedPolicy] = []
    sets: list[StatefulSet | Unreadable] = []
    for (word, name, *plain), named in map(read_arguments, text.split("; ")):
        labels = {_LABELS.get(key, key): str(value) for key, value in named.items()}
        if word == "policy":
            policies.append(_read_policy(name, plain, labels))
            continue
        namespace = labels.pop("namespace", "prod")
        fields: dict[str, Any] = {
            "namespace": namespace, "name": name, "uid": Uid(f"{namespace}/{name}"),
            "resource_version": "1", "labels": labels,
        }  # fmt: skip
        if word == "lost":
            sets.append(Unreadable(kind="StatefulSet", error="spec.replicas: x", **fields))
        else:
            sets.append(StatefulSet(is_terminating="going" in plain, **fields))
    found = share_sets(policies, sets)
    shown = [
        " ".join([f"{one.policy.head.name}:", *(each.name for each in one.sets)])
        + "".join(f" of {name}" for name in sorted(one.groups))
        for one in found.scopes
    ]
    for refused in found.refused:
        prefix = f"MultiAZRollout {refused.head.key}: spec.statefulSetSelector: "
        why = [f"{one.code.value} {one.text.removeprefix(prefix)}" for one in refused.refusals]
        shown.append(f"{refused.head.name} refused: {'; '.join(why)}")
    return "\n".join(shown)


def _read_policy(name: str, plain: list[str], labels: Mapping[str, str]) -> Policy | RefusedPolicy:
    """Return one over labels, of which `half=1,2` is a choice, `app` and `!app` terms."""
    terms = [
        SelectorTerm(key=word.lstrip("!"), operator="DoesNotExist" if word[0] == "!" else "Exists")
        for word in plain
        if word not in _TRAITS and not word.isdigit()
    ]
    terms += [
        SelectorTerm(key=key, operator="In", values=tuple(text.split(",")))
        for key, text in labels.items()
        if "," in text
    ]
    fixed = {key: text for key, text in labels.items() if "," not in text}
    selector = LabelSelector(labels=fixed or ({} if terms else {"app": "db"}), terms=tuple(terms))
    age = next((int(word) for word in plain if word.isdigit()), 0)
    found = policy(name, age=age, selector=selector)
    head = replace(found.head, is_terminating="going" in plain)
    if "ageless" in plain:
        head = replace(head, created=None)
    if "refused" in plain:
        reason = PolicyRefusal(code=PolicyRefusalCode.INVALID_SPEC, field="spec", text="x")
        return RefusedPolicy(head=head, refusals=(reason,))
    return replace(found, head=head)


def show_switched(text: str) -> str:
    return " ".join(one.name for one in list_switchable(read_policy(text).group)) or "none"


def show_overridden(text: str) -> str:
    case = read_policy(text)
    return "; ".join(one.reason for one in list_overridden(case.policy, case.group)) or "nothing"


def show_blocking(text: str) -> str:
    """Return what blocks a policy with such a phase, and reasons of `Ready` and `Progressing`."""
    phase, *reasons = text.strip('"').split() or [""]
    conditions = [
        StatusCondition(type=kind, status="False", reason=reason)
        for kind, reason in zip(("Ready", "Progressing"), reasons, strict=bool(reasons))
    ]
    found = list_blocking(PolicyStatus(phase=phase, conditions=tuple(conditions)))
    assert {*found} <= {*REASONS}
    return " ".join(found) or "nothing"


def show_kept(text: str) -> str:
    """Return the key by which zones were found, and those that are kept."""
    status = msgspec.convert(read_yaml(text), PolicyStatus)
    key = choose_key(policy(), status)
    kept = [f"{name} in {zone}" for name, zone in map_frozen(status, key).items()]
    return f"{key}: {', '.join(kept) or 'none'}"


def show_read(text: str) -> str:
    """Return what of a status decides: the last batch, the zones and what is found of them."""
    status = msgspec.convert(read_yaml(text), PolicyStatus)
    found, batch = read_resolution(status), find_batch(status)
    shown = ["no batch" if batch is None else f"batch {batch.number} from {batch.start:%T}"]
    if batch is not None and batch.completion is not None:
        shown.append(f"complete {batch.completion:%T.%f}")
    shown += [
        f"{zone.name}: {' '.join(f'{one.name} {one.source.value}' for one in zone.sets)}"
        for zone in found.zones
    ]
    return "; ".join([*shown, found.code.value, *(one.text for one in found.findings)])


def show_dropped(text: str) -> str:
    """Return what a store that changes a status so has dropped of it."""
    case = read_policy("prev a; zone b; batch a-2 completion=-60")
    status = render_policy_status(case, plan_policy(case), before=PolicyStatus())
    stored = json.loads(msgspec.json.encode(status)) | read_yaml(text)
    kept = {key: part for key, part in stored.items() if part is not None}
    return " ".join(list_dropped(status, msgspec.convert(kept, PolicyStatus))) or "nothing"


ASK: Final[Mapping[str, Callable[[str], str]]] = {
    "blocking": show_blocking,
    "dropped": show_dropped,
    "kept": show_kept,
    "overridden": show_overridden,
    "read": show_read,
    "switched": show_switched,
}


def ask(text: str) -> str:
    word, _, rest = text.partition(" ")
    return ASK[word](rest)


test_case = check_tables(
    __file__, owners=show_owners, plan=show_plan, questions=ask, zones=show_zones
)


test_story = check_stories(__file__, statuses=StatusStage)
