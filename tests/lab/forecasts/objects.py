"""Objects of releases as manifests have them, for forecasts."""

from typing import Any

Json = dict[str, Any]
KUBERIK = "kuberik.com/v1alpha1"
BEFORE = "2026-03-01T00:00:00Z"


def make(kind: str, name: str, spec: Json, api: str = KUBERIK, **more: Any) -> Json:
    """Return an object of the namespace `prod`; labels and annotations by keyword, and `status`."""
    status = {"status": more.pop("status")} if "status" in more else {}
    metadata = {"name": name, "namespace": "prod", **more}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec, **status}


def rollout(
    name: str = "app", deployed: str = "1.0.0", bake: str = "Succeeded", **spec: Any
) -> Json:
    """Return a Rollout with the label `tier: web`; without `deployed`, nothing is deployed."""
    entry = {"id": 1, "version": {"tag": deployed}, "timestamp": BEFORE, "bakeStatus": bake}
    status = {"availableReleases": [{"tag": deployed}], "history": [entry]} if deployed else {}
    body: Json = {"releasesImagePolicy": {"name": "app"}, **spec}
    return make("Rollout", name, body, labels={"tier": "web"}, status=status)


def policy(tag: str = "1.1.0", **spec: Any) -> Json:
    """Return an image policy that selects a tag."""
    spec = {
        "imageRepositoryRef": {"name": "app"},
        "policy": {"semver": {"range": "*"}},
        **spec,
    }
    status = {"latestRef": {"name": "r/app", "tag": tag}} if tag else {}
    return make("ImagePolicy", "app", spec, "image.toolkit.fluxcd.io/v1", status=status)


def schedule(
    name: str = "nights",
    zone: str = "Europe/Berlin",
    start: str = "22:00",
    end: str = "06:00",
    **spec: Any,
) -> Json:
    """Return a schedule that lets versions through in a window."""
    rules = [{"name": "window", "timeRange": {"start": start, "end": end}}]
    selector = {"matchLabels": {"tier": "web"}}
    body = {"rolloutSelector": selector, "timezone": zone, "action": "Allow", "rules": rules}
    return make("RolloutSchedule", name, {**body, **spec})


def gate(name: str = "manual", *, passing: bool = False, **spec: Any) -> Json:
    """Return a gate that a person keeps."""
    return make("RolloutGate", name, {"rolloutRef": {"name": "app"}, "passing": passing, **spec})


def check(status: str, **more: Any) -> Json:
    """Return a HealthCheck with the label `app: app`."""
    found = {"status": status, "lastChangeTime": BEFORE, **more}
    return make("HealthCheck", "app", {}, labels={"app": "app"}, status=found)


def source(tag: str = "1.0.0", **spec: Any) -> Json:
    """Return an OCIRepository whose tag the Rollout writes."""
    body = {"interval": "1m", "url": "oci://r/app", "ref": {"tag": tag}, **spec}
    annotations = {"rollout.kuberik.com/rollout": "app"}
    api = "source.toolkit.fluxcd.io/v1"
    return make("OCIRepository", "app", body, api, annotations=annotations)
