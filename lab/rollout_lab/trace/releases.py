"""What a reader is told of releases: what is announced, held, deployed, applied and proven.

Of a Rollout its status tells it, as the operator records each step there before it acts.
"""

import re
from collections.abc import Iterator
from typing import Final

from rollout_lab.model.fields import child, children, condition_of, text
from rollout_lab.model.history import Commit
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    HEALTH_CHECKS,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    JsonObject,
    Resource,
)

_KINDS: Final = {
    ROLLOUTS: "rollout",
    ROLLOUT_GATES: "gate",
    ROLLOUT_SCHEDULES: "schedule",
    CLUSTER_ROLLOUT_SCHEDULES: "schedule",
    HEALTH_CHECKS: "check",
    **dict.fromkeys(OCI_REPOSITORIES, "source"),
    **dict.fromkeys(KUSTOMIZATIONS, "kustomization"),
}
_ENDED: Final = {"Succeeded": "has succeeded", "Failed": "has failed", "Cancelled": "is cancelled"}
# Of no use to a reader, and too long for any line.
_DIGEST: Final = re.compile("@sha256:[0-9a-f]{64}")
_WAITING: Final = "waiting "
# Conditions of a Rollout that hold something, and what they have to say for it.
_HOLDS: Final = (
    ("GatesPassing", "False"),
    ("DeploymentBlocked", "True"),
    ("UpgradePathUnknown", "True"),
    ("WantedVersionFound", "False"),
    ("TargetConflict", "True"),
)
# What a person acts on; all else that makes it so has a line of its own.
_PROBLEMS: Final = frozenset({"InvalidSpec", "FluxNotInstalled", "RolloutFailed"})


def is_of_releases(resource: Resource) -> bool:
    """Return whether `list_release_changes` knows a kind."""
    return resource in _KINDS


def name_of_release(commit: Commit) -> str:
    """Return what a line about a write begins with."""
    return f"{_KINDS[commit.resource]} {commit.name}"


def list_release_changes(commit: Commit) -> Iterator[str]:
    """Yield a sentence for each thing that a write of such an object says first."""
    for sentence in _list_changes(commit):
        yield _DIGEST.sub("", sentence)


def _list_changes(commit: Commit) -> Iterator[str]:
    before, after = commit.before or {}, commit.after
    if after is None:
        yield "it is gone"
        return
    match _KINDS[commit.resource]:
        case "rollout":
            yield from _render_rollout(before, after)
        case "gate":
            yield from _render_gate(before, after)
        case "schedule":
            yield from _render_schedule(before, after)
        case "check":
            yield from _render_check(before, after)
        case "source":
            yield from _render_flux(before, after, ("artifact", "revision"), "has fetched")
        case _:
            yield from _render_flux(before, after, ("lastAppliedRevision",), "has applied")


def _render_rollout(before: JsonObject, after: JsonObject) -> Iterator[str]:
    known = {text(child, "tag") for child in children(before, "status", "availableReleases")}
    for release in children(after, "status", "availableReleases"):
        if text(release, "tag") not in known:
            yield f"{text(release, 'tag')} is announced"
    old = {entry.get("id"): entry for entry in children(before, "status", "history")}
    for entry in reversed(children(after, "status", "history")):
        yield from _render_entry(old.get(entry.get("id"), {}), entry)
    for kind, holds in _HOLDS:
        yield from _render_condition(before, after, kind, holds)
    if text(condition_of(after, "Ready"), "reason") in _PROBLEMS:
        yield from _render_condition(before, after, "Ready", "False")


def _render_entry(before: JsonObject, after: JsonObject) -> Iterator[str]:
    tag, status = text(after, "version", "tag"), text(after, "bakeStatus")
    if not before:
        person = child(after, "triggeredBy")
        by = f", by {text(person, 'name')}" if text(person, "kind") == "User" else ""
        yield f"deploys {tag}{by}: {text(after, 'message')}"
    elif before.get("lastRetryTimestamp") != after.get("lastRetryTimestamp"):
        yield f"{tag} is tried again"
    said = text(after, "bakeStatusMessage")
    if status == text(before, "bakeStatus") and said == text(before, "bakeStatusMessage"):
        return
    if status in _ENDED:
        yield f"{tag} {_ENDED[status]}{said and ': '}{said}"
    elif status == "InProgress":
        yield f"{tag} bakes: {said}"
    elif said:
        yield f"{tag} is {said}" if said.startswith(_WAITING) else f"{tag}: {said}"


def _render_condition(
    before: JsonObject, after: JsonObject, kind: str, holds: str
) -> Iterator[str]:
    was, now = condition_of(before, kind), condition_of(after, kind)
    if text(now, "status") != holds:
        return
    if (text(was, "status"), text(was, "message")) != (holds, text(now, "message")):
        yield f"{text(now, 'message')} [{text(now, 'reason')}]"


def _render_gate(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "spec").get("passing"), child(after, "spec").get("passing")
    if was is not now:
        yield "is open" if now else "is closed"


def _render_schedule(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "status"), child(after, "status")
    if was.get("active") is not now.get("active"):
        until = text(now, "nextTransition")
        state = "is active" if now.get("active") else "is not active"
        yield f"{state}{until and f' until {until}'}"
    yield from _render_condition(before, after, "Ready", "False")


def _render_check(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "status"), child(after, "status")
    if text(was, "status") != text(now, "status"):
        said = text(now, "message")
        yield f"is {text(now, 'status')}{said and ': '}{said}"


def _render_flux(
    before: JsonObject, after: JsonObject, path: tuple[str, ...], verb: str
) -> Iterator[str]:
    tags = [text(version, "spec", "ref", "tag") for version in (before, after)]
    if before and tags[0] != tags[1]:
        yield f"is to have {tags[1]} instead of {tags[0] or 'none'}"
    variables = [child(version, "spec", "postBuild", "substitute") for version in (before, after)]
    for name, value in variables[1].items():
        if before and variables[0].get(name) != value:
            yield f"{name} is to be {value} instead of {variables[0].get(name, 'nothing')}"
    revision = text(after, "status", *path)
    if revision != text(before, "status", *path):
        yield f"{verb} {revision.partition('@')[0]}"
    yield from _render_condition(before, after, "Ready", "False")
