"""What `doctor` reads of MultiAZRollouts, and where it checks the rights of their operator."""

from typing import Any, Final

import pytest

from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.diagnosis import FindingCode, Source
from rollout_operator.model.names import Denied, NotFound
from rollout_operator.operator.examine import examine
from tests.model.budget_trees import budget_tree
from tests.operator.diagnosis.test_examine import NAMESPACE, NOW, Cluster, deployment, read


async def test_maz82_a_kind_that_is_served_in_another_version_is_named() -> None:
    """Its definition is read only where it is requested: administrators alone may."""
    cluster = Cluster()
    cluster.put("deployments", deployment("-multi-az-rollouts.enabled"))

    def lacks(call: str) -> None:
        if call.startswith("list multiaz"):
            raise NotFound(call, status=404)

    cluster.before = lacks
    versions = [{"name": "v1beta1", "served": True}, {"name": "v1alpha1", "served": False}]
    name = "multiazrollouts.rollout.grafana.com"
    body: JsonObject = {"metadata": {"name": name}, "spec": {"versions": versions}}
    cluster.put("customresourcedefinitions", body)
    installation = await read(cluster)

    assert (installation.policies, installation.unread) == ((), {})
    kind = installation.policy_kind
    assert (kind.is_served, kind.versions) == (False, ("v1beta1",))
    del cluster.objects["customresourcedefinitions", name]
    assert (await read(cluster)).policy_kind.versions == ()


OLD: JsonObject = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}
KINDS: Final = {
    "multiazrollouts.rollout.grafana.com": ("MultiAZRollout", "v1alpha1"),
    "zoneawarepoddisruptionbudgets.rollout-operator.grafana.com": (
        "ZoneAwarePodDisruptionBudget",
        "v1",
    ),
    "rollouts.kuberik.com": ("Rollout", "v1alpha1"),
    "rolloutgates.kuberik.com": ("RolloutGate", "v1alpha1"),
    "healthchecks.kuberik.com": ("HealthCheck", "v1alpha1"),
    "rolloutschedules.kuberik.com": ("RolloutSchedule", "v1alpha1"),
    "clusterrolloutschedules.kuberik.com": ("ClusterRolloutSchedule", "v1alpha1"),
}


@pytest.mark.parametrize(
    ("flags", "has_budget", "used"),
    [
        pytest.param((), False, set(), id="none"),
        pytest.param(("multi-az-rollouts.enabled",), False, {"MultiAZRollout"}, id="policies"),
        pytest.param((), True, {"ZoneAwarePodDisruptionBudget"}, id="budgets"),
        pytest.param(
            ("releases.enabled",),
            False,
            {kind for name, (kind, _) in KINDS.items() if name.endswith("kuberik.com")},
            id="releases",
        ),
    ],
)
@pytest.mark.parametrize("denied", [(), ("customresourcedefinitions",)], ids=["", "denied"])
async def test_old_definitions_are_read_of_kinds_in_use(
    flags: tuple[str, ...], has_budget: bool, used: set[str], denied: tuple[str, ...]
) -> None:
    """Without the right to read them, the check is skipped. Only administrators have it."""
    cluster = Cluster(denied=denied)
    cluster.put("deployments", deployment(*(f"-{flag}" for flag in flags)))
    if has_budget:
        cluster.put("zoneawarepoddisruptionbudgets", budget_tree("b"))
    for name, (_, version) in KINDS.items():
        versions = [{"name": version, "served": True, "schema": OLD}, {"name": "v0"}]
        cluster.put(
            "customresourcedefinitions",
            {"metadata": {"name": name}, "spec": {"versions": versions}},
        )
    installation = await read(cluster)

    assert installation.missing_fields.keys() == (set() if denied else used)
    assert all("spec." in "".join(fields) for fields in installation.missing_fields.values())
    assert (Source.DEFINITIONS in installation.unread) is (bool(used) and bool(denied))


async def test_a_definition_that_lacks_fields_is_named_beside_one_that_may_not_be_read() -> None:
    cluster = Cluster()
    cluster.put("deployments", deployment("-multi-az-rollouts.enabled"))
    cluster.put("zoneawarepoddisruptionbudgets", budget_tree("b"))
    versions = [{"name": "v1alpha1", "served": True, "schema": OLD}]
    head = {"name": "multiazrollouts.rollout.grafana.com"}
    cluster.put("customresourcedefinitions", {"metadata": head, "spec": {"versions": versions}})

    def deny(call: str) -> None:
        if "/zoneaware" in call:
            raise Denied(call, status=403)

    cluster.before = deny
    diagnosis = await examine(cluster, NAMESPACE, NOW)
    assert diagnosis.has(FindingCode.KIND_OUTDATED)


@pytest.mark.parametrize(("flag", "is_missed"), [("true", True), ("false", False)])
async def test_policies_are_missed_only_where_they_are_obeyed(flag: str, is_missed: bool) -> None:
    """Most users need no right to read them, and a check that is skipped may count as a failure."""
    cluster = Cluster(denied=("multiazrollouts",))
    cluster.put("deployments", deployment(f"-multi-az-rollouts.enabled={flag}"))

    assert (Source.POLICIES in (await read(cluster)).unread) is is_missed


async def test_maz60_rights_are_reviewed_where_the_operator_watches() -> None:
    """Those of its own process, such as its Lease, in its own namespace alone."""
    cluster = Cluster()
    cluster.missing_verbs = {"delete"}
    given = deployment()
    variable: JsonObject = {"name": "WATCH_NAMESPACE", "value": "a,b"}
    spec = given["spec"]
    assert isinstance(spec, dict)
    spec["template"]["spec"]["containers"][0]["env"] = [variable]
    cluster.put("deployments", given)
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    missing = [one.text for one in diagnosis.findings if one.code is FindingCode.RIGHT_MISSING]
    assert missing == [
        f"it may not delete pods in namespace {name}: no pod is replaced" for name in "ab"
    ]
    requested: dict[str, set[str]] = {}
    for review in cluster.reviews:
        attributes = review.get("spec", {"resourceAttributes": {"resource": "", "namespace": ""}})
        assert isinstance(attributes, dict)
        found = attributes["resourceAttributes"]
        requested.setdefault(found["resource"], set()).add(found["namespace"])
    assert requested["pods"] == requested["multiazrollouts"] == {"a", "b"}
    assert requested["leases"] == {NAMESPACE}


class Elsewhere(Cluster):
    """A cluster whose only operator is in another namespace."""

    async def fetch_page(
        self, resource: Resource, namespace: str, *, token: str = "", **how: Any
    ) -> Page:
        if resource.plural == "deployments" and namespace:
            return Page(items=(), resource_version="1")
        return await super().fetch_page(resource, namespace, token=token)


async def test_maz60_an_operator_elsewhere_is_found_by_what_it_watches() -> None:
    """Its rights are checked here, those of its process where it is."""
    cluster = Elsewhere()
    given = deployment()
    variable: JsonObject = {"name": "WATCH_NAMESPACE", "value": NAMESPACE}
    spec = given["spec"]
    assert isinstance(spec, dict)
    spec["template"]["spec"]["containers"][0]["env"] = [variable]
    given["metadata"] = {"name": "rollout-operator", "namespace": "ops"}
    cluster.put("deployments", given)
    installation = await read(cluster)

    assert [operator.title for operator in installation.operators] == [
        "Deployment ops/rollout-operator"
    ]
    users = {
        str(spec["user"])
        for review in cluster.reviews
        if isinstance(spec := review.get("spec"), dict)
    }
    assert users == {"system:serviceaccount:ops:rollout-operator"}
    requested = {(answer.right.resource, answer.namespace) for answer in installation.rights}
    assert {("pods", NAMESPACE), ("multiazrollouts", NAMESPACE), ("leases", "")} <= requested
    variable["value"] = "another"
    cluster.put("deployments", given)
    assert (await read(cluster)).operators == ()
