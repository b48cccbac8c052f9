"""What releases make of what Flux's controllers write; our stand-in and the lab write the same."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.kube.api import KUSTOMIZATIONS as LAB_KUSTOMIZATIONS
from rollout_operator.kube.api import OCI_REPOSITORIES as LAB_SOURCES
from rollout_operator.releases.model.decode_flux import decode_kustomization, decode_oci_repository
from rollout_operator.releases.planning.flux import map_flux_waits, name_manager
from rollout_operator.releases.planning.health_checks import (
    assess_object,
    has_lasted,
    parse_inventory_id,
    track_failure,
)
from tests.controllers.releases.world import ReleaseSandbox
from tests.flux.record import GENERATION, TIME, normalise, read_record
from tests.lab.releasing import create_release, create_zones
from tests.stories import check_tables
from tests.virtual_time import in_virtual_time
from tests.world.api import Json
from tests.world.flux import (
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    render_applied,
    render_fetched,
    render_inventory,
)

GRACE: Final = timedelta(minutes=2)
WRITTEN: Final = datetime.fromisoformat(TIME).astimezone(UTC)
ZONES: Final = ("db-zone-a", "db-zone-b", "db-zone-c")
FIRST: Final = "the first release is applied"
NEXT: Final = "the next release is applied"
KINDS: Final = {"OCIRepository": LAB_SOURCES[0], "Kustomization": LAB_KUSTOMIZATIONS[0]}


@cache
def recorded() -> Json:
    return read_record()


def read(moment: str, kind: str) -> Json:
    """Return an object with a status as it was recorded, and the rest as a Rollout has it."""
    resource = OCI_REPOSITORIES if kind == "OCIRepository" else KUSTOMIZATIONS
    annotation = {
        "OCIRepository": "rollout.kuberik.com/rollout",
        "Kustomization": "rollout.kuberik.com/substitute.version.from",
    }[kind]
    return {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {
            "name": "app",
            "namespace": "prod",
            "uid": "u",
            "resourceVersion": "1",
            "generation": GENERATION,
            "annotations": {annotation: "app"},
        },
        "spec": {"sourceRef": {"kind": "OCIRepository", "name": "app"}},
        "status": recorded()["moments"][moment][kind],
    }


MOMENTS: Final = Path(__file__).parent / "moments.txt"


def test_all_moments_are_judged() -> None:
    judged = [line.partition(", ")[0] for line in MOMENTS.read_text("utf-8").splitlines()]
    assert {*recorded()["moments"]} <= {*judged}


def show_moment(case: str) -> str:
    """Return what a bake waits for, and the Kustomization's health within the grace and after."""
    moment, _, tag = case.rpartition(", ")
    tree = read(moment, "Kustomization")
    objects = (
        decode_oci_repository(msgspec.json.encode(read(moment, "OCIRepository"))),
        decode_kustomization(msgspec.json.encode(tree)),
    )
    waits = map_flux_waits("app", tag, objects)
    assert all(text.isprintable() for text in waits.values())
    health: list[str] = []
    for age in (GRACE, 2 * GRACE):
        now = WRITTEN + age
        failure = track_failure(tree, None, now)
        counts = has_lasted(failure, now, GRACE)
        verdict = assess_object("app", tree, now, failure if counts else None).verdict
        assert verdict is not None
        health.append(verdict.status)
    found = [" then ".join(dict.fromkeys(health)), *(text[:99] for text in waits.values())]
    return "\n".join(found)


test_what_a_moment_means = check_tables(__file__, moments=show_moment)


def test_each_failure_of_flux_counts() -> None:
    """RELB-37: by its reason, while it tries again as well."""
    shown = [text for text in recorded()["passing"]["Kustomization"] if "Ready=False" in text]
    reasons = {text.partition("Ready=False ")[2].partition(",")[0] for text in shown}
    for reason in reasons:
        ready = {"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": TIME}
        tree = {**read(FIRST, "Kustomization"), "status": {"conditions": [ready]}}
        assert track_failure(tree, None, WRITTEN) is not None, reason
    assert reasons == {"ArtifactFailed", "BuildFailed", "ReconciliationFailed"}


def test_ids_of_an_inventory() -> None:
    """REL-109."""
    status = recorded()["moments"][NEXT]["Kustomization"]
    found = [parse_inventory_id(one["id"]) for one in status["inventory"]["entries"]]

    assert [(one.namespace, one.name, one.group, one.kind) for one in found] == [
        ("NAMESPACE", zone, "apps", "StatefulSet") for zone in ZONES
    ]


def test_our_manager_has_nothing_but_the_tag() -> None:
    """RELB-13: also beside Flux that applies the same objects by server-side apply."""
    managers, own = recorded()["managers"], f"{name_manager('app')} Apply"

    assert managers["OCIRepository"][own] == ["spec.ref.tag"]
    assert managers["Kustomization"][own] == ["spec.postBuild.substitute.version"]
    for kind in managers:
        flux = managers[kind]["kustomize-controller Apply"]
        assert not set(flux) & set(managers[kind][own])


@pytest.mark.parametrize(("moment", "tag"), [(FIRST, "1.0.0"), (NEXT, "1.1.0")])
def test_our_stand_in_writes_the_same(moment: str, tag: str) -> None:
    revision = f"{tag}@sha256:{tag}"
    applied = render_applied(revision, 3, TIME)
    applied["inventory"] = render_inventory("NAMESPACE", ZONES)
    written = {"OCIRepository": render_fetched(revision, 3, TIME), "Kustomization": applied}

    assert {kind: _normalise(status) for kind, status in written.items()} == recorded()["moments"][
        moment
    ]


def _normalise(status: Mapping[str, Any]) -> Json:
    return normalise({"metadata": {"generation": 3}, "status": status}, {})


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
        await create_zones(world, "db-zone-")
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
