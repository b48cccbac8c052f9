"""Server-side apply of objects of Flux: whose a field is, who may take it, and what is let go."""

import msgspec
from rollout_lab.model.request import APPLY_PATCH, ApiAnswer

from rollout_operator.kube.api import KUSTOMIZATIONS, OCI_REPOSITORIES, JsonObject
from rollout_operator.model.decode.objects import decode_field_writers
from tests.contract.bodies import uid_of
from tests.contract.plays import sequence
from tests.contract.world import World

SOURCES = OCI_REPOSITORIES[0]
APPLIED = KUSTOMIZATIONS[0]
PATHS = {SOURCES: ("spec", "ref"), APPLIED: ("spec", "postBuild", "substitute")}
OTHER_UID = "11111111-2222-3333-4444-555555555555"


def source(spec: JsonObject, **metadata: object) -> JsonObject:
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": SOURCES.kind,
        "metadata": {"name": "a", **metadata},
        "spec": spec,
    }


def kustomization(**variables: str) -> JsonObject:
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": APPLIED.kind,
        "metadata": {"name": "a"},
        "spec": {"postBuild": {"substitute": {**variables}}},
    }


async def make(world: World, body: JsonObject) -> ApiAnswer:
    """Create an object as the manager `team`."""
    resource = SOURCES if body["kind"] == SOURCES.kind else APPLIED
    with world.quietly():
        made = await world.create(resource, body, fieldManager="team")
    assert made.is_ok, made.message
    return made


async def apply(world: World, body: JsonObject, manager: str, *, force: bool = False) -> None:
    """Apply, and record whose the fields are then."""
    resource = SOURCES if body["kind"] == SOURCES.kind else APPLIED
    forced = {"force": "true"} if force else {}
    await world.patch(resource, "a", body, APPLY_PATCH, fieldManager=manager, **forced)
    await writers(world, resource is SOURCES)


async def writers(world: World, is_source: bool = True) -> None:
    """Record whose fields are whose: managers in any order, as that is one of times."""
    resource = SOURCES if is_source else APPLIED
    with world.quietly():
        now = await world.get(resource, "a")
    found = decode_field_writers(msgspec.Raw(msgspec.json.encode(now.body)), PATHS[resource])
    world.record("writers", fields={key: sorted(found[key]) for key in sorted(found)})


@sequence()
async def a_field_is_applied_and_taken(world: World) -> None:
    await make(world, source({"url": "oci://x", "ref": {"tag": "1"}}))
    await apply(world, source({"ref": {"tag": "2"}}), "one")
    await apply(world, source({"ref": {"tag": "2"}}), "one", force=True)
    await apply(world, source({"ref": {"tag": "2"}}), "one")
    await apply(world, source({"ref": {"tag": "3"}}), "two")
    await apply(world, source({"ref": {"tag": "2"}}), "two")
    await apply(world, source({"ref": {"tag": "3"}}), "two")
    await apply(world, source({"ref": {"tag": "3", "digest": "d"}}), "two", force=True)
    await world.get(SOURCES, "a")


@sequence()
async def a_dry_run_of_an_apply_changes_nothing(world: World) -> None:
    await make(world, source({"url": "oci://x", "ref": {"tag": "1"}}))
    for force in ({}, {"force": "true"}):
        body = source({"ref": {"tag": "2"}})
        await world.patch(
            SOURCES, "a", body, APPLY_PATCH, fieldManager="one", dryRun="All", **force
        )
        await writers(world)
    await world.get(SOURCES, "a")


@sequence()
async def several_conflicts_are_named(world: World) -> None:
    await make(world, kustomization(a="1", b="1"))
    await apply(world, kustomization(c="1"), "one")
    # Of several managers the real server names causes in any order.
    await apply(world, kustomization(a="2", b="2"), "two")
    await apply(world, kustomization(a="2"), "two")
    await apply(world, kustomization(c="2"), "two")


@sequence()
async def what_is_left_out_goes_unless_another_holds_it(world: World) -> None:
    await make(world, kustomization(other="1"))
    await apply(world, kustomization(a="1", b="1"), "one")
    await apply(world, kustomization(b="1"), "manager")
    await apply(world, kustomization(), "one")
    await apply(world, kustomization(), "manager")
    await world.get(APPLIED, "a")


@sequence()
async def an_apply_of_nothing_lets_all_go(world: World) -> None:
    await make(world, source({"url": "oci://x"}))
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    body = source({})
    del body["spec"]
    await apply(world, body, "one")


@sequence()
async def a_patch_takes_a_field_from_its_manager(world: World) -> None:
    """Also one that takes it away, and a status is not in the way of either."""
    await make(world, source({"url": "oci://x"}))
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    await world.patch(SOURCES, "a", {"spec": {"ref": {"tag": "2"}}}, fieldManager="amy")
    await writers(world)
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    await world.patch(SOURCES, "a", {"spec": {"ref": {"tag": "1"}}}, fieldManager="bob")
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    await world.patch(SOURCES, "a/status", {"status": {"ready": True}}, fieldManager="flux")
    await writers(world)
    await world.patch(SOURCES, "a", {"spec": {"ref": None}}, fieldManager="amy")
    await writers(world)


@sequence()
async def an_apply_without_change_is_no_write(world: World) -> None:
    await make(world, source({"url": "oci://x"}))
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    await apply(world, source({"ref": {"tag": "1"}}), "one")
    await world.patch(SOURCES, "a", {"spec": {"ref": {"tag": "1"}}}, fieldManager="amy")
    await writers(world)


@sequence()
async def an_apply_means_one_object_and_creates_none_by_uid(world: World) -> None:
    await world.patch(
        SOURCES, "a", source({}, uid=OTHER_UID), APPLY_PATCH, fieldManager="one", force="true"
    )
    made = await make(world, source({"url": "oci://x"}))
    for uid in (OTHER_UID, uid_of(made)):
        await apply(world, source({"ref": {"tag": "1"}}, uid=uid), "one", force=True)


@sequence()
async def labels_and_lists_are_applied(world: World) -> None:
    await make(world, source({"url": "oci://x", "parts": ["a"]}, labels={"x": "1"}))
    await apply(world, source({"parts": ["b"]}, labels={"y": "1"}), "one", force=True)
    await apply(world, source({"parts": ["b"]}), "one")
