"""Values of the charts 0.51 and 0.52 of grafana do here what they do there, one by one.

DEP-42, DEP-98.
"""

from functools import cache
from typing import Any, Final

import msgspec
import pytest
import yaml

from tests.chart.rendering import CHART, ChartError, render_chart
from tests.rendered import NAMESPACE, get_field

pytestmark = pytest.mark.controlplane

RELEASE: Final = "mimir"
NAME: Final = "mimir-rollout-operator"
POD: Final = "spec.template.spec"
CONTAINER: Final = f"{POD}.containers.0"
EXPRESSION: Final = {"key": "team", "operator": "NotIn", "values": ["a"]}
SELECTOR: Final = {"matchLabels": {"app": "loki"}}
HOOKS: Final = ("no-downscale", "prepare-downscale", "pod-eviction", "zpdb-validation")

# Each key with its default there.
DEFAULTS: Final[dict[str, Any]] = {
    "global.commonLabels": {},
    "revisionHistoryLimit": 10,
    "image.registry": "docker.io",
    "image.repository": "grafana/rollout-operator",
    "image.tag": "",
    "image.pullPolicy": "IfNotPresent",
    "imagePullSecrets": [],
    "hostAliases": [],
    "hostNetwork": False,
    "nameOverride": "",
    "fullnameOverride": "",
    "serviceAccount.create": True,
    "serviceAccount.annotations": {},
    "serviceAccount.name": "",
    "crds.enabled": True,
    "annotations": {},
    "podAnnotations": {},
    "podLabels": {},
    "podSecurityContext": {},
    "securityContext": {},
    "extraArgs": [],
    "extraEnv": [],
    "extraEnvFrom": [],
    "resources": {
        "limits": {"memory": "200Mi"},
        "requests": {"cpu": "100m", "memory": "100Mi"},
    },
    "minReadySeconds": 10,
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {},
    "priorityClassName": "",
    "serviceMonitor.enabled": False,
    "serviceMonitor.namespace": None,
    "serviceMonitor.namespaceSelector": {},
    "serviceMonitor.annotations": {},
    "serviceMonitor.labels": {},
    "serviceMonitor.interval": None,
    "serviceMonitor.scrapeTimeout": None,
    "serviceMonitor.relabelings": [],
    "webhooks.enabled": True,
    "webhooks.timeoutSeconds": 10,
    "webhooks.failurePolicy": "Fail",
    "webhooks.selfSignedCertSecretName": "certificate",
    "webhooks.objectSelector": {},
    "namespaceSelector.matchExpressions": [],
}
# Whose default is another one here: our image, restricted Pod Security, five seconds for evictions.
OTHER_DEFAULTS: Final = {
    "image.registry",
    "image.repository",
    "podSecurityContext",
    "securityContext",
    "webhooks.timeoutSeconds",
}


class Effect(msgspec.Struct, frozen=True):
    """What a value does: the field of an object that is then so."""

    value: Any
    kind: str
    path: str
    is_then: Any


def _deployed(value: Any, path: str, is_then: Any = None) -> Effect:
    return Effect(value, "Deployment", path, value if is_then is None else is_then)


def _monitored(value: Any, path: str, is_then: Any = None) -> Effect:
    return Effect(value, "ServiceMonitor", path, value if is_then is None else is_then)


# Rendered together: none changes what another does.
EFFECTS: Final[dict[str, Effect]] = {
    "global.commonLabels": _deployed({"team": "x"}, "metadata.labels.team", "x"),
    "revisionHistoryLimit": _deployed(3, "spec.revisionHistoryLimit"),
    "image.registry": _deployed("r.io", f"{CONTAINER}.image", "r.io/some-image:v9"),
    "image.repository": _deployed("some-image", f"{CONTAINER}.image", "r.io/some-image:v9"),
    "image.tag": _deployed("v9", f"{CONTAINER}.image", "r.io/some-image:v9"),
    "image.pullPolicy": _deployed("Always", f"{CONTAINER}.imagePullPolicy"),
    "imagePullSecrets": _deployed([{"name": "s"}], f"{POD}.imagePullSecrets"),
    "hostAliases": _deployed([{"ip": "1.2.3.4", "hostnames": ["a"]}], f"{POD}.hostAliases"),
    "hostNetwork": _deployed(True, f"{POD}.hostNetwork"),
    "serviceAccount.annotations": Effect(
        {"a": "b"}, "ServiceAccount", "metadata.annotations.a", "b"
    ),
    "serviceAccount.name": _deployed("account", f"{POD}.serviceAccountName"),
    "annotations": _deployed({"a": "b"}, "metadata.annotations"),
    "podAnnotations": _deployed({"c": "d"}, "spec.template.metadata.annotations"),
    "podLabels": _deployed({"e": "f"}, "spec.template.metadata.labels.e", "f"),
    "podSecurityContext": _deployed(
        {"runAsUser": 10001, "fsGroup": 10001}, f"{POD}.securityContext.fsGroup", 10001
    ),
    "securityContext": _deployed(
        {"readOnlyRootFilesystem": False},
        f"{CONTAINER}.securityContext.readOnlyRootFilesystem",
        False,
    ),
    "extraArgs": _deployed(["-log.level=info"], f"{CONTAINER}.args.-1", "-log.level=info"),
    "extraEnv": _deployed([{"name": "NAME", "value": "v"}], f"{CONTAINER}.env.-1.name", "NAME"),
    "extraEnvFrom": _deployed([{"secretRef": {"name": "s"}}], f"{CONTAINER}.envFrom"),
    "resources": _deployed(
        {"limits": {"memory": "1Gi"}}, f"{CONTAINER}.resources.limits.memory", "1Gi"
    ),
    "minReadySeconds": _deployed(33, "spec.minReadySeconds"),
    "nodeSelector": _deployed({"pool": "a"}, f"{POD}.nodeSelector"),
    "tolerations": _deployed([{"operator": "Exists"}], f"{POD}.tolerations"),
    "affinity": _deployed({"nodeAffinity": {}}, f"{POD}.affinity"),
    "priorityClassName": _deployed("high", f"{POD}.priorityClassName"),
    "serviceMonitor.enabled": _monitored(True, "kind", "ServiceMonitor"),
    "serviceMonitor.namespace": _monitored("monitoring", "metadata.namespace"),
    "serviceMonitor.namespaceSelector": _monitored({"any": True}, "spec.namespaceSelector"),
    "serviceMonitor.annotations": _monitored({"a": "b"}, "metadata.annotations"),
    # The chart of grafana documents it and ignores it.
    "serviceMonitor.labels": _monitored({"release": "p"}, "metadata.labels.release", "p"),
    "serviceMonitor.interval": _monitored("30s", "spec.endpoints.0.interval"),
    "serviceMonitor.scrapeTimeout": _monitored("15s", "spec.endpoints.0.scrapeTimeout"),
    "serviceMonitor.relabelings": _monitored(
        [{"targetLabel": "x", "replacement": "y"}],
        "spec.endpoints.0.relabelings.-1.targetLabel",
        "x",
    ),
    "webhooks.timeoutSeconds": Effect(7, "hooks", "timeoutSeconds", 7),
    "webhooks.failurePolicy": Effect("Ignore", "hooks", "failurePolicy", "Ignore"),
    "webhooks.selfSignedCertSecretName": Effect("tls", "Secret", "metadata.name", "tls"),
    "webhooks.objectSelector": Effect(SELECTOR, "hooks", "objectSelector", SELECTOR),
    "namespaceSelector.matchExpressions": Effect(
        [EXPRESSION],
        "hooks",
        "namespaceSelector",
        {
            "matchLabels": {"kubernetes.io/metadata.name": NAMESPACE},
            "matchExpressions": [EXPRESSION],
        },
    ),
}
# Tried below, each alone.
ALONE: Final = {
    "nameOverride",
    "fullnameOverride",
    "serviceAccount.create",
    "crds.enabled",
    "webhooks.enabled",
}


def test_dep98_each_value_of_the_original_is_tried() -> None:
    """DEP-98: the table is whole, and defaults differ only where that is said."""
    assert {*EFFECTS} | ALONE == {*DEFAULTS}
    ours = yaml.safe_load((CHART / "values.yaml").read_text())
    differing = {key for key, there in DEFAULTS.items() if get_field(ours, key) != there}
    assert differing == OTHER_DEFAULTS


@cache
def _render_together() -> tuple[dict[str, Any], ...]:
    values: dict[str, Any] = {}
    for key, effect in EFFECTS.items():
        _put(values, key, effect.value)
    return tuple(render_chart(values, release=RELEASE))


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
    values[last] = value


@pytest.mark.parametrize("key", EFFECTS)
def test_dep98_a_value_of_the_original_has_its_effect(key: str) -> None:
    """DEP-42, DEP-98, DEP-28, DEP-49: and so in all four webhooks, where it is about them."""
    effect = EFFECTS[key]
    found = [one for one in _subjects(effect.kind) if _read(one, effect.path) == effect.is_then]
    assert len(found) == (len(HOOKS) if effect.kind == "hooks" else 1)


def _subjects(kind: str) -> list[dict[str, Any]]:
    objects = _render_together()
    if kind == "hooks":
        return [webhook for one in objects for webhook in one.get("webhooks", ())]
    return [one for one in objects if one["kind"] == kind]


def _read(one: Any, path: str) -> Any:
    """Return a field, also the last one of a list (`-1`)."""
    before, is_last, after = path.partition(".-1")
    found = get_field(one, before)
    if is_last:
        found = found[-1]
        return get_field(found, after[1:]) if after else found
    return found


def _only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def test_dep98_webhooks_can_be_off() -> None:
    """DEP-98, DEP-78: no configuration, no port, no rights to them; metrics stay."""
    objects = render_chart({"webhooks": {"enabled": False}}, release=RELEASE)
    assert not [one for one in objects if "webhooks" in one or one["kind"].startswith("Cluster")]
    args = get_field(_only(objects, "Deployment"), f"{CONTAINER}.args")
    assert args == [f"-kubernetes.namespace={NAMESPACE}"]
    ports = get_field(_only(objects, "Service"), "spec.ports")
    assert [port["name"] for port in ports] == ["http-metrics"]


def test_dep98_failure_policies_of_single_webhooks() -> None:
    """DEP-98: by webhook; null and an empty one leave it to the common one, ours comes first."""
    values = {
        "failurePolicy": "Ignore",
        "failurePolicies": {"noDownscale": None, "podEviction": "Fail", "zpdbValidation": ""},
    }
    assert _list_policies(values) == ["Ignore", "Ignore", "Fail", "Ignore"]
    assert _list_policies({**values, "podEviction": {"failurePolicy": "Ignore"}}) == ["Ignore"] * 4
    assert _list_policies({**values, "failurePolicies": None}) == ["Ignore"] * 4
    wrong = {"podEvictions": "Fail", "podEviction": "fail"}
    with pytest.raises(ChartError) as refused:
        _list_policies({"failurePolicies": wrong})
    text = str(refused.value)
    assert "at '/webhooks/failurePolicies': additional properties 'podEvictions'" in text
    assert "at '/webhooks/failurePolicies/podEviction': value must be one of" in text


def _list_policies(values: dict[str, Any]) -> list[str]:
    """Return the failure policies of the webhooks, as `HOOKS` has them."""
    objects = render_chart({"webhooks": values}, release=RELEASE)
    hooks = {one["metadata"]["name"]: one["webhooks"] for one in objects if "webhooks" in one}
    return [hooks[f"{name}-{NAMESPACE}"][0]["failurePolicy"] for name in HOOKS]


def test_dep98_names_and_accounts() -> None:
    """DEP-98, DEP-43, DEP-30: names, selector and subjects as there, under an alias too."""
    plain = _only(render_chart({}, release=RELEASE), "Deployment")
    assert plain["metadata"]["name"] == NAME
    selector = {
        "app.kubernetes.io/name": "rollout-operator",
        "app.kubernetes.io/instance": RELEASE,
    }
    assert plain["spec"]["selector"]["matchLabels"] == selector
    full = render_chart({"fullnameOverride": "other"}, release=RELEASE)
    assert _only(full, "Deployment")["metadata"]["name"] == "other"
    name = _only(render_chart({"nameOverride": "ro"}, release=RELEASE), "Deployment")
    assert name["metadata"]["name"] == f"{RELEASE}-ro"
    assert name["metadata"]["labels"]["app.kubernetes.io/name"] == "ro"
    none = render_chart({"serviceAccount": {"create": False}}, release=RELEASE)
    assert not [one for one in none if one["kind"] == "ServiceAccount"]
    assert get_field(_only(none, "Deployment"), f"{POD}.serviceAccountName") == "default"


@pytest.mark.parametrize(
    ("selector", "is_then"),
    [
        pytest.param({"matchLabels": {"team": "x"}}, {"matchLabels": {"team": "x"}}, id="replaced"),
        pytest.param(None, None, id="left out"),
    ],
)
def test_dep98_the_namespace_selector_can_be_another_one(selector: Any, is_then: Any) -> None:
    """DEP-98: labels in it replace the release's namespace; null leaves it out."""
    objects = render_chart({"namespaceSelector": selector}, release=RELEASE)
    hooks = [webhook for one in objects for webhook in one.get("webhooks", ())]
    assert len(hooks) == len(HOOKS)
    assert all(hook.get("namespaceSelector") == is_then for hook in hooks)
