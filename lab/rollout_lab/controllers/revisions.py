"""ControllerRevisions of a StatefulSet: what they hold, how they are named, which may be forgotten.

Pure. The name carries a hash of the pod template, made as the real controller makes it.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from rollout_lab.controllers.members import API_VERSION, owner_reference
from rollout_lab.model.fields import child, name_of, namespace_of, number, text
from rollout_operator.kube.api import JsonObject

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


def template_of(revision: JsonObject) -> JsonObject:
    """Return the pod template that a revision keeps."""
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


def restored_revisions(sts: JsonObject, *, is_seen: bool) -> list[JsonObject]:
    """Return the revisions that a copied set must have had, which were not copied with it.

    Its status names them. The newest is that of its template where the controller has seen that
    (`is_seen`); what another revision kept is not known, and the controller needs only its name.
    """
    current = text(sts, "status", "currentRevision")
    update = text(sts, "status", "updateRevision")
    kept = [_named(sts, current, {"unknown": current}, 1)] if current != update else []
    data: JsonObject = data_of(sts) if is_seen else {"unknown": update}
    return [*kept, _named(sts, update, data, 2)] if update else []


def _named(sts: JsonObject, name: str, data: JsonObject, number_of_it: int) -> JsonObject:
    revision = new_revision(sts, number_of_it, 0)
    head: JsonObject = {**child(revision, "metadata"), "name": name}
    return {**revision, "metadata": head, "data": data}
