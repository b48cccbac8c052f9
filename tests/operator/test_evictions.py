"""Evictions before the whole operator on a simulated cluster: no client starves another."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

from rollout_lab.admission.webhooks import HookCall
from rollout_lab.model.history import Called
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.simulation.scenarios_drains import node_name
from tests.simulation.traces import Director, GoldenScenario, play_scenario
from tests.simulation.traces_drains import BY_ZONE, drainer, guarded, zones

LIMIT: Final = timedelta(seconds=5)
# As fast as a hostile client may find useful, beside a drain that tries every five seconds.
OFTEN: Final = 2.0
LONG: Final = 180.0


def play(
    act: Callable[[Director], Awaitable[None]],
    shape: Sequence[ZoneSpec],
    *,
    spec: JsonObject = BY_ZONE,
) -> list[Called]:
    """Play what people do under a budget; return all evictions, in order.

    Raises AssertionError where the judge of the simulation objects.
    """
    letters, pods = "".join(zone.name[-1] for zone in shape), shape[0].replicas or 0
    story = GoldenScenario(
        name="test",
        title="test",
        about="",
        zones=shape,
        play=act,
        has_webhooks=True,
        prepare=guarded(letters, pods, spec),
    )
    reported = play_scenario(story)
    # A forged review is marked for an eviction that the judge knows nothing of.
    assert {one.invariant for one in reported.verdict.violations} <= {"SI-15"}
    return [
        one for one in reported.history.list_all(Called) if one.request.subresource == "eviction"
    ]


def forged(director: Director, pod: str, *, dry_run: bool = False) -> HookCall:
    """Return a review of an eviction that no client sent to the API server, without a UID."""
    request = {
        "uid": "f",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "namespace": director.sandbox.namespace,
        "name": pod,
        "object": {"apiVersion": "policy/v1", "kind": "Eviction"},
        "dryRun": dry_run,
    }
    tree = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return HookCall(
        path="/admission/pod-eviction?timeout=5s",
        service="default/rollout-operator",
        body=json.dumps(tree).encode(),
        timeout=LIMIT,
    )


async def forge(
    director: Director, pods: Sequence[str], requested: list[bool], pause: float = OFTEN
) -> None:
    """Send reviews for pods in turn, and record the answers."""
    while True:
        for pod in pods:
            answer = json.loads(await director.process.answer(forged(director, pod)))
            requested.append(answer["response"]["allowed"])
            await asyncio.sleep(pause)


def test_li09_forged_reviews_of_a_pod_do_not_hold_the_drain_of_another() -> None:
    """LI-09, LI-07: a pod of zone b is reviewed every two seconds, and never evicted."""
    answers: list[bool] = []

    async def act(director: Director) -> None:
        await director.process.answer(forged(director, "zone-b-0"))  # before the drain begins
        forger = asyncio.create_task(forge(director, ["zone-b-0"], answers), name="forger")
        try:
            async with asyncio.timeout(LONG):
                await drainer(director, "a").drain(node_name("zone-a", 0))
        finally:
            forger.cancel()
        await director.until_whole()
        await asyncio.sleep(LONG)

    evictions = play(act, zones("ab", 4))
    begin = evictions[0].begun
    went = [one.at - begin for one in evictions if one.status == 201]
    assert len(went) == 2
    assert went[-1] < timedelta(seconds=60)
    assert evictions[0].status == 429
    assert any(answers)  # it was allowed to go again, as an honest eviction would be


def test_d68_forged_reviews_of_many_pods_in_turn_starve_no_drain() -> None:
    """D-68, LI-09: each of eight pods is granted in vain once, and then lets the drain go first."""
    answers: list[bool] = []

    async def act(director: Director) -> None:
        pods = [f"zone-{letter}-{at}" for letter in "bc" for at in range(4)]
        forger = asyncio.create_task(forge(director, pods, answers, pause=0.2), name="forger")
        try:
            async with asyncio.timeout(LONG):
                await drainer(director, "a").drain(node_name("zone-a", 0))
        finally:
            forger.cancel()
        await director.until_whole()
        await asyncio.sleep(LONG)

    evictions = play(act, zones("abc", 4))
    went = [one.at - evictions[0].begun for one in evictions if one.status == 201]
    assert len(went) == 2
    assert went[-1] < timedelta(seconds=8 * 10 + 30)
    assert answers.count(True) >= 8


def test_d68_forged_reviews_of_all_pods_do_not_stop_a_rollout() -> None:
    """D-68, LI-09: no list of evictions that are not carried out keeps a rollout from its end."""
    answers: list[bool] = []

    async def act(director: Director) -> None:
        pods = [f"zone-{letter}-{at}" for letter in "ab" for at in range(4)]
        forger = asyncio.create_task(forge(director, pods, answers, pause=0.2), name="forger")
        try:
            await director.roll("v2")
            async with asyncio.timeout(2 * LONG):
                await director.until_rolled()
        finally:
            forger.cancel()
        await asyncio.sleep(LONG)

    play(act, zones("ab", 4))
    assert any(answers)


def test_a_drain_has_its_turn_while_a_rollout_goes_on() -> None:
    """SI-01, LI-01: rollout and drain take places in turn, also in different zones."""

    async def act(director: Director) -> None:
        await director.roll("v2")
        await director.until_image("zone-a-0", "v2")
        await drainer(director, "c").drain(node_name("zone-c", 0))
        await director.until_rolled()

    evictions = play(act, zones("abc", 4))
    begin = evictions[0].begun
    went = [one.at - begin for one in evictions if one.status == 201]
    assert len(went) == 2
    # The restart of a pod takes 4 to 7 seconds, a client tries every five.
    assert went[0] < timedelta(seconds=15)
    assert went[1] < timedelta(seconds=45)
