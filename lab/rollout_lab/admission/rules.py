"""Webhooks as their configurations register them, and which writes each of them reviews.

Decides matching by rules, namespace and labels. That a webhook is called, in which order and with
what result, is `webhooks`' part.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from rollout_lab.model.fields import child, children, name_of, number, text
from rollout_lab.model.request import not_modelled
from rollout_lab.schemas.kinds import NAMESPACES, ObjectKind
from rollout_lab.schemas.labels import is_empty, labels_of, matches
from rollout_operator.kube.api import JsonObject

_EXEMPT: Final = "admissionregistration.k8s.io"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A write that is to be reviewed."""

    operation: Literal["CREATE", "UPDATE", "DELETE"]
    kind: ObjectKind
    subresource: str
    namespace: str
    name: str
    user: str
    call: int
    """Number of the request."""
    old: JsonObject | None
    new: JsonObject | None
    """Of the subresource where there is one: a Scale, an Eviction."""
    dry_run: bool
    options: JsonObject
    namespace_labels: Mapping[str, str] = {}
    deadline: timedelta | None = None
    """When the request is given up, since the world began; None where it is not told."""

    @property
    def target(self) -> str:
        """Return the resource with its subresource, as in `statefulsets/scale`."""
        plural = self.kind.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


class RegisteredHook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration, with its defaults filled in."""

    name: str
    address: str
    """`https://host:port`, as errors show it."""
    path: str
    service: str
    """`namespace/name` of the Service, or the URL's host."""
    timeout: timedelta
    is_ignored: bool
    """Whether a call that fails counts for nothing (`failurePolicy: Ignore`)."""
    has_side_effects: bool
    """Also in a dry run."""
    is_reinvoked: bool
    rules: Sequence[JsonObject]
    namespaces: JsonObject
    objects: JsonObject
    conditions: bool

    def wants(self, attempt: Attempt, obj: JsonObject | None) -> bool:
        """Return whether it reviews an attempt; `obj` is the new object as it is by now."""
        if not any(_fits(rule, attempt) for rule in self.rules):
            return False
        if attempt.kind.resource.group == _EXEMPT:
            return False
        if not self._fits_namespace(attempt) or not self._fits_object(attempt, obj):
            return False
        if self.conditions:
            not_modelled(f"matchConditions, which the webhook {self.name} has")
        return True

    def _fits_namespace(self, attempt: Attempt) -> bool:
        if is_empty(self.namespaces):
            return True
        if attempt.kind.resource == NAMESPACES:
            shown = attempt.new or attempt.old or {}
            return matches(self.namespaces, labels_of(shown))
        # What belongs to the cluster is never exempted by it.
        return not attempt.namespace or matches(self.namespaces, attempt.namespace_labels)

    def _fits_object(self, attempt: Attempt, obj: JsonObject | None) -> bool:
        return is_empty(self.objects) or any(
            item is not None and matches(self.objects, labels_of(item))
            for item in (obj, attempt.old)
        )


def read_hooks(configurations: Sequence[JsonObject]) -> tuple[RegisteredHook, ...]:
    """Return the webhooks of configurations in the order in which they are called."""
    in_order = sorted(configurations, key=name_of)
    return tuple(_read_hook(hook) for item in in_order for hook in children(item, "webhooks"))


def _read_hook(hook: JsonObject) -> RegisteredHook:
    address, path, service = _target(child(hook, "clientConfig"))
    versions = hook.get("admissionReviewVersions")
    if not isinstance(versions, list) or "v1" not in versions:
        not_modelled(f"the webhook {text(hook, 'name')}, which does not take AdmissionReview v1")
    return RegisteredHook(
        name=text(hook, "name"),
        address=address,
        path=path,
        service=service,
        timeout=timedelta(seconds=number(hook, "timeoutSeconds")),
        is_ignored=hook.get("failurePolicy") == "Ignore",
        has_side_effects=hook.get("sideEffects") not in ("None", "NoneOnDryRun"),
        is_reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        rules=children(hook, "rules"),
        namespaces=child(hook, "namespaceSelector"),
        objects=child(hook, "objectSelector"),
        conditions=bool(hook.get("matchConditions")),
    )


def _target(config: JsonObject) -> tuple[str, str, str]:
    service = child(config, "service")
    if service:
        name, namespace = text(service, "name"), text(service, "namespace")
        host = f"https://{name}.{namespace}.svc:{number(service, 'port', default=443)}"
        return host, text(service, "path") or "/", f"{namespace}/{name}"
    url = urlsplit(text(config, "url"))
    return f"{url.scheme}://{url.netloc}", url.path or "/", url.netloc


def _fits(rule: JsonObject, attempt: Attempt) -> bool:
    resource = attempt.kind.resource
    return (
        _fits_scope(text(rule, "scope"), attempt)
        and _names(rule, "operations", attempt.operation)
        and _names(rule, "apiGroups", resource.group)
        and _names(rule, "apiVersions", resource.version)
        and any(_fits_resource(resource, attempt) for resource in _texts(rule, "resources"))
    )


def _fits_scope(scope: str, attempt: Attempt) -> bool:
    return scope in ("", "*") or (scope == "Namespaced") is attempt.kind.resource.is_namespaced


def _fits_resource(pattern: str, attempt: Attempt) -> bool:
    plural, _, subresource = pattern.partition("/")
    return plural in ("*", attempt.kind.resource.plural) and (
        subresource in ("*", attempt.subresource)
    )


def _names(rule: JsonObject, key: str, wanted: str) -> bool:
    listed = _texts(rule, key)
    return "*" in listed or wanted in listed


def _texts(rule: JsonObject, key: str) -> list[str]:
    found = rule.get(key)
    return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []
