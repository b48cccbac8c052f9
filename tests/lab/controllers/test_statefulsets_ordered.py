"""The StatefulSet controller, ordered sets (FP-30): one pod after the other, up and down."""

from datetime import timedelta

from rollout_operator.lab.model.fields import name_of, number, text
from rollout_operator.lab.nodes.behaviour import Behaviour, StartKind, by_image
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.cluster_world import World, is_ready, world
from tests.virtual_time import in_virtual_time

ORDERED = ZoneSpec(name="web", pod_management="OrderedReady")
BAD = by_image({"bad": Behaviour(kind=StartKind.NEVER_READY)})


def list_steps(scene: World) -> list[str]:
    """Return creations, first readiness and ends of pods, in the order of the commits."""
    steps = []
    for one in scene.commits("pods"):
        if one.before is None:
            steps.append(f"+{one.name[-1]}")
        elif one.after is None:
            steps.append(f"-{one.name[-1]}")
        elif is_ready(one.after) and not is_ready(one.before):
            steps.append(f"!{one.name[-1]}")
    return steps


@in_virtual_time
async def test_each_pod_is_made_when_the_one_below_is_ready() -> None:
    with world() as scene:
        await scene.bring_up(ORDERED)
        assert list_steps(scene) == ["+0", "!0", "+1", "!1", "+2", "!2"]


@in_virtual_time
async def test_each_pod_waits_until_the_one_below_is_available() -> None:
    with world() as scene:
        scene.create(
            ZoneSpec(
                name="web",
                replicas=2,
                pod_management="OrderedReady",
                min_ready=timedelta(seconds=60),
            )
        )
        await scene.until_ready("web")
        created = [one.at for one in scene.commits("pods") if one.before is None]
        assert created[1] - created[0] > timedelta(seconds=60)


@in_virtual_time
async def test_scaling_down_takes_one_at_a_time_from_the_top_and_waits_for_its_end() -> None:
    with world() as scene:
        await scene.bring_up(ORDERED)
        before = len(list_steps(scene))
        scene.patch("web", {"replicas": 0})
        await scene.until(lambda: not scene.pods())
        assert list_steps(scene)[before:] == ["-2", "-1", "-0"]
        deletions = [
            one.at
            for one in scene.commits("pods", "statefulset-controller")
            if one.after is not None and text(one.after, "metadata", "deletionTimestamp")
        ]
        gone = [one.at for one in scene.commits("pods") if one.after is None]
        assert deletions[1] > gone[0]
        assert deletions[2] > gone[1]


@in_virtual_time
async def test_a_deleted_higher_pod_is_not_made_before_the_lower_is_ready() -> None:
    """FP-30: two pods deleted at once come back one after the other."""
    with world() as scene:
        await scene.bring_up(ORDERED)
        before = len(list_steps(scene))
        scene.delete_pod("web-0")
        scene.delete_pod("web-1")
        await scene.until_ready("web")
        assert [step for step in list_steps(scene)[before:] if step[0] != "-"] == [
            "+0",
            "!0",
            "+1",
            "!1",
        ]


@in_virtual_time
async def test_an_unready_pod_blocks_all_that_is_above_it() -> None:
    """A pod that never gets ready: what is above is neither made nor taken away."""
    with world(choose=BAD) as scene:
        await scene.bring_up(ORDERED)
        scene.set_image("web", "bad")
        await scene.until(lambda: len(scene.revisions()) == 2)
        scene.delete_pod("web-0")
        scene.delete_pod("web-2")
        await scene.until(
            lambda: [name_of(one) for one in scene.pods() if not is_ready(one)] == ["web-0"]
        )
        await scene.until(lambda: number(scene.status("web"), "replicas") == 2)
        scene.patch("web", {"replicas": 1})
        generation = 3
        await scene.until(lambda: number(scene.status("web"), "observedGeneration") == generation)
        assert scene.pod_names() == ["web-0", "web-1"]


async def scale_down_while_unready(scene: World, pod: str, *, to: int) -> None:
    """Have one of three ready pods fail, then want fewer."""
    await scene.bring_up(ORDERED)
    scene.cluster.fail_pod(pod)
    await scene.until(lambda: number(scene.status("web"), "readyReplicas") == 2)
    scene.patch("web", {"replicas": to})


@in_virtual_time
async def test_the_lowest_unavailable_condemned_pod_may_go_although_it_is_not_ready() -> None:
    with world() as scene:
        await scale_down_while_unready(scene, "web-2", to=2)
        await scene.until(lambda: scene.pod_names() == ["web-0", "web-1"])


@in_virtual_time
async def test_an_unready_condemned_pod_below_holds_the_ready_one_above() -> None:
    with world() as scene:
        await scale_down_while_unready(scene, "web-1", to=1)
        await scene.until(lambda: scene.pod_names() == ["web-0"])
        gone = [one.name for one in scene.commits("pods") if one.after is None]
        assert gone == ["web-2", "web-1"], "ready pods go from the top, whoever is unready below"


@in_virtual_time
async def test_an_ordered_rolling_update_waits_for_each_replacement() -> None:
    with world() as scene:
        await scene.bring_up(
            ZoneSpec(name="web", pod_management="OrderedReady", strategy="RollingUpdate")
        )
        before = len(list_steps(scene))
        scene.set_image("web", "v2")
        await scene.until(lambda: len(scene.revisions()) == 2)
        await scene.until(lambda: scene.is_rolled("web"))
        assert list_steps(scene)[before:] == [
            *("-2", "+2", "!2"),
            *("-1", "+1", "!1"),
            *("-0", "+0", "!0"),
        ]
