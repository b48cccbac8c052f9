"""The schemas of MultiAZRollouts and of releases on the real API server (MAZ-23).

What the schema of policies refuses the decoder that mirrors it refuses too: a cluster whose
definition is old or was changed is no less safe. Defaults are the same on both sides.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
import yaml

from rollout_operator.gates.model import FlawedHealthCheck, decode_health_check
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.decode.custom import decode_policy, decode_watched_policy
from rollout_operator.model.policy import Policy, PolicyStatus, RefusedPolicy
from rollout_operator.planning.policy_status import render_batch
from tests.gates.trees import health_check_tree
from tests.goldens import Golden
from tests.kustomize import render
from tests.model.cases import bend
from tests.model.policy_trees import policy_tree
from tests.planning.policies.snapshots import batch
from tests.rendered import (
    CERTIFICATES,
    LEAST,
    MANIFESTS,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    WEBHOOKS,
    install,
)
from tests.stories import Story, read_stories
from tests.system.waits import show_columns
from tests.world.api import NAMESPACES, PATCH_TYPES, STATEFULSETS, Answer, Json, Resource
from tests.world.budgets import CRDS, FOLDER, ZONE_BUDGETS, install_kinds
from tests.world.manifests import KINDS, read_manifests
from tests.world.world import World

pytestmark = pytest.mark.controlplane

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
RELEASES: Final = FOLDER / "releases"
HEALTH_CHECKS: Final = FOLDER / "health-checks"
DECODED: Final = Path(__file__).parents[1] / "model" / "decode"
SHIPPED: Final = {
    **KINDS,
    "MultiAZRollout": POLICIES,
    "Namespace": NAMESPACES,
    "StatefulSet": STATEFULSETS,
}
FOLDERS: Final = ("overlays/with-webhooks", "overlays/ha", "multi-az-rollouts")
STRICT: Final = {"fieldValidation": "Strict"}
RULES: Final[Json] = {
    "rolloutSelector": {},
    "rules": [{"timeRange": {"start": "22:00", "end": "00:00"}}],
}
# What a case changes.
PLAIN: Final[dict[str, Json]] = {
    "Rollout": {"releasesImagePolicy": {"name": "app"}},
    "RolloutGate": {"rolloutRef": {"name": "app"}},
    "RolloutSchedule": RULES,
    "ClusterRolloutSchedule": RULES,
    "HealthCheck": {},
    "ZoneAwarePodDisruptionBudget": {"selector": {"matchLabels": {"app": "x"}}},
    "RolloutHealthCheck": health_check_tree()["spec"],
}


def _list_cases(path: Path) -> list[Story]:
    return [story for param in read_stories(path) if isinstance(story := param.values[0], Story)]


@pytest.fixture(name="kinds")
async def install_all(world: World) -> AsyncIterator[dict[str, Resource]]:
    """Install all kinds, and remove those of releases with all their objects."""
    await install_kinds(world.api)
    for folder in (RELEASES, HEALTH_CHECKS):
        await install_kinds(world.api, folder)
    crds = [*read_manifests(RELEASES), *read_manifests(HEALTH_CHECKS)]
    yield {"ZoneAwarePodDisruptionBudget": ZONE_BUDGETS} | {
        crd["spec"]["names"]["kind"]: Resource(
            f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}",
            crd["spec"]["names"]["plural"],
            is_namespaced=crd["spec"]["scope"] == "Namespaced",
        )
        for crd in crds
    }
    for crd in crds:
        await world.api.delete(CRDS, "", crd["metadata"]["name"])


async def test_what_the_schemas_make_of_objects(
    world: World, kinds: dict[str, Resource], golden: Golden
) -> None:
    """MAZ-01, MAZ-04 to MAZ-11, MT-24, MT-27, MT-60, MT-61: policies as their decoder has them."""
    for story in _list_cases(DECODED / "policy.txt"):
        changes = story.commands[0]
        # What is null is as if it were not there; the API server gives each object its own uid.
        if changes != "plain" and "null" not in changes and "metadata" not in changes:
            await _try_policy(world, changes)
    for story in _list_cases(DECODED / "rollout_health_check.txt"):
        changes = story.commands[0]
        if changes != "plain" and not re.search("null|metadata|status|kind", changes):
            await _try_health_check(world, kinds["RolloutHealthCheck"], changes)
    plain: dict[str, Json] = {}
    for story in _list_cases(Path(__file__).parent / "kinds.txt"):
        kind, _, changes = story.commands[0].partition(" ")
        if kind == "MultiAZRollout":
            given = bend(policy_tree(), changes)["spec"]
            answer = await _try_policy(world, changes)
        else:
            given = bend({"spec": PLAIN[kind]}, changes)["spec"]
            resource = kinds[kind]
            body = {"apiVersion": resource.api_version, "kind": kind, "spec": given}
            answer = await _try(world, resource, body)
        if not changes:
            plain[kind] = answer.body["spec"]
        story.check(_tell(answer, given, plain[kind] if changes else {}), golden)


# What the schema cannot say without CEL: to compare two fields, and what the keys of a map are.
OF_THE_DECODER: Final = ("namespace: other", 'statefulSetSelector: {matchLabels: {"a b": c}}')


async def _try_policy(world: World, changes: str) -> Answer:
    """Return the answer to a policy, on which the decoder must agree."""
    tree = bend(policy_tree(), changes)
    answer = await _try(world, POLICIES, tree)
    tree["metadata"]["namespace"] = world.namespace
    is_refused = isinstance(decode_policy(msgspec.json.encode(tree)), RefusedPolicy)
    expected = (201 if changes in OF_THE_DECODER or not is_refused else 422, is_refused)
    assert (answer.status, is_refused) == expected, (changes, answer)
    return answer


async def _try_health_check(world: World, resource: Resource, changes: str) -> None:
    """Create a health check, which the schema refuses only where the decoder does."""
    tree = bend(health_check_tree(), changes)
    answer = await _try(world, resource, tree)
    is_refused = isinstance(decode_health_check(msgspec.json.encode(tree)), FlawedHealthCheck)
    assert answer.status == 201 or (answer.status == 422 and is_refused), (changes, answer)


async def _try(world: World, resource: Resource, body: Json) -> Answer:
    """Return how the API server answers the creation of an object that is not stored."""
    path = resource.path(world.namespace if resource.is_namespaced else "")
    named = {**body, "metadata": {"name": "db"}}
    return await world.api.exchange("POST", path, body=named, query={"dryRun": "All"})


MESSAGES: Final = [
    rule
    for path in (
        FOLDER / "zoneawarepoddisruptionbudgets.yaml",
        *HEALTH_CHECKS.glob("rollout*.yaml"),
    )
    for rule in re.findall(r"message: (?:>-\s+)?(.+)", path.read_text())
]


def _tell(answer: Answer, given: Json, plain: Json) -> str:
    """Return the fields that are neither as given nor as they are else, or what is wrong."""
    if answer.status == 422:
        fields = {*re.findall(r"spec(?:\.\w+|\[\d+\])+", answer.message)}
        said = [rule for rule in MESSAGES if rule in answer.message]
        return f"refused: {'; '.join(said or sorted(fields))}"
    stored = answer.body["spec"]
    shown = {key: one for key, one in stored.items() if one not in (plain.get(key), given.get(key))}
    shown |= dict.fromkeys({*given} - {*stored}, "dropped")
    text = yaml.safe_dump(shown, default_flow_style=True, width=10**4).strip() if shown else "kept"
    return re.sub(r"(\w)\1{59,}", lambda match: f"{{{match[1]} * {len(match[0])}}}", text)


async def test_a_wrong_operator_is_refused_with_all_that_there_are(world: World) -> None:
    """MAZ-05: not only with those that take values, nor with a remark about `anyOf`."""
    await install_kinds(world.api)
    for values in ({}, {"values": ["a"]}):
        term = {"key": "app", "operator": "Is", **values}
        tree = policy_tree(statefulSetSelector={"matchExpressions": [term]})
        answer = await _try(world, POLICIES, tree)
        causes = [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]
        assert causes == [
            (
                "spec.statefulSetSelector.matchExpressions[0].operator",
                'Unsupported value: "Is": supported values: '
                '"In", "NotIn", "Exists", "DoesNotExist"',
            )
        ]


async def test_defaults_are_those_of_the_decoder_and_a_status_is_kept_whole(world: World) -> None:
    """MAZ-04 to MAZ-11, MAZ-50: as stored, and as decoded from what was never stored."""
    await install_kinds(world.api)
    tree = policy_tree()
    tree["metadata"]["namespace"] = world.namespace
    head = {"name": "db", "namespace": world.namespace}
    stored = await world.post(POLICIES, {**tree, "metadata": head})

    assert _without_head(stored) == _without_head(tree)
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


def _without_head(tree: Json) -> dict[str, object]:
    policy = decode_policy(msgspec.json.encode(tree))
    assert isinstance(policy, Policy)
    return {key: value for key, value in msgspec.structs.asdict(policy).items() if key != "head"}


async def test_what_is_shipped_is_accepted(world: World, tmp_path: Path) -> None:
    """MAZ-83, SEED-148, DEP-84: each object passes a strict dry run, without a warning."""
    await install_kinds(world.api)
    components = (WEBHOOKS, LEAST, PRIORITY, NETWORK, CERTIFICATES)
    sample = (MANIFESTS / "multi-az-rollouts" / "sample.yaml").read_text()
    shipped = [
        *(one for name in FOLDERS for one in render(MANIFESTS / name)),
        *install(tmp_path, *components, more=[NETWORK_PARAMETERS]),
        *yaml.safe_load_all(sample),
    ]
    answers = []
    for one in shipped:
        resource, metadata = SHIPPED[one["kind"]], one["metadata"]
        if resource.is_namespaced:
            metadata["namespace"] = world.namespace
        answer = await world.api.exchange(
            "PATCH",
            resource.path(metadata.get("namespace", ""), metadata["name"]),
            body=one,
            query={"fieldManager": "test", "force": "true", "dryRun": "All", **STRICT},
            content_type=PATCH_TYPES["apply"],
        )
        answers.append((answer.status in (200, 201), answer.warnings, one["kind"], answer.message))
    assert [one for one in answers if one[:2] != (True, ())] == []
    assert len(answers) > 40
