"""Evictions at the simulated API server: what native budgets allow, and how they refuse."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rollout_operator.kube.api import PODS, JsonObject, Resource
from rollout_operator.lab.apiserver.evictions import check_eviction, evict
from rollout_operator.lab.model.request import ApiAnswer, ApiRefusal, ApiRequest
from rollout_operator.lab.schemas.kinds import BUDGETS
from tests.lab.manifests import entry, part

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05Z"
TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."


class Api:
    """An API server that keeps what it is given and remembers what it was asked to write."""

    def __init__(self, pod: JsonObject | None, *budgets: JsonObject) -> None:
        self.pod = pod
        self.budgets = budgets
        self.writes: list[ApiRequest] = []
        self.refusal: ApiRefusal | None = None

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        assert (resource, namespace, name) == (PODS, "default", "a-0")
        return self.pod

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        assert (resource, namespace) == (BUDGETS, "default")
        return self.budgets

    def now(self) -> datetime:
        return NOW

    def call_now(self, request: ApiRequest) -> ApiAnswer:
        self.writes.append(request)
        if self.refusal is not None and request.verb == "delete":
            return self.refusal.answer()
        body = request.body
        assert isinstance(body, dict)
        metadata = {**part(body, "metadata"), "resourceVersion": "6"} if "metadata" in body else {}
        return ApiAnswer(status=200, body={**body, "metadata": metadata})

    @property
    def targets(self) -> Sequence[str]:
        """Return what was written, as in `update poddisruptionbudgets/status`."""
        return [
            f"{one.verb} {one.resource.plural}" + (f"/{one.subresource}" if one.subresource else "")
            for one in self.writes
        ]


MARKED = ["update pods/status", "delete pods"]
COUNTED = ["update poddisruptionbudgets/status", *MARKED]


def pod(phase: str = "Running", *, ready: bool = True, **metadata: object) -> JsonObject:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {
            "name": "a-0",
            "namespace": "default",
            "uid": "u-1",
            "resourceVersion": "5",
            "labels": {"app": "a"},
            **metadata,
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def budget(**status: object) -> JsonObject:
    return {
        "metadata": {"name": "guard", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 1, **status},
    }


def request(*, version: str = "policy/v1", name: str = "a-0", **options: object) -> ApiRequest:
    body: JsonObject = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return ApiRequest(
        verb="create",
        resource=PODS,
        namespace="default",
        name="a-0",
        subresource="eviction",
        body=body,
        user="drainer",
    )


def refused(api: Api, wanted: ApiRequest | None = None) -> ApiRefusal:
    with pytest.raises(ApiRefusal) as caught:
        evict(api, wanted or request())
    return caught.value


def test_a_pod_that_no_budget_guards_is_marked_and_deleted() -> None:
    api = Api(pod())
    answer = evict(api, request(gracePeriodSeconds=5))
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"], answer.body["code"]) == (
        *("Status", "Success"),
        201,
    )
    assert api.targets == MARKED
    marked, deleted = api.writes
    assert isinstance(marked.body, dict)
    assert entry(marked.body, "status", "conditions", index=1) == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": STAMP,
    }
    assert deleted.body == {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5}
    assert {one.user for one in api.writes} == {"drainer"}


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_not_run_needs_no_budget(phase: str) -> None:
    api = Api(pod(phase), budget(disruptionsAllowed=0))
    evict(api, request())
    assert api.targets == MARKED
    options = api.writes[-1].body
    assert isinstance(options, dict)
    # A pending pod might become ready meanwhile: it goes only as it was seen, mark included.
    expected = {"resourceVersion": "6"} if phase == "Pending" else None
    assert options.get("preconditions") == expected


def test_a_pod_on_its_way_out_needs_no_budget() -> None:
    api = Api(pod(deletionTimestamp=STAMP), budget(disruptionsAllowed=0))
    evict(api, request())
    assert api.targets == MARKED


def test_a_budget_gives_one_and_notes_for_whom() -> None:
    api = Api(pod(), budget(disruptionsAllowed=2, disruptedPods={"b-0": "before"}))
    evict(api, request())
    assert api.targets == COUNTED
    body = api.writes[0].body
    assert isinstance(body, dict)
    assert body["status"] == {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "disruptedPods": {"b-0": "before", "a-0": STAMP},
    }


def test_the_last_one_turns_the_condition() -> None:
    allowed = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}
    api = Api(pod(), budget(conditions=[allowed]))
    evict(api, request())
    body = api.writes[0].body
    assert isinstance(body, dict)
    assert part(body, "status")["conditions"] == [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "lastTransitionTime": STAMP,
            "observedGeneration": 1,
        }
    ]


@pytest.mark.parametrize(
    ("status", "cause", "seconds"),
    [
        (
            {"observedGeneration": 0},
            "The disruption budget guard is still being processed by the server.",
            10,
        ),
        (
            {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 3},
            "The disruption budget guard needs 3 healthy pods and has 2 currently",
            0,
        ),
        (
            {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2},
            "The disruption budget guard does not allow evicting pods currently",
            0,
        ),
        (
            {
                "disruptionsAllowed": 0,
                "conditions": [
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "no owner",
                    }
                ],
            },
            "The disruption budget guard does not allow evicting pods currently because it failed "
            "sync: no owner",
            0,
        ),
        (
            {
                "disruptionsAllowed": 0,
                "currentHealthy": 3,
                "desiredHealthy": 2,
                "conditions": [
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "Other",
                        "message": "so it is",
                    }
                ],
            },
            "The disruption budget guard does not allow evicting pods currently (Other): so it is",
            0,
        ),
    ],
    ids=["not observed", "too few", "just not", "sync failed", "condition"],
)
def test_a_budget_without_room_refuses_for_now(
    status: JsonObject, cause: str, seconds: int
) -> None:
    api = Api(pod(), budget(**status))
    refusal = refused(api)
    assert (refusal.status, refusal.reason, refusal.message) == (429, "TooManyRequests", TOO_MANY)
    assert refusal.causes == ({"reason": "DisruptionBudget", "message": cause},)
    assert refusal.retry_after == seconds
    assert not api.writes


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"disruptionsAllowed": -1}, "pdb disruptions allowed is negative"),
        (
            {"disruptedPods": {f"b-{number}": STAMP for number in range(2001)}},
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ),
    ],
    ids=["negative", "unconfirmed"],
)
def test_a_budget_out_of_bounds_forbids(status: JsonObject, why: str) -> None:
    refusal = refused(Api(pod(), budget(**status)))
    assert (refusal.status, refusal.reason) == (403, "Forbidden")
    assert refusal.message == f'poddisruptionbudget.policy "guard" is forbidden: {why}'


def test_two_budgets_are_one_too_many() -> None:
    refusal = refused(Api(pod(), budget(), budget()))
    assert refusal.status == 500
    assert refusal.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
        "support."
    )


def test_budgets_of_other_pods_and_without_a_selector_do_not_count() -> None:
    other, none = budget(disruptionsAllowed=0), budget(disruptionsAllowed=0)
    other["spec"] = {"selector": {"matchLabels": {"app": "b"}}}
    none["spec"] = {}
    evict(Api(pod(), other, none), request())
    everyone = budget(disruptionsAllowed=0)
    everyone["spec"] = {"selector": {}}
    assert refused(Api(pod(), everyone)).status == 429


@pytest.mark.parametrize(
    ("policy", "status", "goes"),
    [
        ("AlwaysAllow", {"disruptionsAllowed": 0}, True),
        ("", {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}, True),
        (
            "IfHealthyBudget",
            {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2},
            False,
        ),
        ("IfHealthyBudget", {"disruptionsAllowed": 0}, False),
    ],
)
def test_a_pod_that_is_not_ready_may_go_by_policy(
    policy: str, status: JsonObject, goes: bool
) -> None:
    guard = budget(**status)
    if policy:
        part(guard, "spec")["unhealthyPodEvictionPolicy"] = policy
    api = Api(pod(ready=False), guard)
    if not goes:
        assert refused(api).status == 429
        return
    evict(api, request())
    assert api.targets == MARKED, "nothing is taken from the budget"
    options = api.writes[-1].body
    assert isinstance(options, dict)
    assert options["preconditions"] == {"resourceVersion": "6"}


def test_a_dry_run_only_asks() -> None:
    api = Api(pod(), budget())
    evict(api, request(dryRun=["All"]))
    assert api.targets == ["delete pods"]
    assert api.writes[0].is_dry_run
    asked = Api(pod(), budget())
    evict(asked, replace(request(), query={"dryRun": "All"}))
    assert asked.targets == ["delete pods"]
    assert asked.writes[0].is_dry_run
    assert refused(Api(pod(), budget(disruptionsAllowed=0)), request(dryRun=["All"])).status == 429


@pytest.mark.parametrize(
    ("preconditions", "text"),
    [
        (
            {"uid": "u-0"},
            "the UID in the precondition (u-0) does not match the UID in record (u-1)",
        ),
        (
            {"resourceVersion": "4"},
            "the ResourceVersion in the precondition (4) does not match the ResourceVersion in "
            "record (5). The object might have been modified",
        ),
    ],
)
def test_a_pod_that_is_another_one_is_a_conflict(preconditions: JsonObject, text: str) -> None:
    refusal = refused(Api(pod()), request(preconditions=preconditions))
    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert refusal.message.startswith('Operation cannot be fulfilled on Pod "a-0": ')
    assert text in refusal.message


def test_an_older_version_that_is_asked_for_counts_also_where_a_newer_one_would_be_set() -> None:
    wanted = request(preconditions={"resourceVersion": "4"})
    assert refused(Api(pod("Pending")), wanted).status == 409


def test_preconditions_follow_the_version_of_the_mark() -> None:
    api = Api(pod())
    evict(api, request(preconditions={"uid": "u-1", "resourceVersion": "5"}))
    options = api.writes[-1].body
    assert isinstance(options, dict)
    assert options["preconditions"] == {"uid": "u-1", "resourceVersion": "6"}


def test_a_deletion_that_is_refused_is_passed_on() -> None:
    api = Api(pod())
    api.refusal = ApiRefusal(409, "Conflict", "no")
    assert (refused(api).status, refused(api).message) == (409, "no")


def test_a_pod_that_is_not_there_is_not_found() -> None:
    refusal = refused(Api(None))
    assert (refusal.status, refusal.message) == (404, 'pods "a-0" not found')


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (request(name="b-0"), "name in URL does not match name in Eviction object"),
        (
            request(version="policy/v2"),
            "the API version in the data (policy/v2) does not match the expected API version "
            "(policy/v1)",
        ),
    ],
)
def test_a_body_about_something_else_is_a_bad_request(wanted: ApiRequest, message: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        check_eviction(wanted)
    assert (caught.value.status, caught.value.message) == (400, message)
    assert refused(Api(pod()), wanted).status == 400


def test_the_older_version_is_taken_as_well() -> None:
    assert evict(Api(pod()), request(version="policy/v1beta1")).is_ok
