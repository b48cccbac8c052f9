"""no-downscale by every way in which a count is changed, on the real API server."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec, statefulset

from tests.system.guarded import NO_DOWNSCALE
from tests.system.hooked import hook_up
from tests.world.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Json, Resource
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, Route, Workload, workload_body
from tests.world.hooks import WORKLOADS
from tests.world.world import World

pytestmark = pytest.mark.controlplane

ONLY_NO_DOWNSCALE: Final = {"hooks": ("no-downscale",), "resources": WORKLOADS}
MISPLACED: Final = f"{NO_DOWNSCALE} is set as annotation, and only a label counts: the check is off"
# So that what never answers is given up before the operator's own limit of nine seconds.
SHORT: Final = {**ONLY_NO_DOWNSCALE, "timeout": timedelta(seconds=3)}


async def _create(
    world: World,
    resource: Resource,
    name: str,
    labels: dict[str, str],
    annotations: dict[str, str] | None = None,
) -> Workload:
    """Create a workload of three replicas."""
    if resource is STATEFULSETS:
        body: Json = statefulset(ZoneSpec(name=name, group=None, labels=labels), world.namespace)
    else:
        body = workload_body(resource, name, 3, labels)
    body["metadata"]["annotations"] = annotations or {}
    await world.post(resource, body)
    if resource is STATEFULSETS:
        await world.wait_ready([name])
    (key,) = labels or {"": ""}
    return Workload(
        api=world.api, namespace=world.namespace, name=name, resource=resource, label=key
    )


def _why(workload: Workload, replicas_to: int) -> str:
    what = f"{workload.resource.plural}/{workload.name} in {workload.namespace}"
    return (
        f'admission webhook "no-downscale-{workload.namespace}.grafana.com" denied the request:'
        f" downscale of {what} from 3 to {replicas_to} replicas is not allowed because"
    )


def _refusal(workload: Workload, replicas_to: int) -> str:
    return f"{_why(workload, replicas_to)} it has the label '{NO_DOWNSCALE}=true'"


# Labels, annotations, and the warnings that are shown.
OFF: Final[Mapping[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]]] = {
    "as-annotation": ({}, {NO_DOWNSCALE: "true"}, (MISPLACED,)),
    "no": ({NO_DOWNSCALE: "No"}, {}, ()),
    "false": ({NO_DOWNSCALE: "false"}, {}, ()),
}


async def test_t06_the_label_counts_on_every_route_and_nothing_else_does(world: World) -> None:
    """SEED-082 to SEED-084, SI-14, NODOWN-03 to 08, T-13 row 9, W-49, D-20: of all three kinds."""
    await world.grant("no-downscale-deployments")
    await hook_up(world, registration=ONLY_NO_DOWNSCALE)
    for resource in (STATEFULSETS, DEPLOYMENTS, REPLICASETS):
        kept = await _create(world, resource, "kept", {NO_DOWNSCALE: "true"})
        await _assert_kept(world, kept)
        await _assert_others_pass(kept, await _create(world, resource, "free", {"some": "label"}))
        for name, (labels, annotations, warnings) in OFF.items():
            workload = await _create(world, resource, name, labels, annotations)
            for route in (Route.MERGE, Route.SCALE_MERGE):
                answer = await workload.scale(2, route, is_dry_run=True)
                assert (answer.status, answer.warnings) == (200, warnings), route
    await _assert_believed_at_once(world)


async def _assert_kept(world: World, kept: Workload) -> None:
    """SEED-082, SEED-083, NODOWN-04, NODOWN-07: by no route, dry run or not, label and all."""
    for route in EVERY_ROUTE:
        for is_dry_run in (True, False):
            answer = await kept.scale(2, route, is_dry_run=is_dry_run)

            if route.is_stale and answer.status == 409:
                continue  # the version is compared before validating webhooks are called
            requested = 1 if route is Route.PUT_OMITTED else 2
            assert (answer.status, answer.message) == (400, _refusal(kept, requested)), route
    found = await world.get(kept.resource, kept.name)
    assert found["spec"]["replicas"] == 3
    assert found["metadata"]["labels"][NO_DOWNSCALE] == "true"


async def _assert_others_pass(kept: Workload, free: Workload) -> None:
    """SEED-082, SEED-084, NODOWN-03, NODOWN-06: other changes, other objects, without a warning."""
    for route in OF_ANY_COUNT:
        for workload, count in ((kept, 4), (kept, 3), (free, 2)):
            answer = await workload.scale(count, route, is_dry_run=True)
            assert (answer.status, answer.warnings) == (200, ()), (route, workload.name, count)
    assert (await free.scale(0, Route.PUT_OMITTED, is_dry_run=True)).status == 200
    for route in (Route.MERGE, Route.SCALE_PUT):
        count = await free.replicas() - 1
        assert (await free.scale(count, route)).status == 200
        assert await free.replicas() == count
    assert (await kept.scale(4, Route.SCALE_MERGE)).status == 200
    assert await kept.replicas() == 4


async def _assert_believed_at_once(world: World) -> None:
    """SI-14, D-20: the label that was set in the request before counts, and so does its end."""
    workload = await _create(world, STATEFULSETS, "flip", {})
    for _ in range(10):
        for value, status in (("true", 400), (None, 200)):
            await world.label("flip", **{NO_DOWNSCALE: value})
            for route in (Route.SCALE_MERGE, Route.MERGE):
                answer = await workload.scale(2, route, is_dry_run=True)
                assert answer.status == status, (value, route, answer)


@pytest.mark.parametrize(
    ("resource", "flags"),
    [
        pytest.param(DEPLOYMENTS, (), id="deployments"),
        pytest.param(REPLICASETS, ("-no-downscale.fail-closed=true",), id="replicasets, closed"),
    ],
)
async def test_d20_without_the_right_to_read_a_scale_passes_with_a_warning(
    world: World, resource: Resource, flags: tuple[str, ...]
) -> None:
    """SEED-085, SEED-087, D-20: a refusal would last until a person changes the Role."""
    world.may_be_forbidden = True
    workload = await _create(world, resource, "kept", {NO_DOWNSCALE: "true"})
    hooked = await hook_up(world, flags=flags, registration=ONLY_NO_DOWNSCALE)

    answer = await workload.scale(2, Route.SCALE_MERGE)

    assert answer.status == 200
    (warning,) = answer.warnings
    what = f"{resource.plural}/kept in namespace {world.namespace}"
    assert warning.startswith(f"can't get {what}, allowing the change: ")
    assert "forbidden" in warning
    line = next(line for line in hooked.operator.log_lines() if "can't get" in line)
    assert "reason=cannot_check" in line
    assert f'grant verb get on \\"{resource.plural}\\" in API group \\"apps\\"' in line
    refused = await workload.scale(1, Route.MERGE)
    assert refused.status == 400, "the object itself carries its label"
