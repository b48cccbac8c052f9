"""Rules of the small kinds.

Secrets, ConfigMaps, native budgets and webhook configurations; minimal Namespaces and Nodes.
"""

import base64
import binascii
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, children, name_of, number, text
from rollout_operator.lab.schemas.labels import strings
from rollout_operator.lab.schemas.metadata import check_name
from rollout_operator.lab.schemas.refusals import expect, expect_counts, expect_one_of
from rollout_operator.lab.schemas.rules import Rules

_IS_KEY: Final = re.compile("[-._a-zA-Z0-9]+")
_LEASE_FIELDS: Final = frozenset(
    {"holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions"}
)
_BUDGET_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _default_type(obj: JsonObject) -> None:
    obj["type"] = obj.get("type") or "Opaque"


def _check_data(obj: JsonObject) -> None:
    data = child(obj, "data")
    expect(all(_IS_KEY.fullmatch(key) for key in data), "data", sorted(data))
    expect(len(strings(obj, "data")) == len(data), "data", sorted(data))
    others = [key for key in ("stringData", "binaryData", "immutable") if key in obj]
    expect(not others and isinstance(obj.get("data", {}), dict), "data", others)


def _check_secret(obj: JsonObject) -> None:
    _check_data(obj)
    data = strings(obj, "data")
    try:
        for value in data.values():
            base64.b64decode(value, validate=True)
    except binascii.Error:
        expect(False, "data", sorted(data))
    if obj["type"] == "kubernetes.io/tls":
        expect(data.keys() >= {"tls.crt", "tls.key"}, "data", sorted(data))


def _check_type_stays(old: JsonObject, new: JsonObject) -> None:
    expect(new.get("type") == old.get("type"), "a change of type", new.get("type"))


SECRET: Final = Rules(
    parts=frozenset({"data", "stringData", "type", "immutable"}),
    defaults={"type": _default_type},
    check=_check_secret,
    check_update=_check_type_stays,
)
CONFIG_MAP: Final = Rules(parts=frozenset({"data", "binaryData", "immutable"}), check=_check_data)


def _check_lease(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    expect(spec.keys() <= _LEASE_FIELDS, "a lease with", sorted(spec))
    expect_counts(spec, "leaseTransitions")
    expect(spec.get("leaseDurationSeconds", 1) != 0, "leaseDurationSeconds", spec)
    expect_counts(spec, "leaseDurationSeconds")


LEASE: Final = Rules(check=_check_lease)


def _default_spec(obj: JsonObject) -> None:
    obj.setdefault("spec", {})


def _default_status(obj: JsonObject) -> None:
    obj.setdefault("status", {})


def _default_budget_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    for key in _BUDGET_COUNTS:
        status.setdefault(key, 0)


def _check_budget(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    expect(spec.keys() <= {"selector", "maxUnavailable"}, "a native budget with", sorted(spec))
    expect(isinstance(spec.get("maxUnavailable", 0), int), "maxUnavailable", spec)
    expect_counts(spec, "maxUnavailable")
    expect_counts(child(obj, "status"), *_BUDGET_COUNTS)
    expect("conditions" not in child(obj, "status"), "conditions of a native budget", obj)


BUDGET: Final = Rules(
    raises_generation=("spec",),
    defaults={"spec": _default_spec, "status": _default_budget_status},
    check=_check_budget,
)


def _name_namespace(obj: JsonObject) -> None:
    metadata = child(obj, "metadata")
    metadata["labels"] = {
        **strings(metadata, "labels"),
        "kubernetes.io/metadata.name": name_of(obj),
    }


def _begin_namespace(obj: JsonObject) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _keep_spec(old: JsonObject, new: JsonObject) -> None:
    new["spec"] = old["spec"]


NAMESPACE: Final = Rules(
    has_label_name=True,
    defaults={"spec": _default_spec, "status": _default_status, "metadata": _name_namespace},
    on_create=_begin_namespace,
    on_update=_keep_spec,
)
NODE: Final = Rules(keeps_status=True, defaults={"spec": _default_spec, "status": _default_status})


def _default_hooks(is_mutating: bool, obj: JsonObject) -> None:
    for hook in children(obj, "webhooks"):
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if is_mutating:
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in children(hook, "rules"):
            rule.setdefault("scope", "*")
        service = child(hook, "clientConfig", "service")
        if service:
            service.setdefault("port", 443)


def _check_hooks(obj: JsonObject) -> None:
    hooks = children(obj, "webhooks")
    names = [text(hook, "name") for hook in hooks]
    expect(len(set(names)) == len(names), "two webhooks of one name", names)
    for hook, name in zip(hooks, names, strict=True):
        check_name("a webhook's name", name)
        expect(name.count(".") >= 2, "a webhook's name", name)
        expect_one_of(("Fail", "Ignore"), "failurePolicy", hook["failurePolicy"])
        expect_one_of(("None", "NoneOnDryRun"), "sideEffects", hook.get("sideEffects"))
        expect(1 <= number(hook, "timeoutSeconds") <= 30, "timeoutSeconds", hook)
        versions = hook.get("admissionReviewVersions")
        expect(isinstance(versions, list) and "v1" in versions, "admissionReviewVersions", versions)
        config = child(hook, "clientConfig")
        expect(("url" in config) != ("service" in config), "clientConfig", config)
        expect(text(config, "url").startswith("https://") or "service" in config, "url", config)
        for rule in children(hook, "rules"):
            named = [rule.get(key) for key in ("operations", "apiVersions", "resources")]
            expect(all(named) and bool(rule.get("apiGroups")), "a rule", rule)


def _hook_rules(default: Callable[[JsonObject], None]) -> Rules:
    return Rules(
        parts=frozenset({"webhooks"}),
        raises_generation=("webhooks",),
        defaults={"webhooks": default},
        check=_check_hooks,
    )


VALIDATING: Final = _hook_rules(partial(_default_hooks, False))
MUTATING: Final = _hook_rules(partial(_default_hooks, True))
