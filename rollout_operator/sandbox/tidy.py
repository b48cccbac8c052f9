"""JSON as the real API server gives it back, which reads it into typed fields and writes it out.

Decides which fields vanish because they say nothing: nulls everywhere, and zeros, empty texts,
lists and maps where the type leaves them out. What a kind adds is its own rules' part. Unknown
fields vanish on the top level and in `metadata`; deeper ones pass through, where the real server
drops them too.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject

# By name, at any depth: each of these is `omitempty` in every type that has it and that we model.
_LEFT_OUT_EMPTY: Final = frozenset(
    {
        *("annotations", "args", "command", "conditions", "containerStatuses", "data", "effect"),
        *("disruptedPods", "env", "envFrom", "finalizers", "generateName", "hostIP", "hostIPs"),
        *("hostNetwork", "hostPID", "hostIPC", "hostPort", "hostname", "imagePullSecrets"),
        *("initContainerStatuses", "initContainers", "key", "labels", "limits", "matchExpressions"),
        *("matchLabels", "message", "minReadySeconds", "nodeName", "nodeSelector", "operator"),
        *("observedGeneration", "ownerReferences", "paused", "phase", "podIP", "podIPs", "ports"),
        *("readOnly", "readyReplicas", "currentReplicas", "updatedReplicas", "currentRevision"),
        *("updateRevision", "count", "reason", "requests", "rules", "schedulerName"),
        *("serviceAccountName", "stdin", "stdinOnce", "stringData", "subPath", "subdomain"),
        *("terminationMessagePath", "tolerations", "tty", "unavailableReplicas", "unschedulable"),
        *("fullyLabeledReplicas", "value", "values", "volumeClaimTemplates", "volumeMounts"),
        *("volumes", "webhooks", "workingDir", "generation", "caBundle", "containerID"),
        *("binaryData", "priorityClassName", "volumeDevices", "imagePullPolicy", "protocol"),
    }
)
# What these hold is the user's own: names in it mean nothing.
_MAPS: Final = frozenset(
    {
        *("annotations", "labels", "matchLabels", "nodeSelector", "data", "stringData"),
        *("binaryData", "limits", "requests", "disruptedPods"),
    }
)
METADATA_FIELDS: Final = frozenset(
    {
        *("name", "generateName", "namespace", "uid", "resourceVersion", "generation"),
        *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels"),
        *("annotations", "ownerReferences", "finalizers", "managedFields", "selfLink"),
    }
)
"""What the server knows in `metadata`."""
_NOT_KEPT: Final = ("managedFields", "selfLink")
_EMPTY: Final[tuple[object, ...]] = ("", 0, [], {})


def copy_json(obj: JsonObject) -> JsonObject:
    """Return a deep copy of a JSON object, several times faster than `copy.deepcopy`."""
    return {
        key: _copied(value) if isinstance(value, dict | list) else value
        for key, value in obj.items()
    }


def copy_changed(obj: JsonObject, old: JsonObject) -> JsonObject:
    """Return a deep copy but for the fields beside `metadata` that are as in `old`: those are its.

    Most updates change one of spec and status, and the other is the larger one.
    """
    return {
        key: old[key] if key != "metadata" and key in old and value == old[key] else _copied(value)
        for key, value in obj.items()
    }


def tidy(value: object) -> None:
    """Take out of a part of an object, in place, what says nothing."""
    if isinstance(value, list):
        for one in value:
            tidy(one)
    elif isinstance(value, dict):
        for key in tuple(value):
            tidy_field(value, key)


def tidy_metadata(obj: JsonObject) -> JsonObject:
    """Take out of `metadata`, in place, what says nothing or is unknown; return it.

    `managedFields` goes as well: the sandbox keeps no account of who wrote which field.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        obj["metadata"] = metadata = {}
    for key in tuple(metadata):
        if key not in METADATA_FIELDS or key in _NOT_KEPT:
            del metadata[key]
    tidy(metadata)
    for key in ("uid", "resourceVersion", "namespace", "name"):
        if metadata.get(key) == "":
            del metadata[key]
    return metadata


def tidy_field(holder: JsonObject, key: str) -> None:
    """Take one field away, in place, where it says nothing; else what says nothing in it."""
    value = holder[key]
    if value is None:
        del holder[key]
        return
    if isinstance(value, dict) and key in _MAPS:
        for name in [name for name, one in value.items() if one is None]:
            value[name] = ""  # in a map of texts, null is an empty one
    elif isinstance(value, dict | list):
        tidy(value)
    if isinstance(value, dict | list) and value:
        return
    if key in _LEFT_OUT_EMPTY and value in _EMPTY:
        del holder[key]


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return copy_json(value)
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return value
