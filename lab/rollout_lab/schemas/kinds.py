"""Which kinds the simulated API server knows, and what it does to their objects.

Defaults, what an update keeps and what is refused stand in the rules of each kind. A kind that is
not here is a 404, as for a resource that no server knows.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rollout_lab.model.fields import child, children, metadata_of, name_of, number, text
from rollout_lab.model.request import NotModelled, not_modelled
from rollout_lab.schemas.metadata import (
    NoPage,
    bad_request,
    check_labels,
    check_metadata,
    check_metadata_update,
    check_name,
    check_not_negative,
    expect,
    expect_counts,
    explain_undecodable,
    is_empty,
    keep_metadata,
    matches,
    no_resource,
    strings,
    tidied_fields,
    tidied_metadata,
)
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    CONFIG_MAPS,
    EVENTS,
    HEALTH_CHECKS,
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    LEASES,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    OCI_REPOSITORIES,
    PODS,
    ROLLOUT_GATES,
    ROLLOUT_HEALTH_CHECKS,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import compile_pattern

_ALWAYS: Final = frozenset({"apiVersion", "kind", "metadata"})
Usual = Mapping[str, object] | tuple[Mapping[str, object]] | str | int
"""Defaults: of a mapping below a key, or, in parentheses, of the mappings that are there."""


def fill(obj: JsonObject, usual: Mapping[str, object]) -> None:
    """Give an object, in place, what it lacks."""
    for key, value in usual.items():
        match value:
            case dict():
                inner = obj.setdefault(key, {})
                if isinstance(inner, dict):
                    fill(inner, value)
            case (dict(each_usual),):
                for each in children(obj, key) or [child(obj, key)]:
                    if each:
                        fill(each, each_usual)
            case _:
                obj.setdefault(key, value)


def _nothing(obj: JsonObject) -> None:
    """Leave an object as it is."""


def _no_step(old: JsonObject, new: JsonObject) -> None:
    """Leave an update as it is."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What sets one kind apart from the others. Its checks raise NotModelled."""

    parts: frozenset[str] = frozenset({"spec", "status"})
    """Fields beside `metadata`; others are dropped."""
    raw: frozenset[str] = frozenset()
    """Of those, the fields whose content is the user's own and is kept as it is, uncopied."""
    raises_generation: tuple[str, ...] = ()
    """Fields whose change raises `metadata.generation`; empty where it has none."""
    has_label_name: bool = False
    """Whether its name must be a DNS label; else a subdomain."""
    keeps_status: bool = False
    """Whether a status is taken from its creator."""
    defaults: Mapping[str, "Usual | Callable[[JsonObject], None]"] = {}
    """What is filled in where it is absent in each field, or what does so, given the whole object.

    Done to every version that has the field changed, also between mutating webhooks.
    """
    on_create: Callable[[JsonObject], None] = _nothing
    """What only a creation does."""
    on_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """What an update of the object does besides, given old and new."""
    on_status_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """The same for an update of its status."""
    check: Callable[[JsonObject], None] = _nothing
    """What must hold of every version."""
    check_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """What must hold of an update but that of the status, given old and new."""


def _name_type(obj: JsonObject) -> str:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    return f'{kind} in version "{version}" cannot be handled as a {kind}'


_LARGEST: Final = 2**31 - 1
_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "spec": {"replicas": int, "labelSelector": str},
    "status": {"replicas": int},
}


def _keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Leave it as it was: the status of a custom resource is written alone."""
    new["metadata"] = dict(child(old, "metadata"))


def _prune(obj: JsonObject, part: str) -> None:
    """Drop, in place, the fields that the schema does not have."""
    if part not in obj:
        return
    known, given = _FIELDS[part], child(obj, part)
    for key, value in given.items():
        if key in known and type(value) is not known[key]:
            not_modelled(f"a ReplicaTemplate whose {part}.{key} is {value!r}")
    obj[part] = {key: value for key, value in given.items() if key in known}


def _default_spec(obj: JsonObject) -> None:
    _prune(obj, "spec")
    if "spec" in obj:
        obj["spec"] = {"replicas": 1, **child(obj, "spec")}


def _check_template(obj: JsonObject) -> None:
    for part in ("spec", "status"):
        replicas = number(obj, part, "replicas")
        expect(0 <= replicas <= _LARGEST, f"{part}.replicas", replicas)


REPLICA_TEMPLATE: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={"spec": _default_spec, "status": lambda obj: _prune(obj, "status")},
    on_status_update=_keep_metadata,
    check=_check_template,
)

_COUNT: Final = "maxUnavailable"
_SHARE: Final = "maxUnavailablePercentage"
_PATTERN: Final = "podNamePartitionRegex"
_GROUP: Final = "podNameRegexGroup"
_DELAY: Final = "crossZoneEvictionDelay"
_TYPES: Final = {_COUNT: int, _SHARE: int, _PATTERN: str, _GROUP: int, _DELAY: str}
_NUMBERS: Final = frozenset(
    {"observedGeneration", "zones", "pods", "currentUnavailable", "allowedDisruptions"}
)
_LEAST: Final = {_COUNT: 0, _SHARE: 0, _GROUP: 1}
_LONGEST_PATTERN: Final = 1024
_HAS_GROUP: Final = re.compile(r"\(([^?]|\?P?<)", re.DOTALL)
_IS_DURATION: Final = re.compile(
    r"\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)|-0s"
)
_HAS_NUMBER: Final = re.compile(r"[1-9]")


def _prune_budget(obj: JsonObject) -> None:
    """Drop, in place, what the schema does not have, and what is null."""
    if "spec" not in obj:
        return
    given = child(obj, "spec")
    spec = {key: given[key] for key in given if key in _TYPES and given[key] is not None}
    labels = child(given, "selector", "matchLabels")
    if "matchLabels" in child(given, "selector"):
        labels = {key: value for key, value in labels.items() if value is not None}
        spec["selector"] = {"matchLabels": labels}
    obj["spec"] = spec


def _prune_budget_status(obj: JsonObject) -> None:
    """Drop, in place, what the schema does not have: of a condition nothing is left out."""
    if "status" not in obj:
        return
    given = child(obj, "status")
    for key, value in given.items():
        is_right = (
            type(value) is int if key in _NUMBERS else key != "conditions" or type(value) is list
        )
        if not is_right:
            not_modelled(f"a budget whose status.{key} is {value!r}")
    obj["status"] = {key: given[key] for key in given if key in _NUMBERS or key == "conditions"}


def _check_budget(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    labels = child(spec, "selector").get("matchLabels")
    is_selector = isinstance(labels, dict) and all(
        isinstance(label, str) for label in labels.values()
    )
    expect(is_selector, "spec.selector", obj.get("spec"))
    for key, kind in _TYPES.items():
        value = spec.get(key)
        expect(value is None or type(value) is kind, key, value)
        expect(not isinstance(value, int) or value >= _LEAST[key], key, value)
    pattern, delay = text(spec, _PATTERN), text(spec, _DELAY)
    share = number(spec, _SHARE)
    expect(share <= 100 and not (_COUNT in spec and _SHARE in spec), _SHARE, share)
    expect(not (pattern and share), "a percentage with a partition", share)
    expect(not delay or bool(_IS_DURATION.fullmatch(delay)), _DELAY, delay)
    expect(bool(pattern) or not _HAS_NUMBER.search(delay), f"{_DELAY} without {_PATTERN}", delay)
    if pattern:
        expect(_is_pattern(pattern), _PATTERN, pattern)


def _is_pattern(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except InvalidInput:
        return False
    return len(pattern) <= _LONGEST_PATTERN and _HAS_GROUP.search(pattern) is not None


# What a schema decides of a policy the operator decides again by itself: nothing is judged here.
MULTI_AZ_ROLLOUT: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={},
    on_status_update=_keep_metadata,
)

ZONE_BUDGET: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={"spec": _prune_budget, "status": _prune_budget_status},
    on_status_update=_keep_metadata,
    check=_check_budget,
)


_BUDGET_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _default_type(obj: JsonObject) -> None:
    obj["type"] = obj.get("type") or "Opaque"


SECRET: Final = Rules(
    parts=frozenset({"data", "stringData", "type", "immutable"}),
    defaults={"type": _default_type},
)
CONFIG_MAP: Final = Rules(parts=frozenset({"data", "binaryData", "immutable"}))


LEASE: Final = Rules()


EVENT: Final = Rules(
    parts=frozenset({"reason", "note", "type", "action", "regarding", "eventTime", "series"})
)


BUDGET: Final = Rules(
    raises_generation=("spec",),
    defaults={"spec": {}, "status": dict.fromkeys(_BUDGET_COUNTS, 0)},
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
    defaults={"spec": {}, "status": {}, "metadata": _name_namespace},
    on_create=_begin_namespace,
    on_update=_keep_spec,
)
NODE: Final = Rules(keeps_status=True, defaults={"spec": {}, "status": {}})

_HOOK: Final[Mapping[str, object]] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
    "rules": ({"scope": "*"},),
    "clientConfig": ({"service": ({"port": 443},)},),
}
VALIDATING: Final = Rules(
    parts=frozenset({"webhooks"}), raises_generation=("webhooks",), defaults={"webhooks": (_HOOK,)}
)
MUTATING: Final = msgspec.structs.replace(
    VALIDATING, defaults={"webhooks": ({**_HOOK, "reinvocationPolicy": "Never"},)}
)


_GRACE_SECONDS: Final = 30
_POD: Final[JsonObject] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": _GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_FILLED: Final = ("volumes", "initContainers", "ephemeralContainers", "hostNetwork")
_CONTAINER: Final[JsonObject] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_FILLED_IN_CONTAINERS: Final = frozenset(
    {"ports", "env", "livenessProbe", "readinessProbe", "startupProbe", "volumeMounts"}
)


def default_template(holder: JsonObject) -> None:
    """Fill `template` of a workload's spec."""
    template = holder.setdefault("template", {})
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        spec = template.setdefault("spec", {})
        if isinstance(spec, dict):
            default_pod_spec(spec)


def default_pod_spec(spec: JsonObject) -> None:
    """Fill the spec of a pod or of a template. Raises NotModelled."""
    fill(spec, _POD)
    # Two names of one field: the server keeps both alike.
    account = text(spec, "serviceAccountName") or text(spec, "serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for key in _FILLED:
        expect(not spec.get(key), f"a pod without defaults of its {key}", spec.get(key))
    for container in children(spec, "containers"):
        _default_container(container)


def check_pod_spec(spec: JsonObject, path: str = "spec") -> None:
    """Raise NotModelled where no server would take it."""
    containers = children(spec, "containers")
    are_whole = all(container.get("name") and container.get("image") for container in containers)
    expect(bool(containers) and are_whole, f"{path}.containers", spec.get("containers"))


def check_template(spec: JsonObject) -> None:
    """Raise NotModelled where a workload's selector or template would not be taken."""
    expect_counts(spec, "minReadySeconds")
    selector = child(spec, "selector")
    check_labels("spec.selector.matchLabels", strings(selector, "matchLabels"))
    is_met = matches(selector, strings(spec, "template", "metadata", "labels"))
    expect(is_met and not is_empty(selector), "spec.selector", selector)
    inner = child(spec, "template", "spec")
    path = "spec.template.spec"
    check_pod_spec(inner, path)
    policy = inner.get("restartPolicy")
    expect(policy == "Always", f"{path}.restartPolicy", policy)


def _default_container(obj: JsonObject) -> None:
    filled = sorted(_FILLED_IN_CONTAINERS & obj.keys())
    expect(not filled and not child(obj, "resources"), "a container without defaults of", filled)
    obj.setdefault("imagePullPolicy", _pull_policy(text(obj, "image")))
    fill(obj, _CONTAINER)


def _pull_policy(image: str) -> str:
    """Return Always for an image whose tag is `latest`, said or not."""
    name, digest, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


_ROLLING_SHARE: Final = re.compile(r"[1-9][0-9]?%|100%")
_RETENTION: Final = "persistentVolumeClaimRetentionPolicy"
_MAY_CHANGE: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *(_RETENTION, "minReadySeconds"),
)
_SET: Final[Mapping[str, object]] = {
    "serviceName": "",
    "podManagementPolicy": "OrderedReady",
    "updateStrategy": {},
    _RETENTION: {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "replicas": 1,
    "revisionHistoryLimit": 10,
}
_SET_FIELDS: Final = frozenset((*_MAY_CHANGE, "selector", "serviceName", "podManagementPolicy"))
_COUNTS: Final = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def _default_set(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        not_modelled(f"a StatefulSet whose spec is {spec!r}")
    expect(not spec.get("volumeClaimTemplates"), "a set without claims", spec)
    for key in spec.keys() - _SET_FIELDS:
        del spec[key]
    fill(spec, _SET)
    strategy = child(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(rolling, dict):
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)  # since 1.37
    default_template(spec)


def _begin_set(obj: JsonObject) -> None:
    # Sets that are older than this rule have other names.
    if service := text(obj, "spec", "serviceName"):
        check_name("spec.serviceName", service, is_label=True)


def _check_set(obj: JsonObject) -> None:
    spec, status = child(obj, "spec"), child(obj, "status")
    # Also where a schedule of the tests wants fewer than none.
    check_not_negative("StatefulSet.apps", name_of(obj), "spec.replicas", spec["replicas"])
    check_template(spec)
    most = child(spec, "updateStrategy", "rollingUpdate").get("maxUnavailable", 1)
    is_share = isinstance(most, str) and bool(_ROLLING_SHARE.fullmatch(most))
    expect(is_share or (isinstance(most, int) and most > 0), "maxUnavailable", most)
    for key in _COUNTS:
        # A rolling update that deletes a pod of no revision that counts leads to this.
        check_not_negative("StatefulSet.apps", name_of(obj), f"status.{key}", status.get(key))


def _check_set_update(old: JsonObject, new: JsonObject) -> None:
    before, after = child(old, "spec"), child(new, "spec")
    frozen = (before.keys() | after.keys()) - set(_MAY_CHANGE)
    changed = [key for key in frozen if before.get(key) != after.get(key)]
    expect(not changed, "a change of", changed)


STATEFULSET: Final = Rules(
    raises_generation=("spec",),
    has_label_name=True,
    defaults={"spec": _default_set, "status": {"replicas": 0, "availableReplicas": 0}},
    on_create=_begin_set,
    check=_check_set,
    check_update=_check_set_update,
)


CONTROLLER_REVISION: Final = Rules(
    parts=frozenset({"data", "revision"}),
    raw=frozenset({"data"}),
    defaults={"revision": 0},
)


_FAILING_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED: Final[list[JsonObject]] = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in _FAILING_NODE
]
_NEW_STATUS: Final[Mapping[str, object]] = {
    "state": {},
    "lastState": {},
    "ready": False,
    "restartCount": 0,
    "image": "",
    "imageID": "",
}
_POD_STATUS: Final[Mapping[str, object]] = {
    "conditions": ({"lastProbeTime": None, "lastTransitionTime": None},),
    "containerStatuses": (_NEW_STATUS,),
    "initContainerStatuses": (_NEW_STATUS,),
}


def _default_pod_spec(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        not_modelled(f"a pod whose spec is {spec!r}")
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def _begin(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if not text(spec, "serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    for key in ("priorityClassName", "tolerations"):
        expect(not spec.get(key), f"a pod without {key}", spec.get(key))
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec["tolerations"] = [dict(toleration) for toleration in _TOLERATED]


def _settle_status(old: JsonObject, new: JsonObject) -> None:
    metadata, before = child(new, "metadata"), child(old, "metadata")
    for key in ("deletionTimestamp", "ownerReferences"):
        metadata.pop(key, None)
        if key in before:
            metadata[key] = before[key]
    quality = text(old, "status", "qosClass")
    if quality:
        new["status"] = {**child(new, "status"), "qosClass": quality}


def _check(obj: JsonObject) -> None:
    check_pod_spec(child(obj, "spec"))


def _check_update(old: JsonObject, new: JsonObject) -> None:
    expect(old["spec"] == new["spec"], "a change of a pod's spec", new["spec"])


POD: Final = Rules(
    raises_generation=("spec",),
    defaults={"spec": _default_pod_spec, "status": _POD_STATUS},
    on_create=_begin,
    on_status_update=_settle_status,
    check=_check,
    check_update=_check_update,
)


CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False)
NODES: Final = Resource("", "v1", "nodes", "Node", False)
REPLICA_TEMPLATES: Final = Resource(
    "rollout-operator.grafana.com", "v1", "replicatemplates", "ReplicaTemplate"
)


class ObjectKind(msgspec.Struct, frozen=True):
    """One kind of object, as the API server knows it."""

    resource: Resource
    rules: Rules
    subresources: frozenset[str]
    allows_blind_update: bool
    """Whether a PUT without resourceVersion overwrites whatever is there."""
    tracks_fields: bool = False
    """Whether it is known which field manager owns what: only of these can fields be applied."""

    def prepare_create(self, obj: JsonObject) -> None:
        """Drop, default and check in a new object, a copy as of `copy_head`.

        Fields that change are made anew.
        """
        rules = self.rules
        if not rules.keeps_status:
            obj.pop("status", None)
        self.default(obj)
        if rules.raises_generation:  # of other kinds it is what their creator says
            metadata_of(obj)["generation"] = 1
        rules.on_create(obj)
        try:
            self.check(obj)
        except NotModelled as error:
            raise NotModelled(f"{obj.get('kind')} {name_of(obj)}: {error}") from None

    def prepare_update(self, old: JsonObject, new: JsonObject, subresource: str) -> None:
        """Do so in such a copy of a new version; no subresource for the object and its scale.

        What may not change stays as it was. Raises Refusal (422) for another identity.
        """
        rules, is_status = self.rules, subresource == "status"
        _keep(old, new, tuple(rules.parts - {"status"}) if is_status else ("status",))
        kept = _share(old, new, rules.parts)
        self.default(new, kept)
        _share(old, new, rules.parts - kept)
        keep_metadata(old, new)
        (rules.on_status_update if is_status else rules.on_update)(old, new)
        if any(old.get(key) != new.get(key) for key in rules.raises_generation):
            metadata_of(new)["generation"] = number(new, "metadata", "generation") + 1
        if old["metadata"] != new["metadata"]:
            check_metadata_update(self.resource, old, new)
        if any(old.get(key) is not new.get(key) for key in rules.parts):
            rules.check(new)
            if not is_status:
                rules.check_update(old, new)

    def check(self, obj: JsonObject) -> None:
        """Raise NotModelled, or Refusal (422), for an object that no server would have stored."""
        check_name("metadata.name", name_of(obj), is_label=self.rules.has_label_name)
        check_metadata(obj)
        self.rules.check(obj)

    def default(self, obj: JsonObject, kept: frozenset[str] = frozenset()) -> None:
        """Bring an object, in place, into the form in which webhooks and the store have it.

        All its fields are new but those in `kept`, which are in that form. Raises Refusal (400)
        where it cannot be read.
        """
        rules = self.rules
        problem = explain_undecodable(obj)
        if problem:
            raise bad_request(f"{_name_type(obj)}: {problem}")
        obj["metadata"] = tidied_metadata(obj)
        for key in [key for key in obj if key not in kept and key not in _ALWAYS]:
            if key in rules.raw and obj[key] is not None:
                continue
            value = obj.pop(key)
            if key in rules.parts:
                obj.update(tidied_fields({key: value}))
        for key, usual in rules.defaults.items():
            if key in kept:
                continue
            if callable(usual):
                usual(obj)
            else:
                fill(obj, {key: usual})


def _keep(old: JsonObject, new: JsonObject, keys: tuple[str, ...]) -> None:
    for key in keys:
        new.pop(key, None)
        if key in old:
            new[key] = old[key]


def _share(old: JsonObject, new: JsonObject, keys: frozenset[str]) -> frozenset[str]:
    """Share with the old version the fields that are as before; return which these are."""
    same = frozenset(key for key in keys if key in old and new.get(key) == old[key])
    for key in same:
        new[key] = old[key]
    return same


def _kind(resource: Resource, rules: Rules, *subresources: str, blind: bool = True) -> ObjectKind:
    tracks_fields = resource in _APPLIED
    return ObjectKind(resource, rules, frozenset(subresources), blind, tracks_fields)


# Others are written whole, or by patches that no conflict of managers ends.
_APPLIED: Final = (OCI_REPOSITORIES[0], KUSTOMIZATIONS[0])
# Nothing of them is judged either: what their schemas decide the operator decides again.
_OF_RELEASES: Final = (
    *(ROLLOUTS, ROLLOUT_GATES, ROLLOUT_SCHEDULES, CLUSTER_ROLLOUT_SCHEDULES, HEALTH_CHECKS),
    *(IMAGE_POLICIES[0], IMAGE_REPOSITORIES[0], OCI_REPOSITORIES[0], KUSTOMIZATIONS[0]),
)
_ALL: Final = (
    _kind(STATEFULSETS, STATEFULSET, "status", "scale"),
    _kind(CONTROLLER_REVISIONS, CONTROLLER_REVISION),
    _kind(PODS, POD, "status", "eviction"),
    _kind(SECRETS, SECRET),
    _kind(CONFIG_MAPS, CONFIG_MAP),
    _kind(LEASES, LEASE),
    _kind(EVENTS, EVENT),
    _kind(BUDGETS, BUDGET, "status", blind=False),
    _kind(NAMESPACES, NAMESPACE, "status"),
    _kind(NODES, NODE, "status"),
    _kind(VALIDATING_WEBHOOKS, VALIDATING, blind=False),
    _kind(MUTATING_WEBHOOKS, MUTATING, blind=False),
    _kind(REPLICA_TEMPLATES, REPLICA_TEMPLATE, "status", "scale", blind=False),
    _kind(ZONE_BUDGETS, ZONE_BUDGET, "status", blind=False),
    *(
        _kind(resource, MULTI_AZ_ROLLOUT, "status", blind=False)
        for resource in (MULTI_AZ_ROLLOUTS, ROLLOUT_HEALTH_CHECKS)
    ),
    *(_kind(resource, MULTI_AZ_ROLLOUT, "status", blind=False) for resource in _OF_RELEASES),
)
KINDS: Final[dict[tuple[str, str], ObjectKind]] = {
    (kind.resource.group, kind.resource.plural): kind for kind in _ALL
}
"""By group and plural."""


def get_kind(resource: Resource) -> ObjectKind:
    """Return the kind of a resource. Raises Refusal (404) where there is none.

    For custom resources only the HTTP server itself answers.
    """
    kind = KINDS.get((resource.group, resource.plural))
    if kind is None or kind.resource.version != resource.version:
        is_built_in = any(group == resource.group for group, _ in KINDS)
        raise no_resource() if is_built_in and resource.group != REPLICA_TEMPLATES.group else NoPage
    return kind


def learn_scaled_kind(resource: Resource) -> None:
    """Have API servers know one more kind, of which nothing matters but its counts.

    From now on and in all worlds, as for a kind that a cluster has of another operator.
    """
    key = (resource.group, resource.plural)
    KINDS.setdefault(key, _kind(resource, REPLICA_TEMPLATE, "status", "scale", blind=False))
