"""Pods and revisions of a StatefulSet: which are its own, and what new ones look like.

Pure. Sets that claim volumes are not modelled.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from rollout_lab.model.fields import (
    child,
    children,
    is_terminating,
    moment_of,
    name_of,
    namespace_of,
    number,
    text,
    uid_of,
)
from rollout_lab.schemas.metadata import labels_of, matches
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import PARALLEL, REVISION_LABEL

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
API_VERSION: Final = "apps/v1"
STATEFULSET: Final = "StatefulSet"

_NAME: Final = re.compile(r"(.*)-([0-9]+)$")
_MOST_ORDINAL: Final = 2**31 - 1


class Member(msgspec.Struct, kw_only=True):
    """One version of a pod, and what the controller reads of it again and again: read once."""

    pod: JsonObject
    name: str
    parent: str
    """The name of a set, as its own name has it; see `parse_name`."""
    ordinal: int
    labels: Mapping[str, str]
    revision: str
    phase: str
    ready_since: str | None
    is_terminating: bool

    @property
    def is_running_and_ready(self) -> bool:
        """Return whether the controller counts it as ready; a terminating pod may well be."""
        return self.phase == "Running" and self.ready_since is not None

    def is_available(self, min_ready: int, now: datetime) -> bool:
        """Return whether it has been ready for `min_ready` seconds, whatever its phase."""
        since = self.ready_since
        if since is None:
            return False
        if min_ready == 0:
            return True
        return since != "" and moment_of(since) + timedelta(seconds=min_ready) <= now

    def is_unavailable(self, min_ready: int, now: datetime) -> bool:
        """Return whether it does not count as up: unavailable, or on its way out."""
        return self.is_terminating or not self.is_available(min_ready, now)

    def has_identity(self, set_name: str) -> bool:
        """Return whether name and label are those of a member of the set."""
        return (
            self.ordinal >= 0
            and self.parent == set_name
            and self.name == f"{set_name}-{self.ordinal}"
            and self.labels.get(POD_NAME_LABEL) == self.name
        )


def read_member(pod: JsonObject) -> Member:
    parent, ordinal = parse_name(pod)
    labels = labels_of(pod)
    return Member(
        pod=pod,
        name=name_of(pod),
        parent=parent,
        ordinal=ordinal,
        labels=labels,
        revision=labels.get(REVISION_LABEL, ""),
        phase=phase_of(pod),
        ready_since=ready_since(pod),
        is_terminating=is_terminating(pod),
    )


def parse_name(pod: JsonObject) -> tuple[str, int]:
    """Return the names of set and ordinal in a pod's name; -1 where it holds none."""
    match = _NAME.match(name_of(pod))
    if match is None:
        return "", -1
    ordinal = int(match[2])
    return match[1], ordinal if ordinal <= _MOST_ORDINAL else -1


def ordinals_of(sts: JsonObject) -> range:
    start = number(sts, "spec", "ordinals", "start")
    return range(start, start + number(sts, "spec", "replicas", default=1))


def is_parallel(sts: JsonObject) -> bool:
    """Return whether pods come and go without waiting for one another."""
    return text(sts, "spec", "podManagementPolicy") == PARALLEL


def selects(sts: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a set's selector matches labels."""
    return matches(child(sts, "spec", "selector"), labels)


def phase_of(pod: JsonObject) -> str:
    """Return the phase; empty for a pod that is not there yet."""
    return text(pod, "status", "phase")


def is_running_and_ready(pod: JsonObject) -> bool:
    """Return whether the controller counts it as ready; a terminating pod may well be."""
    return phase_of(pod) == "Running" and ready_since(pod) is not None


def ready_since(pod: JsonObject) -> str | None:
    """Return since when the condition Ready is true, None where it is not."""
    for condition in children(pod, "status", "conditions"):
        if condition.get("type") == "Ready":
            return (
                text(condition, "lastTransitionTime") if condition.get("status") == "True" else None
            )
    return None


def owner_reference(sts: JsonObject) -> JsonObject:
    return {
        "apiVersion": API_VERSION,
        "kind": STATEFULSET,
        "name": name_of(sts),
        "uid": uid_of(sts),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_pod(sts: JsonObject, template: JsonObject, revision: str, ordinal: int) -> JsonObject:
    """Return a pod that is to be created; it shares the parts of the template."""
    name = f"{name_of(sts)}-{ordinal}"
    identity = {
        REVISION_LABEL: revision,
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
    }
    metadata: JsonObject = {
        "name": name,
        "generateName": f"{name_of(sts)}-",
        "namespace": namespace_of(sts),
        "labels": {**child(template, "metadata", "labels"), **identity},
        "ownerReferences": [owner_reference(sts)],
    }
    head = child(template, "metadata")
    metadata |= {key: head[key] for key in ("annotations", "finalizers") if head.get(key)}
    spec: JsonObject = {**child(template, "spec"), "hostname": name}
    service = text(sts, "spec", "serviceName")
    if service:
        spec["subdomain"] = service
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


HASH_LABEL: Final = "controller.kubernetes.io/hash"

# Of `rand.SafeEncodeString`: no vowels, so that no hash spells a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_START: Final = 2166136261
_FNV_PRIME: Final = 16777619
_LONGEST_PREFIX: Final = 223
_DEFAULT_LIMIT: Final = 10


def data_of(sts: JsonObject) -> JsonObject:
    """Return what a revision keeps: a strategic patch that brings the pod template back."""
    return {"spec": {"template": {**child(sts, "spec", "template"), "$patch": "replace"}}}


def with_images(sts: JsonObject, images: Mapping[str, str]) -> JsonObject:
    """Return a set whose template has these images, by container."""
    spec, template = child(sts, "spec"), child(sts, "spec", "template")
    containers = [
        {**container, "image": images.get(text(container, "name"))}
        for container in children(template, "spec", "containers")
    ]
    changed = {**template, "spec": {**child(template, "spec"), "containers": containers}}
    return {**sts, "spec": {**spec, "template": changed}}


def template_of(revision: JsonObject) -> JsonObject:
    kept = child(revision, "data", "spec", "template")
    return {key: value for key, value in kept.items() if key != "$patch"}


def hash_of(data: JsonObject, collisions: int) -> str:
    """Return the hash in a revision's name: FNV-1 over its JSON and the count of collisions."""
    encoded = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&":  # as Go writes them
        encoded = encoded.replace(char, f"\\u{ord(char):04x}")
    return _spell_hash(f"{encoded}{collisions}")


@lru_cache(maxsize=256)
def _spell_hash(text: str) -> str:
    """Return FNV-1 as letters. The runs of one scenario all need the same few."""
    result = _FNV_START
    for byte in text.encode():
        result = (result * _FNV_PRIME & 0xFFFFFFFF) ^ byte
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(result))


def new_revision(sts: JsonObject, number_of_it: int, collisions: int) -> JsonObject:
    """Return the revision of a set's present template, to be created."""
    data = data_of(sts)
    name = hash_of(data, collisions)
    labels = child(sts, "spec", "template", "metadata", "labels")
    return {
        "apiVersion": API_VERSION,
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{name_of(sts)[:_LONGEST_PREFIX]}-{name}",
            "namespace": namespace_of(sts),
            "labels": {**labels, HASH_LABEL: name},
            "annotations": dict(child(sts, "metadata", "annotations")),
            "ownerReferences": [owner_reference(sts)],
        },
        "data": data,
        "revision": number_of_it,
    }


def in_order(revisions: Iterable[JsonObject]) -> list[JsonObject]:
    """Return revisions by number, then age, then name."""
    return sorted(
        revisions,
        key=lambda revision: (
            number(revision, "revision"),
            text(revision, "metadata", "creationTimestamp"),
            name_of(revision),
        ),
    )


def next_number(ordered: Sequence[JsonObject]) -> int:
    """Return the number of the next revision."""
    return number(ordered[-1], "revision") + 1 if ordered else 1


def find_equal(ordered: Sequence[JsonObject], sts: JsonObject) -> JsonObject | None:
    """Return the newest revision that keeps a set's present template, None where none does."""
    data = data_of(sts)
    return next((obj for obj in reversed(ordered) if obj.get("data") == data), None)


def list_forgotten(
    sts: JsonObject, ordered: Sequence[JsonObject], live: Iterable[str]
) -> list[JsonObject]:
    """Return the oldest revisions beyond the set's limit; `live` revisions do not count."""
    names = set(live)
    history = [obj for obj in ordered if name_of(obj) not in names]
    limit = number(sts, "spec", "revisionHistoryLimit", default=_DEFAULT_LIMIT)
    return history[: len(history) - limit] if 0 <= limit < len(history) else []


def restored_revisions(
    sts: JsonObject, *, is_seen: bool, images: Mapping[str, Mapping[str, str]] | None = None
) -> list[JsonObject]:
    """Return the revisions that a copied set must have had, which were not copied with it.

    Its status names them, and `images` those that differ in these only, by container. The newest is
    that of its template where the controller has seen that (`is_seen`); what another revision kept
    is not known, and the controller needs only its name.
    """
    current = text(sts, "status", "currentRevision")
    update = text(sts, "status", "updateRevision")
    known = {name: data_of(with_images(sts, each)) for name, each in (images or {}).items()}
    names = [*sorted(known.keys() - {current, update}), *([current] if current != update else [])]
    kept = [
        _named(sts, name, known.get(name, {"unknown": name}), place)
        for place, name in enumerate(names, 1)
    ]
    data: JsonObject = data_of(sts) if is_seen else {"unknown": update}
    return [*kept, _named(sts, update, data, len(kept) + 1)] if update else []


def _named(sts: JsonObject, name: str, data: JsonObject, number_of_it: int) -> JsonObject:
    revision = new_revision(sts, number_of_it, 0)
    head: JsonObject = {**child(revision, "metadata"), "name": name}
    return {**revision, "metadata": head, "data": data}
