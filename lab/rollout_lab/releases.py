"""Objects of releases, as a person would write them: all that a release is made of.

All of one release have its name, but for gates, checks and schedules, which may be several.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rollout_lab.model.request import ApiRequest, api_version_of, create
from rollout_operator.kube.api import (
    HEALTH_CHECKS,
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    JsonObject,
    Resource,
)

REGISTRY: Final = "registry.example"
_PREFIX: Final = "rollout.kuberik.com"
_CHECKED: Final = "healthcheck.kuberik.com"


class ReleaseObject(msgspec.Struct, frozen=True):
    resource: Resource
    body: JsonObject

    def create(self, namespace: str, user: str) -> ApiRequest:
        return create(self.resource, self.body, namespace, user)


def list_release(name: str, bake: Mapping[str, object]) -> list[ReleaseObject]:
    """Return a Rollout with what announces and applies it; `bake` are fields of its spec.

    It bakes by the HealthChecks that have its name as the label `app`.
    """
    source = {"kind": OCI_REPOSITORIES[0].kind, "name": name}
    selector = {"selector": {"matchLabels": {"app": name}}}
    tagged = {f"{_PREFIX}/rollout": name}
    return [
        _manifest(IMAGE_REPOSITORIES[0], name, {"image": f"{REGISTRY}/{name}", "interval": "1m"}),
        _manifest(
            IMAGE_POLICIES[0],
            name,
            {"imageRepositoryRef": {"name": name}, "policy": {"semver": {"range": "*"}}},
        ),
        _manifest(
            OCI_REPOSITORIES[0],
            name,
            {"interval": "1m", "url": f"oci://{REGISTRY}/{name}-manifests"},
            annotations=tagged,
        ),
        _manifest(KUSTOMIZATIONS[0], name, {"interval": "10m", "prune": True, "sourceRef": source}),
        _manifest(
            ROLLOUTS,
            name,
            {"releasesImagePolicy": {"name": name}, "healthCheckSelector": selector, **bake},
        ),
    ]


def gate(name: str, rollout: str, *, is_passing: bool) -> ReleaseObject:
    return _manifest(ROLLOUT_GATES, name, {"rolloutRef": {"name": rollout}, "passing": is_passing})


def group_check(name: str, rollout: str, group: str, interval: str = "5s") -> ReleaseObject:
    """Return a HealthCheck that a rollout group makes healthy; it is read once in `interval`."""
    annotations = {f"{_CHECKED}/rollout-group": group, f"{_CHECKED}/requeue-interval": interval}
    return _manifest(
        HEALTH_CHECKS,
        name,
        {"class": "rollout-group"},
        labels={"app": rollout},
        annotations=annotations,
    )


def foreign_check(name: str, rollout: str) -> ReleaseObject:
    """Return a HealthCheck that another controller writes, such as a HealthCheck for alerts."""
    return _manifest(HEALTH_CHECKS, name, {"class": "alerts"}, labels={"app": rollout})


def schedule(name: str, rules: list[JsonObject], **spec: object) -> ReleaseObject:
    """Return a schedule that holds all Rollouts of its namespace while a rule matches."""
    return _manifest(ROLLOUT_SCHEDULES, name, {"rolloutSelector": {}, "rules": rules, **spec})


def _manifest(
    resource: Resource, name: str, spec: Mapping[str, object], **metadata: object
) -> ReleaseObject:
    body: JsonObject = {
        "apiVersion": api_version_of(resource),
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
        "spec": dict(spec),
    }
    return ReleaseObject(resource, body)
