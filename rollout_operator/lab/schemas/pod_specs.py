"""What the API server writes into a pod's spec by itself, in pods and in pod templates alike.

Decides defaults of the fields that a rollout may meet. Volumes are defaulted as far as Secrets,
ConfigMaps, projected and empty ones go; other sources pass as they are.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, children, text

_GRACE_SECONDS: Final = 30
_FILE_MODE: Final = 0o644
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_POD: Final[JsonObject] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": _GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_PROBE: Final[JsonObject] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def default_template(holder: JsonObject) -> None:
    """Fill `template` of a workload's spec."""
    template = holder.setdefault("template", {})
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        spec = template.setdefault("spec", {})
        if isinstance(spec, dict):
            default_pod_spec(spec)


def default_pod_spec(spec: JsonObject) -> None:
    """Fill the spec of a pod or of a template."""
    for key, value in _POD.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    # Two names of one field: the server keeps both alike.
    account = text(spec, "serviceAccountName") or text(spec, "serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for key in _CONTAINER_LISTS:
        for one in children(spec, key):
            _default_container(one, is_on_host=spec.get("hostNetwork") is True)
    for one in children(spec, "volumes"):
        _default_volume(one)


def default_requests(spec: JsonObject) -> None:
    """Set requests to limits where only limits are given: done for pods, not for templates."""
    for key in _CONTAINER_LISTS:
        for one in children(spec, key):
            limits = child(one, "resources", "limits")
            if limits:
                resources = child(one, "resources")
                resources["requests"] = {**limits, **child(resources, "requests")}


def default_claims(spec: JsonObject) -> None:
    """Fill `volumeClaimTemplates` of a StatefulSet's spec."""
    for claim in children(spec, "volumeClaimTemplates"):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("metadata", {})
        inner = claim.setdefault("spec", {})
        if isinstance(inner, dict):
            inner.setdefault("volumeMode", "Filesystem")
            inner.setdefault("resources", {})
        claim.setdefault("status", {"phase": "Pending"})


def quality_of(spec: JsonObject) -> str:
    """Return `status.qosClass` of a new pod, from the resources of its containers."""
    everyone = [one for key in _CONTAINER_LISTS for one in children(spec, key)]
    given = [(child(one, "resources", "requests"), child(one, "resources", "limits"))
             for one in everyone]  # fmt: skip
    if not any(requests or limits for requests, limits in given):
        return "BestEffort"
    guaranteed = all(
        limits.keys() >= {"cpu", "memory"}
        and all(requests.get(key) == limits[key] for key in ("cpu", "memory"))
        for requests, limits in given
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _default_container(one: JsonObject, *, is_on_host: bool) -> None:
    one.setdefault("imagePullPolicy", _pull_policy(text(one, "image")))
    one.setdefault("terminationMessagePath", "/dev/termination-log")
    one.setdefault("terminationMessagePolicy", "File")
    one.setdefault("resources", {})
    for port in children(one, "ports"):
        port.setdefault("protocol", "TCP")
        if is_on_host:
            port.setdefault("hostPort", port.get("containerPort"))
    for variable in children(one, "env"):
        reference = child(variable, "valueFrom", "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for key in _PROBES:
        probe = one.get(key)
        if isinstance(probe, dict):
            _default_probe(probe)


def _default_probe(probe: JsonObject) -> None:
    for key, value in _PROBE.items():
        if probe.get(key) in (None, 0):
            probe[key] = value
    call = probe.get("httpGet")
    if isinstance(call, dict):
        call.setdefault("path", "/")
        call.setdefault("scheme", "HTTP")


def _pull_policy(image: str) -> str:
    """Return Always for an image whose tag is `latest`, said or not."""
    name, digest, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _default_volume(volume: JsonObject) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for key in ("secret", "configMap", "projected", "downwardAPI"):
        source = volume.get(key)
        if isinstance(source, dict):
            source.setdefault("defaultMode", _FILE_MODE)
