"""Whether Flux in the lab writes what Flux's own controllers were recorded to write."""

from typing import Final

from rollout_lab.flux import label_owner
from rollout_lab.model.request import ApiRequest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import KUSTOMIZATIONS, OCI_REPOSITORIES, STATEFULSETS
from tests.controllers.releases.world import ReleaseSandbox
from tests.flux.record import normalise, read_record
from tests.lab.releasing import create_release
from tests.virtual_time import in_virtual_time
from tests.world.api import Json

KINDS: Final = {"OCIRepository": OCI_REPOSITORIES[0], "Kustomization": KUSTOMIZATIONS[0]}


async def create_zones(world: ReleaseSandbox) -> None:
    namespace = world.sandbox.namespace
    for letter in "abc":
        zone = ZoneSpec(
            name=f"db-zone-{letter}", image="app:none", labels=label_owner("app", namespace)
        )
        body = statefulset(zone, namespace)
        await world.sandbox.call(
            ApiRequest(verb="create", resource=STATEFULSETS, namespace=namespace, body=body)
        )


async def read_statuses(world: ReleaseSandbox, tag: str) -> dict[str, Json]:
    """Return the statuses in the form of the record, with times that are the same for all."""
    found = {kind: dict(await world.get(one, "app")) for kind, one in KINDS.items()}
    artifact = found["OCIRepository"]["status"].get("artifact") or {}
    names = {world.sandbox.namespace: "NAMESPACE"}
    if artifact:
        names[artifact["digest"]] = f"sha256:{tag}"
    return {kind: normalise(body, names) for kind, body in found.items()}


def show_outcomes(statuses: dict[str, Json]) -> dict[str, set[str]]:
    """Return conditions without their texts, each with the generation that it is about."""
    return {
        kind: {
            f"{one['type']}={one['status']} {one['reason']} {one['observedGeneration']}"
            for one in status["conditions"]
        }
        for kind, status in statuses.items()
    }


async def set_tag(world: ReleaseSandbox, tag: str) -> None:
    await world.patch(KINDS["OCIRepository"], "app", {"spec": {"ref": {"tag": tag}}})
    await world.sleep(30)


@in_virtual_time
async def test_what_the_lab_writes_is_on_record() -> None:
    moments = read_record()["moments"]
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        world.sandbox.flux.missing |= {"none", "1.4.0"}
        world.sandbox.start_flux()
        await create_release(world)
        await set_tag(world, "none")
        nothing = await read_statuses(world, "none")
        recorded = moments["there is no such tag yet"]
        assert show_outcomes(nothing) == show_outcomes(recorded)
        # The real API server fills in -1.
        assert {one.get("observedGeneration", -1) for one in nothing.values()} == {-1}

        await set_tag(world, "1.0.0")
        await world.sleep(60)
        assert await read_statuses(world, "1.0.0") == moments["the first release is applied"]

        await set_tag(world, "1.4.0")
        failed = (await read_statuses(world, "1.0.0"))["OCIRepository"]
        recorded = moments["the registry does not have the tag"]["OCIRepository"]
        assert show_outcomes({"": failed}) == show_outcomes({"": recorded})
        assert failed["observedGeneration"] == recorded["observedGeneration"]
