"""The kinds of releases on the real API server: what it accepts, fills in and refuses."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.world.api import ApiError, Json, Resource
from tests.world.budgets import CRDS, FOLDER, install_kinds
from tests.world.manifests import read_manifests
from tests.world.world import World

pytestmark = pytest.mark.controlplane

KINDS: Final = FOLDER / "releases"
VERSION: Final = "kuberik.com/v1alpha1"
POLICY: Final = {"releasesImagePolicy": {"name": "app"}}
RULE: Final = {"timeRange": {"start": "22:00", "end": "00:00"}}
SCHEDULE: Final = {"rolloutSelector": {}, "rules": [RULE]}

# By kind: a spec, and what the API server makes of it.
ACCEPTED: Final[list[tuple[str, Json, Json]]] = [
    (
        "Rollout",
        POLICY,
        {
            **POLICY,
            "versionHistoryLimit": 10,
            "availableReleasesRetentionDays": 7,
            "availableReleasesMinCount": 30,
            "releaseUpdateInterval": "1m",
        },
    ),
    ("Rollout", {"releasesImagePolicy": {}}, {"releasesImagePolicy": {"name": ""}}),
    ("Rollout", {**POLICY, "wantedVersion": ""}, {"wantedVersion": ""}),
    ("Rollout", {**POLICY, "bakeTime": "1h0.5m10ms"}, {"bakeTime": "1h0.5m10ms"}),
    (
        "Rollout",
        {**POLICY, "healthCheckSelector": {"matchLabels": {"app": "web"}}},
        {"healthCheckSelector": {"matchLabels": {"app": "web"}}},
    ),
    ("Rollout", {**POLICY, "minBakeTime": "1m"}, {"minBakeTime": None}),
    ("RolloutGate", {"rolloutRef": {}}, {"passing": True, "rolloutRef": {"name": ""}}),
    ("RolloutGate", {"rolloutRef": {}, "allowedVersions": []}, {"allowedVersions": []}),
    ("RolloutSchedule", SCHEDULE, {**SCHEDULE, "timezone": "UTC", "action": "Deny"}),
    ("ClusterRolloutSchedule", SCHEDULE, {"namespaceSelector": None, "action": "Deny"}),
    ("HealthCheck", {}, {"class": None}),
    ("HealthCheck", {"class": "anything"}, {"class": "anything"}),
]
# By kind: a spec, and the field that is named.
REFUSED: Final[list[tuple[str, Any, str]]] = [
    ("Rollout", {}, "spec.releasesImagePolicy: Required"),
    ("Rollout", {**POLICY, "versionHistoryLimit": 0}, "spec.versionHistoryLimit"),
    ("Rollout", {**POLICY, "availableReleasesRetentionDays": 0}, "RetentionDays"),
    ("Rollout", {**POLICY, "availableReleasesMinCount": 0}, "spec.availableReleasesMinCount"),
    ("Rollout", {**POLICY, "versionHistoryLimit": 2**31}, "spec.versionHistoryLimit"),
    ("Rollout", {**POLICY, "bakeTime": "5"}, "spec.bakeTime"),
    ("Rollout", {**POLICY, "deployTimeout": "-5m"}, "spec.deployTimeout"),
    ("Rollout", {**POLICY, "releaseUpdateInterval": "5us"}, "spec.releaseUpdateInterval"),
    ("Rollout", {**POLICY, "suspend": "yes"}, "spec.suspend"),
    ("RolloutGate", {}, "spec.rolloutRef: Required"),
    ("RolloutSchedule", {"rolloutSelector": {}, "rules": []}, "spec.rules"),
    ("RolloutSchedule", {"rules": [RULE]}, "spec.rolloutSelector: Required"),
    ("RolloutSchedule", {**SCHEDULE, "action": "Maybe"}, "spec.action"),
    ("RolloutSchedule", {**SCHEDULE, "rules": [{"daysOfWeek": ["Mon"]}]}, "daysOfWeek[0]"),
    (
        "ClusterRolloutSchedule",
        {**SCHEDULE, "rules": [{"timeRange": {"start": "24:00", "end": "01:00"}}]},
        "timeRange.start",
    ),
    (
        "ClusterRolloutSchedule",
        {**SCHEDULE, "rules": [{"dateRange": {"start": "2025-1-1", "end": "2025-01-02"}}]},
        "dateRange.start",
    ),
    (
        "RolloutSchedule",
        {**SCHEDULE, "rules": [{"timeRange": {"start": "01:00"}}]},
        "timeRange.end",
    ),
]


@pytest.fixture(name="kinds")
async def install(world: World) -> AsyncIterator[dict[str, Resource]]:
    """Install the kinds, and remove them with all their objects."""
    crds = read_manifests(KINDS)
    await install_kinds(world.api, KINDS)
    yield {
        crd["spec"]["names"]["kind"]: Resource(
            VERSION,
            crd["spec"]["names"]["plural"],
            is_namespaced=crd["spec"]["scope"] == "Namespaced",
        )
        for crd in crds
    }
    for crd in crds:
        await world.api.delete(CRDS, "", crd["metadata"]["name"])


async def test_values_that_are_accepted_filled_in_and_refused(
    world: World, kinds: dict[str, Resource]
) -> None:
    """REL-04, REL-05, REL-06, REL-07, REL-08, REL-09, REL-10, REL-13: as kuberik has them.

    REL-14, REL-17, REL-18, REL-19: and so are selectors, gates, schedules and HealthChecks.
    """
    for number, (kind, spec, expected) in enumerate(ACCEPTED):
        found = (await _create(world, kinds, kind, f"n{number}", spec))["spec"]
        assert {key: found.get(key) for key in expected} == expected, (kind, spec)
    for kind, spec, field in REFUSED:
        with pytest.raises(ApiError) as caught:
            await _create(world, kinds, kind, "bad", spec)
        assert caught.value.status == 422, (kind, spec)
        assert field in str(caught.value), (kind, spec)


async def _create(
    world: World, kinds: dict[str, Resource], kind: str, name: str, spec: Json
) -> Json:
    body = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    resource = kinds[kind]
    namespace = world.namespace if resource.is_namespaced else ""
    return await world.api.create(resource, namespace, body)
