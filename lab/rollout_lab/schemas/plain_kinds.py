"""Rules of the small kinds.

Secrets, ConfigMaps, native budgets and webhook configurations; minimal Namespaces and Nodes. Only
the operator and the lab itself write them: what a server would refuse of them is not judged here.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rollout_lab.model.fields import child, children, name_of
from rollout_lab.schemas.labels import strings
from rollout_lab.schemas.rules import Rules
from rollout_operator.kube.api import JsonObject

_BUDGET_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _default_type(obj: JsonObject) -> None:
    obj["type"] = obj.get("type") or "Opaque"


SECRET: Final = Rules(
    parts=frozenset({"data", "stringData", "type", "immutable"}),
    defaults={"type": _default_type},
)
CONFIG_MAP: Final = Rules(parts=frozenset({"data", "binaryData", "immutable"}))


LEASE: Final = Rules()


def _default_spec(obj: JsonObject) -> None:
    obj.setdefault("spec", {})


def _default_status(obj: JsonObject) -> None:
    obj.setdefault("status", {})


def _default_budget_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    for key in _BUDGET_COUNTS:
        status.setdefault(key, 0)


BUDGET: Final = Rules(
    raises_generation=("spec",),
    defaults={"spec": _default_spec, "status": _default_budget_status},
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


def _hook_rules(default: Callable[[JsonObject], None]) -> Rules:
    return Rules(
        parts=frozenset({"webhooks"}),
        raises_generation=("webhooks",),
        defaults={"webhooks": default},
    )


VALIDATING: Final = _hook_rules(partial(_default_hooks, False))
MUTATING: Final = _hook_rules(partial(_default_hooks, True))
