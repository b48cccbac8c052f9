"""The control plane works as a cluster's would, and its data outlive the API server."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from rollout_operator.lab.zones import ZoneSpec, statefulset
from tests.judge.objects import Pod
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.kubelet import Behaviour, Kind, by_image, slow_to_end
from tests.world.scene import World
from tests.world.sets import Snapshot, condition, wait_pod, wait_ready, wait_until

pytestmark = pytest.mark.controlplane


async def test_a_wait_in_vain_shows_the_present_state(world: World) -> None:
    world.kubelet.choose = by_image({"bad": Behaviour(kind=Kind.NEVER_READY)})
    await world.api.create(
        STATEFULSETS,
        world.namespace,
        statefulset(ZoneSpec(name="a", replicas=1, image="bad"), world.namespace),
    )

    with pytest.raises(TimeoutError, match=r"(?s)0 available, wants 1.*a-0 .*Ready=False"):
        await wait_ready(world.api, world.namespace, ["a"], timedelta(seconds=1))


@pytest.mark.parametrize(
    ("behaviour", "restarts", "ready", "containers"),
    [
        pytest.param(Behaviour(kind=Kind.NORMAL), 0, "True", [True], id="normal"),
        pytest.param(Behaviour(kind=Kind.NEVER_READY), 0, "False", [False], id="never ready"),
        pytest.param(Behaviour(kind=Kind.GATE_CLOSED), 0, "False", [True], id="gate closed"),
        pytest.param(Behaviour(kind=Kind.NO_STATUSES), 0, "True", [], id="no statuses"),
        pytest.param(
            Behaviour(kind=Kind.CRASH_LOOP, period=timedelta(milliseconds=100)),
            3,
            "False",
            [False],
            id="crash loop",
        ),
    ],
)
async def test_each_behaviour_shows(
    world: World, behaviour: Behaviour, restarts: int, ready: str, containers: list[bool]
) -> None:
    world.kubelet.choose = lambda _pod: behaviour
    await world.api.create(
        STATEFULSETS, world.namespace, statefulset(ZoneSpec(name="a", replicas=1), world.namespace)
    )

    await wait_pod(
        world.api,
        world.namespace,
        "a-0",
        "as its behaviour says",
        lambda pod: (
            condition(pod, "Ready") == ready
            and [each["ready"] for each in pod["status"].get("containerStatuses", [])] == containers
            and all(
                each["restartCount"] >= restarts
                for each in pod["status"].get("containerStatuses", [])
            )
        ),
    )


async def test_a_pending_pod_has_no_node(world: World) -> None:
    world.kubelet.choose = lambda _pod: Behaviour(kind=Kind.PENDING)
    await world.api.create(
        STATEFULSETS, world.namespace, statefulset(ZoneSpec(name="a", replicas=1), world.namespace)
    )

    pod = await wait_pod(world.api, world.namespace, "a-0", "there", lambda _pod: True)

    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]


async def test_a_failed_pod_is_replaced_by_the_controller(world: World) -> None:
    world.kubelet.choose = by_image({"bad": Behaviour(kind=Kind.FAILED)})
    await world.api.create(
        STATEFULSETS,
        world.namespace,
        statefulset(ZoneSpec(name="a", replicas=1, image="bad"), world.namespace),
    )
    first = await wait_pod(world.api, world.namespace, "a-0", "there", lambda _pod: True)

    await wait_pod(
        world.api,
        world.namespace,
        "a-0",
        "replaced",
        lambda pod: bool(pod["metadata"]["uid"] != first["metadata"]["uid"]),
    )


async def test_a_flapping_pod_is_ready_and_unready_in_turn(world: World) -> None:
    behaviour = Behaviour(kind=Kind.FLAPPING, period=timedelta(milliseconds=100))
    world.kubelet.choose = lambda _pod: behaviour
    await world.api.create(
        STATEFULSETS, world.namespace, statefulset(ZoneSpec(name="a", replicas=1), world.namespace)
    )

    seen: list[str] = []

    def check(now: Snapshot) -> str:
        seen.extend(condition(pod, "Ready") for pod in now.pods.values())
        turns = sum(one != other for one, other in pairwise(seen))
        return "" if turns >= 4 else f"turned {turns} times"

    await wait_until(world.api, world.namespace, check)


async def test_a_slow_pod_terminates_late(world: World) -> None:
    await world.create(ZoneSpec(name="a", replicas=1))
    world.kubelet.choose = lambda _pod: slow_to_end(timedelta(seconds=2))

    await world.api.delete(PODS, world.namespace, "a-0")
    await wait_pod(
        world.api,
        world.namespace,
        "a-0",
        "terminating",
        lambda pod: "deletionTimestamp" in pod["metadata"],
    )
    await wait_ready(world.api, world.namespace, ["a"])

    await world.judge.settle()
    mine = [change for change in world.judge.changes if change.name == "a-0" and change.before]
    marked = next(each.at for each in mine if isinstance(each.now, Pod) and each.now.is_terminating)
    gone = next(each.at for each in mine if each.now is None)
    assert 2.0 <= gone - marked < 10.0


async def test_a_living_pod_loses_and_regains_its_readiness(world: World) -> None:
    await world.create(ZoneSpec(name="a", replicas=1))

    def shows(ready: str) -> Callable[[Json], bool]:
        return lambda pod: condition(pod, "Ready") == ready

    await world.kubelet.make_unready("a-0")
    await wait_pod(world.api, world.namespace, "a-0", "unready", shows("False"))
    await world.kubelet.make_ready("a-0")
    await wait_pod(world.api, world.namespace, "a-0", "ready", shows("True"))
