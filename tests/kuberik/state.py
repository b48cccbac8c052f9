"""What is compared of the objects of a namespace, by field; texts of messages are not."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.world.api import Json

State = Mapping[str, str]
_KUBERIK: Final = "rollout.kuberik.com/"
# Additions of this operator, and its words for one thing: a01 and d15 show these two.
_OWN: Final = {"Reconciling", "Stalled", "WantedVersionFound"}
COMMON: Final = {
    "a01": ("False NoAllowedVersions", "True NoReleaseCandidates"),
    "d15": ("False BakeTimeFailed", "False BakeTimeRetrying"),
}


def read_state(objects: Mapping[str, Sequence[Json]]) -> State:
    """Return the fields of a namespace from its objects by kind."""
    gates = {one["metadata"]["name"]: _name_gate(one) for one in objects["RolloutGate"]}
    fields: dict[str, str] = {}
    for one in objects["Rollout"]:
        fields |= _prefix(one, "", dict(_read_rollout(one, gates)))
    for one in objects["RolloutGate"]:
        spec = one["spec"]
        shown = {
            key: value
            for key, value in (one["metadata"].get("annotations") or {}).items()
            if key.startswith("gate.kuberik.com/")
        }
        text = f"{spec.get('passing')} {spec.get('allowedVersions')} {json.dumps(shown)}"
        fields[f"gate:{_name_gate(one)}"] = text
    for one in (*objects["RolloutSchedule"], *objects["ClusterRolloutSchedule"]):
        status = one.get("status") or {}
        fields |= _prefix(one, "schedule", {
            "active": f"{status.get('active', False)} {status.get('activeRules') or []}",
            "matching": f"{status.get('matchingRollouts', 0)}",
            "next": f"{status.get('nextTransition')}",
        })  # fmt: skip
    for one in objects["HealthCheck"]:
        status = one.get("status") or {}
        text = f"{status.get('status')} {'error' if 'lastErrorTime' in status else ''}"
        fields |= _prefix(one, "check", {"": text})
    for one in objects["OCIRepository"]:
        fields |= _prefix(one, "source", {"": json.dumps(one["spec"].get("ref"), sort_keys=True)})
    for one in objects["Kustomization"]:
        build = one["spec"].get("postBuild") or {}
        text = json.dumps(build.get("substitute"), sort_keys=True)
        fields |= _prefix(one, "variables", {"": text})
    return fields


def list_differing(name: str, peer: State, ours: State) -> Iterator[str]:
    """Yield the fields in which two states of a scenario differ."""
    common = [pair for one, pair in COMMON.items() if one != name]
    for field in sorted({*peer, *ours}):
        pair = (peer.get(field, "-"), ours.get(field, "-"))
        if pair[0] != pair[1] and pair not in common:
            yield field


def _prefix(one: Json, kind: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return fields under the name of their object; `app` is the usual one."""
    name = one["metadata"]["name"]
    own = "" if name == "app" else f"{name}."
    return {
        f"{kind}:{own}{field}".strip(":.") if kind else f"{own}{field}": value
        for field, value in fields.items()
    }


def _name_gate(gate: Json) -> str:
    """Return a name that does not depend on how its schedule names it."""
    for owner in gate["metadata"].get("ownerReferences") or []:
        return f"{owner['name']}/{gate['spec']['rolloutRef']['name']}"
    return str(gate["metadata"]["name"])


def _read_rollout(rollout: Json, gates: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    status = rollout.get("status") or {}
    yield "history", ", ".join(map(_show_entry, status.get("history") or []))
    for key in ("releaseCandidates", "gatedReleaseCandidates", "availableReleases"):
        tags = [f"{one['tag']}@{one.get('digest') or ''}"[:24] for one in status.get(key) or []]
        yield key, " ".join(tags)
    shown = [
        f"{gates.get(one['name'], one['name'])} {one.get('passing')} {one.get('allowedVersions')}"
        for one in status.get("gates") or []
    ]
    yield "gates", ", ".join(sorted(shown))
    for one in status.get("conditions") or []:
        if one["type"] not in _OWN:
            yield one["type"], f"{one['status']} {one['reason']}"
    notes = rollout["metadata"].get("annotations") or {}
    own = {key: text[:80] for key, text in notes.items() if key.startswith(_KUBERIK)}
    yield "annotations", json.dumps(own, sort_keys=True)
    yield "wantedVersion", str(rollout["spec"].get("wantedVersion"))


def _show_entry(entry: Mapping[str, Any]) -> str:
    by = entry.get("triggeredBy") or {}
    times = [
        word
        for word, key in (
            ("begun", "bakeStartTime"),
            ("over", "bakeEndTime"),
            ("retried", "lastRetryTimestamp"),
        )
        if entry.get(key)
    ]
    failed = sorted(one["name"] for one in entry.get("failedHealthChecks") or [])
    words = [
        f"{entry.get('id')}:{entry['version']['tag']}",
        str(entry.get("bakeStatus")),
        f"{by.get('kind')}/{by.get('name')}",
        *times,
        *failed,
    ]
    return " ".join(words)
