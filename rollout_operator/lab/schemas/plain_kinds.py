"""Rules of the small kinds: Secrets, ConfigMaps, Leases, Events, disruption budgets, and minimal
Namespaces, Nodes and Services.
"""

import re
from base64 import b64encode
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, children, name_of, text
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.invalid import IMMUTABLE, Problems
from rollout_operator.lab.schemas.labels import strings
from rollout_operator.lab.schemas.metadata import check_labels
from rollout_operator.lab.schemas.rules import Rules

_FROZEN: Final = "field is immutable when `immutable` is set"
_IS_KEY: Final = re.compile("[-._a-zA-Z0-9]+")
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
# What a Secret of a type must hold; other types may hold anything.
_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_UNHEALTHY: Final = ("AlwaysAllow", "IfHealthyBudget")
_BUDGET_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _merge_string_data(obj: JsonObject) -> None:
    given = obj.pop("stringData", None)
    if isinstance(given, dict) and given:
        coded = {key: b64encode(str(value).encode()).decode() for key, value in given.items()}
        obj["data"] = {**child(obj, "data"), **coded}


def _default_type(obj: JsonObject) -> None:
    obj["type"] = obj.get("type") or "Opaque"


def _check_data(obj: JsonObject, problems: Problems) -> None:
    for field in ("data", "binaryData"):
        for key in child(obj, field):
            if not _IS_KEY.fullmatch(key):
                problems.invalid(f"{field}[{key}]", key, _KEY_TEXT)


def _check_secret(obj: JsonObject, problems: Problems) -> None:
    _check_data(obj, problems)
    for key in _SECRET_KEYS.get(text(obj, "type"), ()):
        if key not in child(obj, "data"):
            problems.require(f"data[{key}]")


def _check_secret_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    if new.get("type") != old.get("type"):
        problems.invalid("type", new.get("type"), IMMUTABLE)
    _check_immutable(old, new, problems)


def _check_immutable(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    if old.get("immutable") is not True:
        return
    if new.get("immutable") is not True:
        problems.forbid("immutable", _FROZEN)
    for key in ("data", "binaryData"):
        if new.get(key) != old.get(key):
            problems.forbid(key, _FROZEN)


SECRET: Final = Rules(
    parts=frozenset({"data", "stringData", "type", "immutable"}),
    defaults={"stringData": _merge_string_data, "type": _default_type},
    check=_check_secret,
    check_update=_check_secret_update,
)
CONFIG_MAP: Final = Rules(
    parts=frozenset({"data", "binaryData", "immutable"}),
    check=_check_data,
    check_update=_check_immutable,
)


def _default_spec(obj: JsonObject) -> None:
    obj.setdefault("spec", {})


def _default_status(obj: JsonObject) -> None:
    obj.setdefault("status", {})


def _check_lease(obj: JsonObject, problems: Problems) -> None:
    spec = child(obj, "spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        problems.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    problems.negative("spec.leaseTransitions", spec.get("leaseTransitions"))


LEASE: Final = Rules(
    parts=frozenset({"spec"}), defaults={"spec": _default_spec}, check=_check_lease
)


def _default_event(obj: JsonObject) -> None:
    for key in ("eventTime", "firstTimestamp", "lastTimestamp"):
        obj.setdefault(key, None)
    obj.setdefault("source", {})
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _check_event(obj: JsonObject, problems: Problems) -> None:
    namespace = text(obj, "involvedObject", "namespace")
    if namespace not in ("", text(obj, "metadata", "namespace")):
        problems.invalid("involvedObject.namespace", namespace, "does not match event.namespace")


EVENT: Final = Rules(
    parts=frozenset(
        {
            *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp"),
            *("count", "type", "eventTime", "series", "action", "related", "reportingComponent"),
            *("reportingInstance",),
        }
    ),
    defaults={"source": _default_event},
    check_new=_check_event,
)


def _default_budget_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    for key in _BUDGET_COUNTS:
        status.setdefault(key, 0)
    for one in children(status, "conditions"):
        one.setdefault("message", "")
        one.setdefault("reason", "")


def _check_budget(obj: JsonObject, problems: Problems) -> None:
    spec = child(obj, "spec")
    if "minAvailable" in spec and "maxUnavailable" in spec:
        not_modelled("the refusal of a PodDisruptionBudget with both of its limits")
    for key in ("minAvailable", "maxUnavailable"):
        _check_share(f"spec.{key}", spec.get(key), problems)
    check_labels("spec.selector.matchLabels", strings(spec, "selector", "matchLabels"), problems)
    unhealthy = spec.get("unhealthyPodEvictionPolicy")
    if unhealthy is not None and unhealthy not in _UNHEALTHY:
        problems.unsupported("spec.unhealthyPodEvictionPolicy", unhealthy, _UNHEALTHY)


def _check_share(field: str, value: object, problems: Problems) -> None:
    problems.negative(field, value)
    if isinstance(value, str):
        if not value.removesuffix("%").isdigit() or not value.endswith("%"):
            text_ = "a valid percent string must be a numeric string followed by an ending '%'"
            example = "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            problems.invalid(field, value, f"{text_} {example}")
        elif int(value[:-1]) > 100:
            problems.invalid(field, value, "must not be greater than 100%")


def _check_budget_status(_: JsonObject, new: JsonObject, problems: Problems) -> None:
    for key in _BUDGET_COUNTS:
        problems.negative(f"status.{key}", child(new, "status").get(key))


BUDGET: Final = Rules(
    counted=("spec",),
    defaults={"spec": _default_spec, "status": _default_budget_status},
    check=_check_budget,
    check_status=_check_budget_status,
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
    begin=_begin_namespace,
    settle=_keep_spec,
)
NODE: Final = Rules(keeps_status=True, defaults={"spec": _default_spec, "status": _default_status})


def _default_service(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    assert isinstance(spec, dict)
    spec.setdefault("sessionAffinity", "None")
    kind = spec.setdefault("type", "ClusterIP")
    for port in children(spec, "ports"):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if kind == "ExternalName":
        return
    if kind != "ClusterIP" or spec.get("clusterIP") != "None":
        not_modelled("the address of a Service that is neither headless nor an ExternalName")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("clusterIPs", ["None"])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _begin_service(obj: JsonObject) -> None:
    obj["status"] = {"loadBalancer": {}}


SERVICE: Final = Rules(
    has_label_name=True, defaults={"spec": _default_service}, begin=_begin_service
)
