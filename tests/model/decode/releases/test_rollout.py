"""JSON of a Rollout: what an absent field means, what is refused, and its status there and back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rollout_operator.model.decode.releases import decode_rollout
from rollout_operator.model.names import DecodeError
from rollout_operator.model.objects import LabelSelector, SelectorTerm
from rollout_operator.model.releases import (
    CheckSelector,
    RefusedRelease,
    ReleaseIntents,
    ReleaseRollout,
    ReleaseSpec,
    ReleaseStatus,
)
from tests.model.decode.releases.trees import as_json

POLICY = {"releasesImagePolicy": {"name": "app"}}
ABSENT = {"key": "a", "operator": "DoesNotExist"}


def decode(spec: dict[str, Any] | None = None, **more: Any) -> ReleaseRollout:
    found = decode_rollout(as_json({**POLICY, **(spec or {})}, **more))
    assert isinstance(found, ReleaseRollout)
    return found


def test_all_that_a_spec_says() -> None:
    """REL-04."""
    found = decode(
        {
            "releasesImagePolicy": {"name": "app", "namespace": "flux-system"},
            "wantedVersion": "v1.2.3",
            "versionHistoryLimit": 3,
            "availableReleasesRetentionDays": 14,
            "availableReleasesMinCount": 5,
            "bakeTime": "5m",
            "deployTimeout": "1h30m0.5s",
            "healthCheckSelector": {
                "selector": {"matchLabels": {"app": "a"}},
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            },
            "releaseUpdateInterval": "10m",
            "suspend": True,
        }
    )

    assert found.head.key == "prod/app"
    assert found.head.generation == 3
    assert found.spec == ReleaseSpec(
        policy_name="app",
        policy_namespace="flux-system",
        wanted_version="v1.2.3",
        history_limit=3,
        retention=timedelta(days=14),
        least_available=5,
        bake_time=timedelta(minutes=5),
        deploy_timeout=timedelta(hours=1, minutes=30, milliseconds=500),
        checks=CheckSelector(
            selector=LabelSelector(labels={"app": "a"}),
            namespaces=LabelSelector(terms=(SelectorTerm(key="team", operator="Exists"),)),
        ),
        update_interval=timedelta(minutes=10),
        is_suspended=True,
    )


def test_what_a_spec_leaves_out_has_its_default() -> None:
    """REL-04."""
    nothing = dict.fromkeys(
        ("wantedVersion", "versionHistoryLimit", "bakeTime", "healthCheckSelector", "suspend")
    )

    assert decode(nothing).spec == decode().spec == ReleaseSpec(policy_name="app")
    assert decode({"releasesImagePolicy": {}}).spec.policy_name == ""


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


@pytest.mark.parametrize("text", ["1s", "0s"])
def test_registries_are_not_read_more_often_than_each_five_seconds(text: str) -> None:
    """RELB-01."""
    spec = decode({"releaseUpdateInterval": text}).spec
    assert spec.update_interval >= timedelta(seconds=5)


def test_a_selector_is_also_read_where_the_examples_have_it() -> None:
    """RELB-02."""
    inner = {"matchLabels": {"app": "a"}}

    short, long = ({"healthCheckSelector": one} for one in (inner, {"selector": inner}))
    assert decode(short).spec == decode(long).spec


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"releasesImagePolicy": None}, "spec.releasesImagePolicy: expected object, got null"),
        ({"versionHistoryLimit": 0}, "spec.versionHistoryLimit: expected int >= 1: 0"),
        ({"availableReleasesMinCount": "9"}, 'spec.availableReleasesMinCount: expected int | null, '
         'got str: "9"'),
        ({"bakeTime": "5"}, 'spec.bakeTime: "5" is no duration such as 1h30m'),
        ({"bakeTime": "-5m"}, 'spec.bakeTime: "-5m" is no duration such as 1h30m'),
        ({"deployTimeout": "9999999h"}, 'spec.deployTimeout: time: invalid duration "9999999h"'),
        ({"wantedVersion": ""}, 'spec.wantedVersion: "" is no tag'),
        ({"wantedVersion": "a b"}, 'spec.wantedVersion: "a b" is no tag'),
        ({"wantedVersion": "a" * 129}, f'spec.wantedVersion: "{"a" * 129}" is no tag'),
        (
            {"healthCheckSelector": {"matchLabels": {}, "selector": {}}},
            "spec.healthCheckSelector: it has labels both by themselves and below selector",
        ),
        (
            {"healthCheckSelector": {"selector": {"matchLabels": {"a b": "c"}}}},
            'spec.healthCheckSelector.selector.matchLabels: "a b" is no name of a label',
        ),
        (
            {"healthCheckSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            'spec.healthCheckSelector.matchExpressions[0].operator: "Is" is not In, NotIn, '
            "Exists or DoesNotExist",
        ),
        (
            {"healthCheckSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.healthCheckSelector.matchExpressions[0].values: In needs a value",
        ),
        (
            {"healthCheckSelector": {"selector": {"matchExpressions": [ABSENT] * 65}}},
            "spec.healthCheckSelector.selector.matchExpressions: it has 65 items, at most 64",
        ),
        (
            {"healthCheckSelector": {"matchLabels": {f"a{number}": "" for number in range(65)}}},
            "spec.healthCheckSelector.matchLabels: it has 65 items, at most 64",
        ),
        (
            {"healthCheckSelector": {"matchExpressions": [{**ABSENT, "values": ["a"] * 65}]}},
            "spec.healthCheckSelector.matchExpressions[0].values: it has 65 items, at most 64",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_be_obeyed(spec: dict[str, Any], problem: str) -> None:
    """RELB-02, RELB-23: object, field and value, and the status is read all the same."""
    status = {"history": [{"version": {"tag": "1"}, "timestamp": "2025-01-01T00:00:00Z"}]}
    found = decode_rollout(as_json({**POLICY, **spec}, status=status))

    assert isinstance(found, RefusedRelease)
    assert found.problem == f"Rollout prod/app: {problem}"
    assert found.status.history[0].version.tag == "1"
    # What announces versions is known where it can be read.
    has_policy = "releasesImagePolicy" not in problem
    assert (found.announced is not None) is has_policy
    if found.announced is not None:
        assert found.announced.spec == ReleaseSpec(policy_name="app")
        assert found.announced.status == found.status


def test_annotations() -> None:
    """REL-20: what a person requests once."""
    prefix = "rollout.kuberik.com/"
    found = decode(
        annotations={
            f"{prefix}force-deploy": "1.0.0",
            f"{prefix}bypass-gates": "1.1.0",
            f"{prefix}unblock-failed": "true",
            f"{prefix}retry": "",
            f"{prefix}deploy-message": "m" * 5000,
            f"{prefix}deployment-message": "n",
            f"{prefix}deploy-user": "ann",
            f"{prefix}wait-for-flux": "false",
            "other": "x",
        }
    )

    assert not found.waits_for_flux
    assert found.intents == ReleaseIntents(
        force_deploy="1.0.0",
        bypass_gates="1.1.0",
        unblock_failed="true",
        retry="",
        deploy_message="m" * 4096,
        deployment_message="n",
        deploy_user="ann",
    )
    assert decode().waits_for_flux
    assert decode().intents == ReleaseIntents()


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


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"history": [{}]}, "status.history[0]: object missing required field version"),
        (
            {"history": [{"version": {"tag": "1"}, "timestamp": "soon"}]},
            'status.history[0].timestamp: invalid RFC3339 encoded datetime: "soon"',
        ),
        ([], "status: expected object | null, got array"),
    ],
)
def test_a_status_that_cannot_be_read_is_not_taken_for_empty(status: Any, problem: str) -> None:
    """REL-15: no gate holds a first deployment back."""
    with pytest.raises(DecodeError) as caught:
        decode(status=status)

    assert str(caught.value) == f"Rollout prod/app: {problem}"
