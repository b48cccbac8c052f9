"""What is left out before transcripts are compared, and why it may be.

Each entry is something that the operator does not read and that the sandbox does not promise.
"""

from collections.abc import Mapping
from typing import Any, Final

# Who wrote which field is compared by those sequences that apply, as far as the operator reads it.
DROPPED_METADATA: Final = ("managedFields", "selfLink")
# `name`, `kind`, `group` and `uid` repeat what the caller requested; we read causes and seconds.
KEPT_DETAILS: Final = ("causes", "retryAfterSeconds")
# Set by admission plugins of the real server which belong to service accounts, priorities and
# nodes: nothing in a StatefulSet's rollout reads them.
DROPPED_POD_SPEC: Final = (
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
    "priority",
    "preemptionPolicy",
    "enableServiceLinks",
    "automountServiceAccountToken",
)
# Defaults of every pod template that nothing reads: the scheduler's and the kubelet's business.
DROPPED_DEFAULTS: Final[Mapping[str, object]] = {
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
TEXTS: Final = ("message", "text")
DROPPED_POD_STATUS: Final = ("qosClass",)
# The sandbox drops such a field as the real server does, and warns of none: nothing reads it.
DROPPED_WARNING: Final = "unknown field "
# Sequences whose refusals are worded by Go's decoders, with Go's names of types: codes and reasons
# are compared, the words are not.
TEXTS_OF_GO: Final = frozenset({"clients/a_token_that_is_none", "lists/a_token_that_is_none"})
Json = Any


def without_noise(value: Json) -> Json:
    """Return JSON without what the two worlds need not share."""
    if isinstance(value, list):
        return [without_noise(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: without_noise(each)
        for key, each in value.items()
        if not (key in DROPPED_DEFAULTS and DROPPED_DEFAULTS[key] == each)
    }
    for key, names in (
        ("metadata", DROPPED_METADATA),
        ("spec", DROPPED_POD_SPEC),
        ("status", DROPPED_POD_STATUS),
    ):
        _drop(kept, key, names)
    if "warnings" in kept:
        kept["warnings"] = [
            text for text in kept["warnings"] if not str(text).startswith(DROPPED_WARNING)
        ]
        if not kept["warnings"]:
            del kept["warnings"]
    return _plain_status(kept) if kept.get("kind") == "Status" else kept


def _plain_status(status: dict[str, Json]) -> dict[str, Json]:
    """Return a Status without an empty reason, and each cause once.

    The real server checks the metadata of some objects twice and says so twice.
    """
    if not status.get("reason"):
        status.pop("reason", None)
    kept = {key: each for key, each in status.pop("details", {}).items() if key in KEPT_DETAILS}
    if "causes" in kept:
        causes: list[Json] = []
        causes.extend(cause for cause in kept["causes"] if cause not in causes)
        kept["causes"] = causes
    return {**status, "details": kept} if kept else status


def _drop(value: dict[str, Json], key: str, names: tuple[str, ...]) -> None:
    inner = value.get(key)
    if isinstance(inner, dict):
        value[key] = {name: each for name, each in inner.items() if name not in names}


def without_texts(value: Json) -> Json:
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    if isinstance(value, dict):
        return {key: without_texts(each) for key, each in value.items() if key not in TEXTS}
    return value
