"""The schemas of MultiAZRollouts and of releases on the real API server (MAZ-23).

What the schema of policies refuses the decoder that mirrors it refuses too: a cluster whose
definition is old or was changed is no less safe. Defaults are the same on both sides.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec
import pytest
import yaml

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.decode.custom import decode_policy, decode_watched_policy
from rollout_operator.model.policy import Policy, PolicyStatus, RefusedPolicy
from rollout_operator.planning.policy_status import render_batch
from tests.kustomize import render
from tests.model.policy_trees import SELECTOR, policy_tree
from tests.planning.policies.snapshots import batch
from tests.rendered import MANIFESTS
from tests.system.waits import show_columns
from tests.world.api import NAMESPACES, STATEFULSETS, Answer, Api, ApiError, Json, Resource
from tests.world.budgets import CRDS, FOLDER, install_kinds
from tests.world.manifests import KINDS, read_manifests
from tests.world.world import World

pytestmark = pytest.mark.controlplane

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
SHIPPED: Final = {
    **KINDS,
    "MultiAZRollout": POLICIES,
    "Namespace": NAMESPACES,
    "StatefulSet": STATEFULSETS,
}
OTHER: Final = "another-namespace"
LONG: Final = "a" * 63
DEFAULTS: Final = {
    "statefulSetSelector": SELECTOR,
    "rollingUpdate": {
        "maxUnavailable": 1,
        "intervalSeconds": 30,
        "podOrder": "Descending",
        "azTopologyKey": "topology.kubernetes.io/zone",
    },
    "paused": False,
    "manageUpdateStrategy": False,
    "progressDeadlineSeconds": 600,
}


def _term(operator: str, *values: str, key: str = "app") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


def _list_refused() -> Iterator[tuple[str, Json]]:
    """Yield what is wrong, and a spec."""
    maxima: list[Any] = [0, -1, 1.5, True, [1], 2**63, 99999999999, 10**9, "1000000000"]
    maxima += ["0", "0%", "101%", "-1", "abc", "1.5", "", "%", " 1", "+1", "1_0", "٣", "5 %"]
    updates = {"maxUnavailable": maxima, "intervalSeconds": [-1, 86401, "30", 1.5, True]}
    updates["podOrder"] = ["descending", "", 1]
    keys = ["a/b/c", "", "-a", "a/", "/a", "A.b/c", f"a/{LONG}a", f"{'a' * 254}/b", 1]
    updates["azTopologyKey"] = keys
    for field, values in updates.items():
        for value in values:
            yield f"{field} {value!r}"[:60], {"rollingUpdate": {field: value}}
    yield "rollingUpdate is a number", {"rollingUpdate": 3}
    zones: list[Any] = [
        ["a", "b", "a"],
        ["a", ""],
        [f"{one}" for one in range(65)],
        "a",
        [1],
        ["z" * 254],
    ]
    for value in zones:
        yield f"MT-24 azOrder {value!r}"[:60], {"azOrder": value}
    yield "MT-60 a namespace as a number", {"namespace": 1}
    for name in ("paused", "manageUpdateStrategy"):
        yield f"{name} as text", {name: "true"}
    for value in (29, 2**31, "600"):
        yield f"progressDeadlineSeconds {value!r}", {"progressDeadlineSeconds": value}
    for selector in _list_bad_selectors():
        yield f"selector {selector!r}"[:80], {"statefulSetSelector": selector}


def _list_bad_selectors() -> Iterator[object]:
    yield from ({}, {"matchLabels": {}, "matchExpressions": []}, {"matchLabels": {}}, [])
    yield from ({"matchLabels": {"app": value}} for value in (1, "a/b", "-", f"{LONG}a"))
    yield from (_term("Is", "a"), _term("In"), _term("NotIn", "-"), _term("Exists", "a"))
    yield from (_term("In", "a", key=key) for key in ("a b", "", f"{'a' * 254}/b", "A.b/c"))
    yield {"matchExpressions": [{"key": "app"}]}
    yield {"matchLabels": {f"l{one}": "" for one in range(65)}}
    yield {"matchExpressions": _term("Exists")["matchExpressions"] * 65}
    yield _term("In", *(f"v{one}" for one in range(65)))


def _list_accepted() -> Iterator[Json]:
    for maximum in (1, 500, 10**9 - 1, "999999999", "3", "007", "1%", "25%", "100%", "0050%"):
        yield {"rollingUpdate": {"maxUnavailable": maximum}}
    keys = ["example.com/rack", "rack", "a", f"{'a' * 253}/{LONG}"]
    yield from ({"rollingUpdate": {"azTopologyKey": key}} for key in keys)
    yield {"rollingUpdate": {"intervalSeconds": 0, "podOrder": "Ascending"}}
    yield {"rollingUpdate": {"intervalSeconds": 86400}, "progressDeadlineSeconds": 2**31 - 1}
    yield {"azOrder": [f"{one:0253}" for one in range(64)], "progressDeadlineSeconds": 30}
    yield {"azOrder": [], "namespace": "", "paused": True, "manageUpdateStrategy": True}
    yield {"statefulSetSelector": {**_term("In", "a", ""), "matchLabels": {"a.b/c": ""}}}
    yield {"statefulSetSelector": {**_term("DoesNotExist"), "matchLabels": {}}}
    labels, terms = {f"l{one}": "" for one in range(64)}, _term("Exists")["matchExpressions"] * 64
    yield {"statefulSetSelector": {"matchLabels": labels, "matchExpressions": terms}}
    yield {"statefulSetSelector": _term("In", *(f"v{one}" for one in range(64)))}


async def test_schema_and_decoder_refuse_and_accept_the_same(world: World) -> None:
    """MAZ-01, MAZ-04 to MAZ-11, MT-24, MT-27, MT-60, MT-61."""
    await install_kinds(world.api)
    refused, accepted = {}, []
    for name, spec in _list_refused():
        tree = _in(world, spec)
        refused[name] = (await _try(world.api, tree), isinstance(_decode(tree), RefusedPolicy))
    for spec in _list_accepted():
        tree = _in(world, spec)
        accepted.append((await _try(world.api, tree), isinstance(_decode(tree), Policy)))

    assert {name: found for name, found in refused.items() if found != (422, True)} == {}
    assert [found for found in accepted if found != (201, True)] == []
    other = _in(world, {"namespace": OTHER})
    # A schema without CEL cannot compare two fields: there it is the operator alone.
    assert (await _try(world.api, other), isinstance(_decode(other), RefusedPolicy)) == (201, True)


@pytest.mark.parametrize("values", [(), ("a",)], ids=["without values", "with values"])
async def test_a_wrong_operator_is_refused_with_all_that_there_are(
    world: World, values: tuple[str, ...]
) -> None:
    """MAZ-05: not only with those that take values, nor with a remark about `anyOf`."""
    await install_kinds(world.api)
    spec = {"statefulSetSelector": _term("Is", *values)}

    answer = await _create(world.api, _in(world, spec))

    causes = [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]
    assert causes == [
        (
            "spec.statefulSetSelector.matchExpressions[0].operator",
            'Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist"',
        )
    ]


async def test_defaults_are_those_of_the_decoder_and_a_status_is_kept_whole(world: World) -> None:
    """MAZ-04 to MAZ-11, MAZ-50: as stored, and as decoded from what was never stored."""
    await install_kinds(world.api)
    tree = _in(world, {})
    head = {"name": "db", "namespace": world.namespace}
    stored = await world.post(POLICIES, {**tree, "metadata": head})

    assert stored["spec"] == DEFAULTS
    assert _without_head(_decode(stored)) == _without_head(_decode(tree))
    status = PolicyStatus(
        phase="Waiting",
        last_batch=render_batch(batch("a-2", completion=-3.25)),
        start_time="2026-01-02T03:04:05.25Z",
    )
    written = {"status": msgspec.json.decode(msgspec.json.encode(status))}
    await world.api.patch(POLICIES, world.namespace, "db", written, subresource="status")
    kept = await world.get(POLICIES, "db")
    assert decode_watched_policy(msgspec.json.encode(kept)).status == status
    assert kept["status"] == written["status"], "nothing is pruned"
    columns = await show_columns(world, POLICIES)
    assert columns["Phase"] == "Waiting"
    assert [*columns] == ["Name", "Phase", "Zone", "Updated", "Total", "Ready", "Stalled"]


async def test_maz_83_what_is_shipped_is_accepted(world: World) -> None:
    """MAZ-83: each object of the page's folder and of its sample, in a namespace that exists."""
    await install_kinds(world.api)
    path = MANIFESTS / "multi-az-rollouts"
    sample = [*yaml.safe_load_all((path / "sample.yaml").read_text())]
    answers = {}
    for one in (*render(path), *sample):
        resource = SHIPPED[one["kind"]]
        if resource.is_namespaced:
            one["metadata"]["namespace"] = world.namespace
        name = one["metadata"]["name"]
        answer = await world.api.exchange(
            "PATCH",
            resource.path(one["metadata"].get("namespace", ""), name),
            body=one,
            query={"fieldManager": "test", "force": "true", "dryRun": "All"},
            content_type="application/apply-patch+yaml",
        )
        answers[f"{one['kind']} {name}"] = (answer.status in (200, 201), answer.warnings)

    assert {name: found for name, found in answers.items() if found != (True, ())} == {}
    assert len(answers) == 15


def _in(world: World, spec: Json) -> Json:
    tree = policy_tree(**spec) if "rollingUpdate" not in spec else policy_tree()
    tree["spec"] |= spec
    tree["metadata"] = {**tree["metadata"], "namespace": world.namespace}
    return tree


def _decode(tree: Json) -> Policy | RefusedPolicy:
    return decode_policy(msgspec.json.encode(tree))


def _without_head(policy: Policy | RefusedPolicy) -> dict[str, object]:
    assert isinstance(policy, Policy)
    return {key: value for key, value in msgspec.structs.asdict(policy).items() if key != "head"}


async def _try(api: Api, tree: Json) -> int:
    return (await _create(api, tree)).status


async def _create(api: Api, tree: Json) -> Answer:
    """Return how the API server answers the creation of an object that is not stored."""
    path = POLICIES.path(tree["metadata"]["namespace"])
    head = {key: tree["metadata"][key] for key in ("name", "namespace")}
    body = {**tree, "metadata": head}
    return await api.exchange("POST", path, body=body, query={"dryRun": "All"})


RELEASES: Final = FOLDER / "releases"
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
    crds = read_manifests(RELEASES)
    await install_kinds(world.api, RELEASES)
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
        found = (await _post(world, kinds, kind, f"n{number}", spec))["spec"]
        assert {key: found.get(key) for key in expected} == expected, (kind, spec)
    for kind, spec, field in REFUSED:
        with pytest.raises(ApiError) as caught:
            await _post(world, kinds, kind, "bad", spec)
        assert caught.value.status == 422, (kind, spec)
        assert field in str(caught.value), (kind, spec)


async def _post(world: World, kinds: dict[str, Resource], kind: str, name: str, spec: Json) -> Json:
    body = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    resource = kinds[kind]
    namespace = world.namespace if resource.is_namespaced else ""
    return await world.api.create(resource, namespace, body)
