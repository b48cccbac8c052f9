"""What the API server writes into a pod's spec by itself, in pods and in pod templates alike.

Decides defaults of the fields that a rollout may meet. A field that would need further defaults is
not modelled: ports, volumes, environments, probes, limits.
"""

from typing import Final

from rollout_lab.model.fields import child, children, text
from rollout_lab.schemas.labels import is_empty, matches, strings
from rollout_lab.schemas.metadata import check_labels
from rollout_lab.schemas.refusals import expect, expect_counts
from rollout_operator.kube.api import JsonObject

_GRACE_SECONDS: Final = 30
_POD: Final[JsonObject] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": _GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_FILLED: Final = ("volumes", "initContainers", "ephemeralContainers", "hostNetwork")
_CONTAINER: Final[JsonObject] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
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
    for key, value in _POD.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
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
    for key, value in _CONTAINER.items():
        obj.setdefault(key, value)
    obj.setdefault("resources", {})


def _pull_policy(image: str) -> str:
    """Return Always for an image whose tag is `latest`, said or not."""
    name, digest, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
