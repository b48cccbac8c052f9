"""Rules that all kinds share: names, labels and what an update of `metadata` cannot change.

Who sets uid, creationTimestamp, resourceVersion and namespace is the server's frame
(`lab.apiserver.api`).
"""

import json
import re
from collections.abc import Container, Mapping
from typing import Final

import msgspec

from rollout_lab.model.fields import child, children, metadata_of, name_of, text
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest, NotModelled
from rollout_operator.kube.api import JsonObject, Resource

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_INCONSISTENT: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class ContinueExpired(ApiRefusal):
    """The versions that a list was begun at are forgotten; brings a token to go on regardless."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", _INCONSISTENT)
        self.token = token

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        answer = super().answer()
        answer.body["metadata"] = {"continue": self.token}
        return answer


class NoPage(ApiRefusal):
    """No server has the API group: answered by the HTTP server itself, in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        return ApiAnswer(status=404, body={"text": "404 page not found\n"})


class BadField(NotModelled):
    """A value that the real server would refuse in words of its own."""

    def __init__(self, field: str, value: object) -> None:
        self.field = field
        self.value = json.dumps(value, default=str)
        super().__init__(f"the simulation does not model the refusal of {field}: {self.value}")


def expect(is_valid: bool, field: str, value: object) -> None:
    """Raise BadField for a value that the real server would refuse."""
    if not is_valid:
        raise BadField(field, value)


def expect_one_of(known: Container[object], field: str, value: object) -> None:
    """Raise NotModelled for a value that is none of those which are known."""
    expect(value in known, field, value)


def expect_counts(holder: JsonObject, *keys: str) -> None:
    """Raise NotModelled for a number below zero."""
    for key in keys:
        value = holder.get(key)
        expect(not isinstance(value, int) or value >= 0, key, value)


def qualified(resource: Resource) -> str:
    """Return a resource as messages name it: `statefulsets.apps`, `pods`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def invalid(kind: str, name: str, field: str, value: object, why: str) -> ApiRefusal:
    """Return the refusal for one field that is malformed, or may not change."""
    found = f"Invalid value: {msgspec.json.encode(value).decode()}: {why}"
    causes: list[JsonObject] = [{"reason": "FieldValueInvalid", "message": found, "field": field}]
    return ApiRefusal(
        422, "Invalid", f'{kind} "{name}" is invalid: {field}: {found}', causes=causes
    )


def check_not_negative(kind: str, name: str, field: str, value: object) -> None:
    """Raise Refusal (422) for a number below zero."""
    if isinstance(value, int) and value < 0:
        raise invalid(kind, name, field, value, "must be greater than or equal to 0")


def not_found(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal for an object that does not exist."""
    return ApiRefusal(404, "NotFound", f'{qualified(resource)} "{name}" not found')


def no_namespace(name: str) -> ApiRefusal:
    """Return the refusal for a creation in a namespace that does not exist."""
    return ApiRefusal(404, "NotFound", f'namespaces "{name}" not found')


def no_resource() -> ApiRefusal:
    """Return the refusal for a path that leads nowhere."""
    return ApiRefusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiRefusal:
    return ApiRefusal(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists')


def conflict(target: str, name: str, why: str) -> ApiRefusal:
    """Return the refusal for a write that rests on another state of the object."""
    return ApiRefusal(409, "Conflict", f'Operation cannot be fulfilled on {target} "{name}": {why}')


def bad_request(message: str) -> ApiRefusal:
    """Return the refusal for a request that cannot be understood."""
    return ApiRefusal(400, "BadRequest", message)


def timed_out() -> ApiRefusal:
    """Return the refusal of a request that took longer than the server lets it."""
    text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiRefusal(504, "Timeout", text)


def refuse_list() -> ApiRefusal:
    return ApiRefusal(410, "Expired", "The resourceVersion for the provided list is too old.")


def refuse_watch(wanted: int, oldest: int) -> ApiRefusal:
    return ApiRefusal(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def forbidden(request: ApiRequest) -> ApiRefusal:
    """Return the refusal for what the caller's role does not allow."""
    resource, name = request.resource, request.name
    plural = resource.plural + (f"/{request.subresource}" if request.subresource else "")
    scope = (
        f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    )
    target = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    message = (
        f'{target} is forbidden: User "{request.user}" cannot {request.verb} resource "{plural}" '
        f'in API group "{resource.group}" {scope}'
    )
    return ApiRefusal(403, "Forbidden", message)


_FORMS: Final = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def strings(obj: JsonObject, *path: str) -> dict[str, str]:
    """Return the map of texts at a path, an empty map where there is none."""
    return {key: label for key, label in child(obj, *path).items() if isinstance(label, str)}


def labels_of(obj: JsonObject) -> dict[str, str]:
    return strings(obj, "metadata", "labels")


def is_empty(selector: JsonObject) -> bool:
    """Return whether it wants nothing, and so matches everything."""
    return not (selector.get("matchLabels") or selector.get("matchExpressions"))


def matches(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches labels; an empty selector matches all."""
    for key, value in child(selector, "matchLabels").items():
        if isinstance(value, str) and labels.get(key) != value:
            return False
    return all(_holds(expression, labels) for expression in children(selector, "matchExpressions"))


def render(selector: JsonObject) -> str:
    """Return it as `status.selector` of a Scale carries it: sorted by key."""
    parts = [(key, f"{key}={value}") for key, value in strings(selector, "matchLabels").items()]
    for expression in children(selector, "matchExpressions"):
        key, values = text(expression, "key"), ",".join(sorted(_values(expression)))
        parts.append((key, _FORMS[text(expression, "operator")].format(key=key, values=values)))
    return ",".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def _holds(requirement: JsonObject, labels: Mapping[str, str]) -> bool:
    key, operator = text(requirement, "key"), text(requirement, "operator")
    if operator in ("In", "NotIn"):
        return (labels.get(key) in _values(requirement)) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (key in labels) is (operator == "Exists")
    raise BadField("matchExpressions.operator", operator)


def _values(requirement: JsonObject) -> list[str]:
    values = requirement.get("values")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD: Final = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253
_FIXED: Final = ("name", "namespace", "uid")
_OF_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")

_NUMBERS: Final = ("replicas", "minReadySeconds", "revisionHistoryLimit")
# Kinds whose fields are judged by a schema, after they were read.
_BY_SCHEMA: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})
_NAMES: Final = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}


def explain_undecodable(obj: JsonObject) -> str:
    """Return why an object cannot be read at all, in the words of the decoder; empty where it can.

    Decides for the fields that all objects share and those that decide a rollout; others pass.
    """
    for key in ("spec", "status", "metadata"):
        value = obj.get(key)
        if value is not None and not isinstance(value, dict):
            return _render_undecodable(value, key, "struct")
    metadata, spec = metadata_of(obj), obj.get("spec")
    for key in ("labels", "annotations"):
        if text := _explain_map(metadata.get(key), f"metadata.{key}"):
            return text
    if isinstance(spec, dict) and obj.get("kind") not in _BY_SCHEMA:
        for key in _NUMBERS:
            value = spec.get(key)
            if value is not None and type(value) is not int:
                return _render_undecodable(value, f"spec.{key}", "int32")
    return ""


def _explain_map(value: object, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return _render_undecodable(value, field, "map[string]string")
    for key, item in value.items():
        if item is not None and not isinstance(item, str):
            return _render_undecodable(item, f"{field}.{key}", "string")
    return ""


def _render_undecodable(value: object, field: str, wanted: str) -> str:
    found = _NAMES.get(type(value), "object")
    return f"json: cannot unmarshal {found} into Go struct field .{field} of type {wanted}"


def check_name(field: str, name: str, *, is_label: bool = False) -> None:
    """Raise NotModelled where a name is no DNS subdomain, or no DNS label."""
    longest = _LONGEST_LABEL if is_label else _LONGEST_NAME
    has_form = _NAME.fullmatch(name) and not (is_label and "." in name)
    expect(bool(has_form) and len(name) <= longest, field, name)


def check_metadata(obj: JsonObject) -> None:
    """Raise NotModelled for what is malformed in labels, annotations and owner references."""
    check_labels("metadata.labels", strings(obj, "metadata", "labels"))
    for key in strings(obj, "metadata", "annotations"):
        _check_key("metadata.annotations", key.lower())
    owners = children(obj, "metadata", "ownerReferences")
    for owner in owners:
        expect(all(owner.get(part) for part in ("kind", "name", "uid")), "owner", owner)
    expect(sum(owner.get("controller") is True for owner in owners) <= 1, "owners", owners)


def check_labels(field: str, labels: dict[str, str]) -> None:
    """Raise NotModelled for labels whose key or value is malformed."""
    for key, value in labels.items():
        _check_key(field, key)
        has_form = not value or _WORD.fullmatch(value)
        expect(bool(has_form) and len(value) <= _LONGEST_LABEL, field, value)


def _check_key(field: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    has_form = _WORD.fullmatch(name) and (not slash or _NAME.fullmatch(prefix))
    expect(bool(has_form) and len(name) <= _LONGEST_LABEL, field, key)


def keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Put back in `new.metadata` what an update can never change, whatever it says."""
    before, after = metadata_of(old), metadata_of(new)
    for key in ("generation", "creationTimestamp"):
        after.pop(key, None)
        if key in before:
            after[key] = before[key]
    after.setdefault("uid", before.get("uid"))
    if "deletionTimestamp" in before:
        after["deletionTimestamp"] = before["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in before:
            after.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])


def check_metadata_update(resource: Resource, old: JsonObject, new: JsonObject) -> None:
    """Raise Refusal (422) where what may not change in `metadata` did."""
    before, after = metadata_of(old), metadata_of(new)
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    for key in _FIXED:
        if after.get(key) != before.get(key):
            value = str(after.get(key) or "")
            raise invalid(kind, name_of(old), f"metadata.{key}", value, "field is immutable")
    for key in _OF_DELETION:
        expect(after.get(key) == before.get(key), f"metadata.{key}", after.get(key))
    if "deletionTimestamp" in before:
        known, found = before.get("finalizers"), after.get("finalizers")
        listed = known if isinstance(known, list) else []
        added = [item for item in found if item not in listed] if isinstance(found, list) else []
        expect(not added, "finalizers of what is being deleted", added)
    check_metadata(new)


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
