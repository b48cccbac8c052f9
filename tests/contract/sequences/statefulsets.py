"""StatefulSets: defaults, what may not change, generation, status and scale."""

from rollout_lab.model.request import JSON_PATCH, STRATEGIC_PATCH

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from tests.contract.bodies import statefulset, tree
from tests.contract.plays import sequence
from tests.contract.world import World


@sequence()
async def defaults_and_what_is_given(world: World) -> None:
    await world.create(STATEFULSETS, statefulset("a", None))
    body = statefulset(
        "b",
        0,
        podManagementPolicy="Parallel",
        updateStrategy={"type": "OnDelete"},
        revisionHistoryLimit=3,
        minReadySeconds=5,
        ordinals={"start": 7},
    )
    await world.create(STATEFULSETS, body)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await world.create(STATEFULSETS, statefulset("c", updateStrategy=strategy))
    await world.create(STATEFULSETS, statefulset("d", serviceName=""))


@sequence()
async def generation_rises_with_the_spec_and_a_delete(world: World) -> None:
    body = statefulset("a")
    body["metadata"] = {"name": "a", "finalizers": ["x.org/a"]}
    await world.make(STATEFULSETS, body)
    await world.patch(STATEFULSETS, "a", {"metadata": {"labels": {"x": "y"}}})
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    await world.patch(STATEFULSETS, "a", {"metadata": {"generation": 9}})
    await world.delete(STATEFULSETS, "a")
    await world.patch(STATEFULSETS, "a", {"metadata": {"finalizers": None}})


@sequence()
async def omitted_replicas_mean_one(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a", 3))
    await world.update(STATEFULSETS, "a", statefulset("a", None))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 5}})
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": None}})


@sequence()
async def what_may_change(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    specs: tuple[JsonObject, ...] = (
        {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        {"updateStrategy": {"type": "RollingUpdate"}},
        {"minReadySeconds": 3},
        {"ordinals": {"start": 2}},
        {"revisionHistoryLimit": 2},
        {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}},
    )
    for spec in specs:
        await world.patch(STATEFULSETS, "a", {"spec": spec})


@sequence()
async def status_by_its_subresource_only(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.patch(STATEFULSETS, "a", {"status": {"replicas": 3, "observedGeneration": 1}})
    await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 3}}, dryRun="All")
    for _ in range(2):
        await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 3}})
    await world.get(STATEFULSETS, "a/status")


@sequence()
async def the_status_subresource_leaves_the_spec(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    body["status"] = {"replicas": 2, "readyReplicas": 1, "observedGeneration": 1}
    body["spec"]["replicas"] = 9
    body["metadata"]["labels"] = {"x": "y"}
    await world.update(STATEFULSETS, "a/status", body)
    await world.get(STATEFULSETS, "a")
    await world.update(STATEFULSETS, "a/status", body)
    del body["metadata"]["resourceVersion"]
    body["status"] = {"replicas": 1}
    await world.update(STATEFULSETS, "a/status", body)


@sequence()
async def conditions_are_merged_by_type(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    for kind in ("A", "B"):
        condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        patch: JsonObject = {"status": {"conditions": [condition]}}
        await world.patch(STATEFULSETS, "a/status", patch, STRATEGIC_PATCH)


@sequence()
async def scale_is_read_and_patched(world: World) -> None:
    made = tree(await world.make(STATEFULSETS, statefulset("a")))
    await world.get(STATEFULSETS, "a/scale")
    await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 2}})
    await world.get(STATEFULSETS, "a/scale")
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}}, dryRun="All")
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 5}})
    await world.get(STATEFULSETS, "a")
    step: JsonObject = {"op": "replace", "path": "/spec/replicas", "value": 4}
    await world.patch(STATEFULSETS, "a/scale", [step], JSON_PATCH)
    await world.patch(STATEFULSETS, "a/scale", [step], JSON_PATCH)
    await world.get(STATEFULSETS, "a")
    old = {"resourceVersion": made["metadata"]["resourceVersion"]}
    await world.patch(STATEFULSETS, "a/scale", {"metadata": old, "spec": {"replicas": 1}})
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 0}})
    await world.get(STATEFULSETS, "a/scale")
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": None}})


@sequence()
async def scale_is_put(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    body = tree(await world.get(STATEFULSETS, "a/scale"))
    body["spec"]["replicas"] = 5
    await world.update(STATEFULSETS, "a/scale", body, dryRun="All")
    await world.update(STATEFULSETS, "a/scale", body)
    body["spec"]["replicas"] = 6
    await world.update(STATEFULSETS, "a/scale", body)
    del body["metadata"]["resourceVersion"]
    await world.update(STATEFULSETS, "a/scale", body)
    await world.get(STATEFULSETS, "a")
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    await world.update(STATEFULSETS, "a/scale", body)
