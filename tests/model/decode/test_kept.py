"""What is written comes back as it was, and which changes of it decide anything."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.kube.store import PolicyStore, decides
from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.custom import (
    decode_budget,
    decode_policy,
    decode_watched_policy,
    parse_budget,
)
from rollout_operator.model.decode.installation import (
    decode_mutating_webhooks,
    decode_validating_webhooks,
)
from rollout_operator.model.decode.objects import decode_field_writers, decode_pod
from rollout_operator.model.names import REVISION_LABEL, InvalidInput, Revision, Uid
from rollout_operator.model.policy import Batch, BatchPod, Policy, PolicyStatus, WatchedPolicy
from rollout_operator.planning.policy_status import find_batch, render_batch
from rollout_operator.releases.model.decode import (
    decode_health_check,
    decode_rollout,
    decode_schedule,
)
from rollout_operator.releases.model.releases import SCHEDULE, ReleaseRollout, ReleaseStatus
from tests.model.budget_trees import budget_tree
from tests.model.decode.releases.trees import as_json
from tests.model.policy_trees import policy_tree, status_tree
from tests.model.webhook_trees import configuration_tree, hook_tree
from tests.model.wire_trees import with_metadata

encode: Final = msgspec.json.encode
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POLICY: Final = {"releasesImagePolicy": {"name": "app"}}
# Every field of the status of a Rollout.
STATUS: Final = json.loads("""
{"observedGeneration": 3,
 "conditions": [{"type": "Ready", "status": "True", "reason": "BakeTimePassed", "message": "m",
   "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 3}],
 "history": [
  {"version": {"tag": "1.1.0", "digest": "sha256:1", "version": "1.1.0", "revision": "abc",
    "created": "2025-01-01T00:00:00Z"},
   "timestamp": "2025-01-02T00:00:00.123456Z", "id": 2, "message": "Automatic deployment",
   "triggeredBy": {"kind": "System", "name": "rollout-controller"},
   "bakeStatus": "Failed", "bakeStatusMessage": "m", "bakeStartTime": "2025-01-02T00:01:00Z",
   "bakeEndTime": "2025-01-02T00:02:00Z",
   "failedHealthChecks": [{"name": "a", "namespace": "prod", "message": "m"}],
   "lastRetryTimestamp": "2025-01-02T00:00:30Z", "retries": 1, "lastRetryBy": "ann"},
  {"version": {"tag": "1.0.0"}, "timestamp": "2025-01-01T00:00:00Z"}],
 "availableReleases": [{"tag": "1.0.0"}, {"tag": "1.1.0"}], "availableReleasesCount": 2,
 "releaseCandidates": [{"tag": "1.1.0"}], "gatedReleaseCandidates": [{"tag": "1.1.0"}],
 "excludedReleases": [{"tag": "1.1.0", "reason": "it failed"}],
 "gates": [{"name": "g", "passing": true, "allowedVersions": ["1.1.0"], "message": "m",
   "bypassGates": true}],
 "artifactType": "t", "source": "s", "title": "t", "description": "d",
 "consumedIntents": [{"annotation": "a", "value": "v"}]}
""")


def rollout(spec: dict[str, Any] | None = None, **more: Any) -> ReleaseRollout:
    found = decode_rollout(as_json({**POLICY, **(spec or {})}, **more))
    assert isinstance(found, ReleaseRollout)
    return found


def watched(status: Any, **spec: Any) -> WatchedPolicy:
    return decode_watched_policy(encode({**policy_tree(**spec), "status": status}))


@pytest.mark.parametrize("field", ["", "bakeTime", "deployTimeout", "healthCheckSelector"])
def test_what_makes_a_bake(field: str) -> None:
    """RT-90."""
    value: Any = {} if field == "healthCheckSelector" else "5m"
    assert rollout({field: value} if field else {}).spec.has_bake is bool(field)


def test_a_status_goes_there_and_back() -> None:
    """REL-15, REL-19: every field by its name, times to the microsecond."""
    found = rollout(status=STATUS).status
    assert msgspec.json.decode(encode(found)) == STATUS
    assert found.history[0].timestamp == datetime(2025, 1, 2, 0, 0, 0, 123456, tzinfo=UTC)
    assert encode(ReleaseStatus()) == b"{}"
    assert rollout().status == rollout(status=None).status == rollout(status={}).status
    checked = {
        "status": "Unhealthy", "lastErrorTime": "2025-01-01T00:00:00Z",
        "lastChangeTime": "2025-01-01T00:00:01.500000Z", "message": "down",
    }  # fmt: skip
    read = decode_health_check(as_json(status=checked)).status
    assert msgspec.json.decode(encode(read)) == checked


def test_a_batch_comes_back_as_it_was_recorded() -> None:
    """MAZ-43: a restart neither shortens nor repeats a pause."""
    start = datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)
    last = Batch(
        number=3,
        zone="a",
        set_name="db-a",
        revision=Revision("db-a-2"),
        pods=(BatchPod(name="db-a-2", uid=Uid("u2")),),
        start=start,
        completion=start + timedelta(seconds=9),
    )
    status = PolicyStatus(last_batch=render_batch(last))

    assert find_batch(watched(msgspec.to_builtins(status)).status) == last


def test_all_zones_that_a_policy_may_list_are_read_back() -> None:
    """MAZ-10: each with the longest name; else each pass would write the same status again."""
    zones = tuple(f"{number:0253}" for number in range(64))
    policy = decode_policy(encode(policy_tree(azOrder=zones)))

    assert isinstance(policy, Policy)
    assert policy.zone_order == zones
    assert watched({"unknownZones": zones}).status.unknown_zones == zones


def test_a_store_keeps_policies_by_name() -> None:
    store = PolicyStore()
    first, broken = watched(None), {"lastBatch": 7}

    assert store.upsert(first) == ((None, first),)
    assert store.upsert(replace(watched(broken), resource_version="6")) == ()
    assert store.get("prod", "db") is first


def test_a_change_of_what_is_not_read_decides_nothing() -> None:
    """W-41: and whether absent peers are forgiven is read."""
    old = watched(status_tree()["status"])
    assert not decides(old, replace(old, resource_version="8"))
    assert decides(old, watched({**status_tree()["status"], "phase": "Idle"}))
    budget = decode_budget(msgspec.Raw(encode(budget_tree())))
    assert isinstance(budget, Budget)
    assert decides(budget, replace(budget, forgives_absent_peers=True))
    assert not decides(budget, replace(budget, resource_version="8"))
    tree = configuration_tree()
    hooks, same, other = (
        decode_validating_webhooks(encode(one))
        for one in (
            tree,
            with_metadata(tree, resourceVersion="8", annotations={"a": "b"}),
            configuration_tree("guard", 8, hook_tree(caBundle="QQ==")),
        )
    )
    assert (decides(hooks, same), decides(hooks, other)) == (False, True)


def test_both_kinds_of_webhooks_are_read_alike_and_distinguished() -> None:
    for raw in (encode(configuration_tree()), msgspec.Raw(encode(configuration_tree()))):
        validating, mutating = decode_validating_webhooks(raw), decode_mutating_webhooks(raw)
        assert mutating.kind == "MutatingWebhookConfiguration"
        assert replace(mutating, kind=validating.kind) == validating


@pytest.mark.parametrize("raw", [b"", b"null", b"  null "])
def test_zval_02_no_object(raw: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^unexpected end of JSON input$"):
        parse_budget(raw)


def test_a_schedule_of_a_namespace_is_named_by_it() -> None:
    """RELB-31."""
    spec = {"rolloutSelector": {}, "rules": [{"daysOfWeek": ["Day"]}]}
    problem = decode_schedule(SCHEDULE, as_json(spec)).problem
    assert problem.startswith('RolloutSchedule prod/app: spec.rules[0].daysOfWeek[0]: "Day" is')


def test_which_manager_wrote_a_field() -> None:
    """RELB-13: by the name of the field, whatever else stands there."""
    fields: dict[str, Any] = {
        "kustomize-controller": {"f:ref": {".": {}, "f:tag": {}}},
        "kubectl-edit": {"f:ref": {"f:tag": {}, "f:semver": {}}},
        "whole": {"f:ref": {}},
        "odd": 7,
    }
    managed = [{"manager": name, "fieldsV1": {"f:spec": one}} for name, one in fields.items()]
    managed.append({"manager": "none"})
    found = decode_field_writers(encode({"metadata": {"managedFields": managed}}), ("spec", "ref"))
    assert found == {"tag": ("kustomize-controller", "kubectl-edit"), "semver": ("kubectl-edit",)}
    odd = encode({"metadata": {"managedFields": 7}})
    assert decode_field_writers(odd, ("spec", "ref")) == {}


def test_d51_what_two_pods_or_two_fields_share_is_kept_once() -> None:
    one, other = (
        decode_pod(
            encode(
                {
                    "metadata": {
                        "namespace": "prod", "name": name, "uid": name, "resourceVersion": "1",
                        "labels": {POD_NAME: name, REVISION_LABEL: "a-7d9c6b5f44"},
                    }
                }
            )
        )
        for name in ("a-0", "a-1")
    )  # fmt: skip
    assert one.name is one.labels[POD_NAME]
    assert one.revision is other.revision
    assert one.namespace is other.namespace
