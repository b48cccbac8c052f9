"""JSON as the real API server gives it back, which reads it into typed fields and writes it out.

Decides which fields vanish because they say nothing: nulls everywhere, and zeros, empty texts,
lists and maps where the type leaves them out. What a kind adds is its own rules' part. Unknown
fields vanish on the top level and in `metadata`; deeper fields pass through, where the real server
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
# What the server knows in `metadata`, without an account of who wrote which field.
_KEPT_METADATA: Final = frozenset(
    {
        *("name", "generateName", "namespace", "uid", "resourceVersion", "generation"),
        *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels"),
        *("annotations", "ownerReferences", "finalizers"),
    }
)


def copy_json(obj: JsonObject) -> JsonObject:
    """Return a deep copy of a JSON object, several times faster than `copy.deepcopy`."""
    return {
        key: copy_value(value) if isinstance(value, dict | list) else value
        for key, value in obj.items()
    }


def copy_value(value: object) -> object:
    """Return a deep copy of a part of an object."""
    if isinstance(value, dict):
        return copy_json(value)
    if isinstance(value, list):
        return [copy_value(item) for item in value]
    return value


def copy_head(obj: JsonObject) -> JsonObject:
    """Return a copy whose top level and `metadata` may be changed; all else is shared."""
    metadata = obj.get("metadata")
    return {**obj, "metadata": {**metadata}} if isinstance(metadata, dict) else {**obj}


def tidied(value: object) -> object:
    """Return a deep copy of a part of an object, without what says nothing in it."""
    if isinstance(value, list):
        return [tidied(item) for item in value]
    return tidied_fields(value) if isinstance(value, dict) else value


def tidied_fields(holder: JsonObject) -> JsonObject:
    """Return a deep copy of an object, or a part of it, without what says nothing."""
    kept: JsonObject = {}
    for key, value in holder.items():
        if isinstance(value, dict):
            # In a map of texts, null is an empty text.
            value = _filled(value) if key in _MAPS else tidied_fields(value)
        elif isinstance(value, list):
            value = [tidied(item) for item in value]
        if value or (value is not None and key not in _LEFT_OUT_EMPTY):
            kept[key] = value
    return kept


def tidied_metadata(obj: JsonObject) -> JsonObject:
    """Return a deep copy of `metadata` without what says nothing or is unknown."""
    found = obj.get("metadata")
    given = found if isinstance(found, dict) else {}
    metadata = tidied_fields({key: given[key] for key in given if key in _KEPT_METADATA})
    for key in ("uid", "resourceVersion", "namespace", "name"):
        if metadata.get(key) == "":
            del metadata[key]
    return metadata


def _filled(texts: JsonObject) -> JsonObject:
    return {key: "" if text is None else copy_value(text) for key, text in texts.items()}
