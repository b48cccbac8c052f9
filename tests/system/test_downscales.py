"""Downscales on the real API server: prepared once by each route, undone after a kill, forbidden.

With `-use-zone-tracker`, under the Role of that component: `downscales.txt`. What is granted and
what is not is told in `tests/web/downscales`.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec, statefulset

from tests.system.guarded import LAST_DOWNSCALE, NO_DOWNSCALE, PATH, guard, is_of_now, prepared_zone
from tests.system.hooked import hook_up
from tests.world.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Json, Resource
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, Route, Workload, workload_body
from tests.world.hooks import WORKLOADS
from tests.world.kubelet import slow_to_end
from tests.world.webpods import NO_CONTENT, Respond
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# LI-06 promises two rounds for prepare times of up to 40 % of the webhook's 10 s.
TIMES: Final = {
    "zone-5ms": timedelta(milliseconds=5),
    "zone-700ms": timedelta(seconds=0.7),
    "zone-1200ms": timedelta(seconds=1.2),
    "zone-3s": timedelta(seconds=3),
}
# The API server gives up on a write that long after it began.
MAY_PERSIST: Final = timedelta(seconds=34)
CALLED_WITHIN: Final = timedelta(seconds=60)


async def test_li06_prepared_once_and_recorded(world: World) -> None:
    """LI-06, W-14, SEED-089, SEED-092, SEED-093, SEED-116, T-07 row 2: at most two rounds each.

    Four groups side by side, by how long a pod takes; default flags; one route after the other. A
    version that a client has read is still good at the end: nothing was written meanwhile.
    """
    pods = await world.serve_pods()
    for name, time in TIMES.items():
        pods.behave(f"{name}-2", Respond(after=time))
        pods.behave(f"{name}-1", NO_CONTENT)
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in TIMES]
    guarded = await guard(world, *zones, pods=pods)
    routes = (Route.MERGE, Route.APPLY, Route.PUT_FRESH, Route.SCALE_MERGE, Route.SCALE_PUT_FRESH)
    for turn, route in enumerate(routes, start=1):
        rounds = await guarded.count_rounds()
        called = len(pods.calls)

        answers = await asyncio.gather(*(guarded.workload(name).scale(1, route) for name in TIMES))

        assert [each.status for each in answers] == [200] * len(TIMES), answers
        calls = {call.pod: call for call in pods.calls[called:]}
        assert sorted(calls) == sorted(f"{name}-{n}" for name in TIMES for n in (1, 2))
        assert len(pods.calls) == 2 * len(TIMES) * turn
        for pod, call in calls.items():
            assert (call.method, call.path) == ("POST", f"/{PATH}")
            service = f"{pod.rpartition('-')[0]}.{world.namespace}.svc.cluster.local."
            assert call.host == f"{pod}.{service}:{pods.port}", "SEED-116"
        assert len(TIMES) <= await guarded.count_rounds() - rounds <= 2 * len(TIMES)
        if not route.is_scale:
            annotations = [answer.body["metadata"]["annotations"] for answer in answers]
            assert all(is_of_now(each[LAST_DOWNSCALE]) for each in annotations), "SEED-093"
        await guarded.wait_recorded(*TIMES)
        await world.wait_ready(list(TIMES))
        # All but one go with their pods; that one goes a minute later, when the downscale is over.
        assert set(await guarded.list_recorded()) <= {f"{name}-0" for name in TIMES}
        for name in TIMES:
            await world.annotate(name, **{LAST_DOWNSCALE: None})
            await world.set_replicas(name, 3)
        await world.wait_ready(list(TIMES))
    await guarded.assert_judged()


async def test_li05_pods_that_stay_are_un_prepared_after_a_kill(world: World) -> None:
    """LI-05, SI-12, FP-06, FP-35, SEED-093: `kill -9` while a pod prepares, and after an answer.

    What is left to do is known from the records on the pods, by the next process. Every other way
    in which a downscale does not happen: `tests/web/downscales/undone.txt`.
    """
    world.kubelet.choose = lambda _: slow_to_end(timedelta(seconds=5))
    pods = await world.serve_pods()
    pods.behave("killed-3", Respond(after=timedelta(seconds=3)), method="POST")
    zones = [ZoneSpec(name=name, group=name, replicas=4) for name in ("killed", "done")]
    guarded = await guard(world, *(prepared_zone(pods, zone) for zone in zones), pods=pods)
    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(guarded.workload("killed").scale(1, Route.MERGE))
        await pods.wait_until("killed-3 called", lambda: len(pods.calls) == 3)
        done = await guarded.workload("done").scale(3, Route.SCALE_MERGE)
        guarded.operator.kill()
    assert done.status == 200
    assert request.result().status == 500, "the API server could not reach the webhook"
    guarded.operator.start()
    await guarded.operator.wait_ready()
    await guarded.wait_recorded("done")
    going = [f"killed-{ordinal}" for ordinal in (1, 2, 3)]
    await guarded.wait_called(*going, limit=CALLED_WITHIN)
    await guarded.wait_unrecorded("killed")
    assert await guarded.workload("killed").replicas() == 4
    for pod in going:
        waited = pods.calls_to(pod, "DELETE")[0].at - pods.calls_to(pod, "POST")[-1].at
        assert waited >= MAY_PERSIST.total_seconds(), pods.describe()
    assert [call.method for call in pods.calls_to("done-3")] == ["POST"]
    await guarded.assert_judged()


ONLY_NO_DOWNSCALE: Final = {"hooks": ("no-downscale",), "resources": WORKLOADS}
MISPLACED: Final = f"{NO_DOWNSCALE} is set as annotation, and only a label counts: the check is off"


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
