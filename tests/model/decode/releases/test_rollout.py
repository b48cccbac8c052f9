"""What makes a bake, and statuses there and back; other cases are in the tables beside."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from rollout_operator.model.decode.releases import decode_health_check, decode_rollout
from rollout_operator.model.releases import RefusedRelease, ReleaseRollout, ReleaseStatus
from tests.model.decode.releases.trees import as_json

POLICY = {"releasesImagePolicy": {"name": "app"}}


def decode(spec: dict[str, Any] | None = None, **more: Any) -> ReleaseRollout:
    found = decode_rollout(as_json({**POLICY, **(spec or {})}, **more))
    assert isinstance(found, ReleaseRollout)
    return found


@pytest.mark.parametrize(
    ("spec", "has_bake"),
    [
        ({}, False),
        ({"bakeTime": "5m"}, True),
        ({"deployTimeout": "5m"}, True),
        ({"healthCheckSelector": {}}, True),
    ],
)
def test_what_makes_a_bake(spec: dict[str, Any], has_bake: bool) -> None:
    """RT-90."""
    assert decode(spec).spec.has_bake is has_bake


STATUS = {
    "observedGeneration": 3,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "BakeTimePassed",
            "message": "m",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
            "observedGeneration": 3,
        }
    ],
    "history": [
        {
            "version": {
                "tag": "1.1.0",
                "digest": "sha256:1",
                "version": "1.1.0",
                "revision": "abc",
                "created": "2025-01-01T00:00:00Z",
            },
            "timestamp": "2025-01-02T00:00:00.123456Z",
            "id": 2,
            "message": "Automatic deployment",
            "triggeredBy": {"kind": "System", "name": "rollout-controller"},
            "bakeStatus": "Failed",
            "bakeStatusMessage": "m",
            "bakeStartTime": "2025-01-02T00:01:00Z",
            "bakeEndTime": "2025-01-02T00:02:00Z",
            "failedHealthChecks": [{"name": "a", "namespace": "prod", "message": "m"}],
            "lastRetryTimestamp": "2025-01-02T00:00:30Z",
            "retries": 1,
            "lastRetryBy": "ann",
        },
        {"version": {"tag": "1.0.0"}, "timestamp": "2025-01-01T00:00:00Z"},
    ],
    "availableReleases": [{"tag": "1.0.0"}, {"tag": "1.1.0"}],
    "availableReleasesCount": 2,
    "releaseCandidates": [{"tag": "1.1.0"}],
    "gatedReleaseCandidates": [{"tag": "1.1.0"}],
    "excludedReleases": [{"tag": "1.1.0", "reason": "it failed"}],
    "gates": [
        {
            "name": "g",
            "passing": True,
            "allowedVersions": ["1.1.0"],
            "message": "m",
            "bypassGates": True,
        }
    ],
    "artifactType": "t",
    "source": "s",
    "title": "t",
    "description": "d",
    "consumedIntents": [{"annotation": "a", "value": "v"}],
}


def test_a_status_goes_there_and_back() -> None:
    """REL-15: every field by its name, times to the microsecond."""
    found = decode(status=STATUS).status

    assert msgspec.json.decode(msgspec.json.encode(found)) == STATUS
    assert found.history[0].timestamp == datetime(2025, 1, 2, 0, 0, 0, 123456, tzinfo=UTC)
    assert msgspec.json.encode(ReleaseStatus()) == b"{}"
    assert decode().status == decode(status=None).status == decode(status={}).status


def test_the_status_of_a_health_check_goes_there_and_back() -> None:
    """REL-19."""
    status = {
        "status": "Unhealthy",
        "lastErrorTime": "2025-01-01T00:00:00Z",
        "lastChangeTime": "2025-01-01T00:00:01.500000Z",
        "message": "down",
    }
    found = decode_health_check(as_json(status=status)).status

    assert msgspec.json.decode(msgspec.json.encode(found)) == status


def test_a_selector_has_at_most_64_labels() -> None:
    """RELB-02."""
    labels = {f"a{number}": "" for number in range(65)}
    found = decode_rollout(as_json({**POLICY, "healthCheckSelector": {"matchLabels": labels}}))

    assert isinstance(found, RefusedRelease)
    assert found.problem.endswith(".matchLabels: it has 65 items, at most 64")
