"""The words of sequences about controllers: what they see, tell apart, leave out and wait for."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.nodes import behaviour as simulated
from rollout_operator.lab.virtual_loop.pace import StepTimes
from tests.contract.controllers_pods import HELD, QUICK, REAL_CHOICE, SIMULATED_CHOICE
from tests.contract.controllers_scene import Scene, staged
from tests.contract.controllers_seen import Seen, is_going
from tests.contract.controllers_sets import PARALLEL, THREE, VERSION, web
from tests.contract.plays import Needs, Sequence, list_sequences
from tests.contract.sides import PODS, REVISIONS
from tests.contract.simulated import play_simulated
from tests.world import kubelet as real

SLOW = StepTimes(
    controller=(timedelta(milliseconds=200), timedelta(milliseconds=400)),
    status=(timedelta(milliseconds=200), timedelta(milliseconds=400)),
)


def pod(
    name: str,
    uid: str,
    *,
    owner: str = "a",
    is_told_to_go: bool = False,
    labels: dict[str, str] | None = None,
) -> JsonObject:
    owners = [{"kind": "StatefulSet", "name": owner, "controller": True}] if owner else []
    metadata: JsonObject = {
        "name": name,
        "uid": uid,
        "resourceVersion": "7",
        "ownerReferences": owners,
        "labels": labels or {},
    }
    if is_told_to_go:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return {"metadata": metadata, "status": {"phase": "Running"}}


def sts(name: str = "a", *, version: int = 1, **status: object) -> JsonObject:
    metadata = {"name": name, "uid": "s", "resourceVersion": str(version), "generation": 1}
    return {"metadata": metadata, "spec": {"replicas": 3}, "status": status}


def revision(name: str, number: int) -> JsonObject:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "revision": number}


def watched(*events: tuple[str, JsonObject], plural: str = PODS.plural) -> Seen:
    seen = Seen()
    for kind, obj in events:
        seen.take(plural, {"type": kind, "object": obj})
    return seen


def play(act: Callable[[Scene], Awaitable[None]], pace: StepTimes | None = None) -> list[str]:
    """Play a scene on a sandbox and return its transcript."""
    one = Sequence(topic="x", name="y", play=staged(act), needs=Needs.CONTROLLERS)
    found = play_simulated(one) if pace is None else play_simulated(one, pace=pace)
    if isinstance(found, Exception):
        raise found
    return found


# What is seen


def test_a_pod_s_whole_life_is_told_in_order() -> None:
    seen = watched(
        ("ADDED", pod("a-0", "1")),
        ("MODIFIED", pod("a-0", "1")),
        ("MODIFIED", pod("a-0", "1", owner="")),
        ("MODIFIED", pod("a-0", "1", owner="b")),
        ("MODIFIED", pod("a-0", "1", owner="b", is_told_to_go=True)),
        ("MODIFIED", pod("a-0", "1", owner="b", is_told_to_go=True)),
        ("DELETED", pod("a-0", "1", owner="b", is_told_to_go=True)),
        ("ADDED", pod("a-0", "2")),
    )

    assert seen.take_moves(is_ordered=True) == [
        "a-0 #1 made",
        "a-0 #1 passed from a to nobody",
        "a-0 #1 passed from nobody to b",
        "a-0 #1 told to go",
        "a-0 #1 gone",
        "a-0 #2 made",
    ]
    assert seen.take_moves(is_ordered=True) == []
    assert seen.count_lives("a-0") == 2
    assert seen.count_lives("a-1") == 0


def test_the_order_of_different_moves_counts_and_that_of_equal_ones_in_a_row_does_not() -> None:
    low, high = pod("a-0", "1"), pod("a-1", "2")
    first = watched(("ADDED", low), ("ADDED", high))
    second = watched(("ADDED", high), ("ADDED", low))
    between = watched(("ADDED", low), ("DELETED", low), ("ADDED", high))
    after = watched(("ADDED", high), ("ADDED", low), ("DELETED", low))

    assert first.take_moves(is_ordered=True) == second.take_moves(is_ordered=True)
    assert between.take_moves(is_ordered=True) != after.take_moves(is_ordered=True)


def test_without_order_each_pod_has_its_own_story() -> None:
    low, high = pod("a-0", "1"), pod("a-1", "2")
    between = watched(("ADDED", low), ("DELETED", low), ("ADDED", high))
    after = watched(("ADDED", high), ("ADDED", low), ("DELETED", low))

    moves = between.take_moves(is_ordered=False)

    assert moves == {"a-0 #1": ["made", "gone"], "a-1 #1": ["made"]}
    assert moves == after.take_moves(is_ordered=False)


def test_a_pod_that_nobody_told_to_go_is_only_gone() -> None:
    seen = watched(("ADDED", pod("a-0", "1")), ("DELETED", pod("a-0", "1")))

    assert seen.take_moves(is_ordered=True) == ["a-0 #1 made", "a-0 #1 gone"]
    assert seen.pods == {}


def test_revisions_are_called_by_their_set_and_when_they_came() -> None:
    seen = watched(
        *(("ADDED", revision(name, 1)) for name in ("a-zz", "a-bb", "b-cc", "a-0-dd")),
        ("MODIFIED", revision("a-zz", 5)),
        plural=REVISIONS.plural,
    )

    called = [seen.call_revision(name) for name in ("a-zz", "a-bb", "b-cc", "a-0-dd")]

    assert called == ["a:r1", "a:r2", "b:r1", "a-0:r1"]
    assert seen.call_revision("a-nonsense") == "a-nonsense"
    assert seen.call_revision("") == "none"
    assert seen.describe_revisions()["a:r1"] == "number 5 of nobody"


def test_statuses_are_told_once_each_in_order_and_the_last_one_again() -> None:
    states = [sts(replicas=1), sts(replicas=2), sts(replicas=2, observedGeneration=9)]
    seen = watched(*(("MODIFIED", one) for one in states), plural=STATEFULSETS.plural)

    assert seen.take_statuses() == {"a": [{"replicas": 1}, {"replicas": 2}]}
    assert seen.take_statuses() == {"a": [{"replicas": 2}]}


def test_a_status_names_revisions_as_pods_do() -> None:
    seen = watched(("ADDED", revision("a-zz", 1)), plural=REVISIONS.plural)
    made = pod("a-0", "1", labels={"controller-revision-hash": "a-zz"})
    seen.take(PODS.plural, {"type": "ADDED", "object": made})
    set_of_it = sts(currentRevision="a-zz", updateRevision="a-yy")
    seen.take(STATEFULSETS.plural, {"type": "ADDED", "object": set_of_it})

    described: Any = seen.describe_sets()["a"]

    assert described["status"] == {"currentRevision": "a:r1", "updateRevision": "a-yy"}
    assert described["is observed"] is False
    assert seen.describe_pods() == {"a-0 #1": "a:r1 Running unready of a"}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(pod("a-0", "1", labels={"x": "y"}), True, id="a label"),
        pytest.param(pod("a-0", "2"), False, id="another life"),
        pytest.param(pod("a-0", "1", is_told_to_go=True), False, id="told to go"),
        pytest.param({**pod("a-0", "1"), "status": {"phase": "Failed"}}, False, id="another phase"),
    ],
)
def test_what_must_not_change_any_more_at_rest(other: JsonObject, is_same: bool) -> None:
    before = watched(("ADDED", pod("a-0", "1")))

    assert (before.shape() == watched(("ADDED", other)).shape()) is is_same


# How pods behave


@pytest.mark.parametrize("image", [HELD, QUICK, "never-ready", "crashing", "failing", "pending"])
def test_both_kubelets_know_the_images(image: str) -> None:
    body: JsonObject = {"spec": {"containers": [{"image": image}]}}

    ours, theirs = SIMULATED_CHOICE(body), REAL_CHOICE(body)

    assert ours.kind.name == theirs.kind.name
    assert ours.terminates_after == theirs.terminates_after
    assert isinstance(ours.kind, simulated.StartKind)
    assert isinstance(theirs.kind, real.Kind)


# Scenes


def test_rest_tells_what_is_there_and_how_it_came() -> None:
    async def act(scene: Scene) -> None:
        await scene.create(web(replicas=1))
        await scene.ready("a-0")
        await scene.rest("one")

    lines = play(act)

    assert lines[0] == "== one"
    assert '  "a-0 #1": "a:r1 Running ready of a"' in lines
    assert '  "a-0 #1 made"' in lines
    assert '  "a:r1": "number 1 of a"' in lines
    assert lines.index(' "statuses": {') > 0


@pytest.mark.parametrize(
    ("image", "policy", "has_order"),
    [
        pytest.param(HELD, PARALLEL, True, id="held pods"),
        pytest.param(QUICK, "OrderedReady", True, id="ordered pods"),
        pytest.param(QUICK, PARALLEL, False, id="parallel pods by themselves"),
    ],
)
def test_order_is_told_only_where_it_is_determined(
    image: str, policy: str, has_order: bool
) -> None:
    async def act(scene: Scene) -> None:
        await scene.create(web(image=image, pods=policy))
        await scene.until("three", lambda: len(scene.seen.pods) == 3)
        await scene.rest("three")

    lines = play(act)

    assert (' "moves": [' in lines) is has_order
    assert (' "statuses": {' in lines) is (image == HELD)


@pytest.mark.parametrize("pace", [StepTimes(), SLOW], ids=["quick", "slow"])
def test_rest_waits_for_a_controller_however_slow_it_is(pace: StepTimes) -> None:
    async def act(scene: Scene) -> None:
        await scene.whole(pods=PARALLEL)
        await scene.change(replicas=1)
        await scene.settle()
        going = sorted(name for name, one in scene.seen.pods.items() if is_going(one))
        scene.world.note("going", pods=going)
        await scene.end(*going)
        await scene.settle()
        scene.world.note("left", pods=sorted(scene.seen.pods))

    lines = play(act, pace)

    assert lines[lines.index("== going") :] == [
        "== going", ' "pods": [', '  "a-1",', '  "a-2"', " ]",
        "== left", ' "pods": [', '  "a-0"', " ]",
    ]  # fmt: skip


def test_what_another_controller_would_do_makes_another_transcript() -> None:
    """Each of these could be what one of two controllers does with the same set."""

    def rolled(strategy: str, policy: str, *, back: bool) -> list[str]:
        async def act(scene: Scene) -> None:
            await scene.whole(strategy=strategy, pods=policy)
            await scene.version("2")
            await scene.settle()
            if back:
                await scene.version("1")
            await scene.rest("then")

        return play(act)

    tried = [
        rolled("OnDelete", PARALLEL, back=False),
        rolled("OnDelete", PARALLEL, back=True),
        rolled("RollingUpdate", PARALLEL, back=False),
        rolled("RollingUpdate", PARALLEL, back=True),
    ]

    assert len({tuple(lines) for lines in tried}) == 4
    assert tried[0] == rolled("OnDelete", "OrderedReady", back=False)


def test_a_wait_that_takes_too_long_says_what_is_there_instead() -> None:
    async def act(scene: Scene) -> None:
        await scene.create(web(replicas=1, image="pending"))
        await scene.until_whole()

    with pytest.raises(TimeoutError, match=r"not a whole: .*'a-0 #1': 'a:r1 Pending unready of a'"):
        play(act)


def test_a_set_of_another_version_has_another_template() -> None:
    body: Any = web(replicas=2, minReadySeconds=5)

    assert body["spec"]["replicas"] == 2
    assert body["spec"]["minReadySeconds"] == 5
    assert body["spec"]["template"]["metadata"]["annotations"] == {VERSION: "1"}
    assert body["spec"]["template"]["spec"]["containers"][0]["image"] == HELD
    assert THREE == ("a-0", "a-1", "a-2")


def test_there_are_enough_sequences_about_controllers() -> None:
    found = [one for one in list_sequences() if one.topic.startswith("controllers_")]

    assert len(found) >= 130
    assert {one.needs for one in found} == {Needs.CONTROLLERS}
    assert all(one.has_texts for one in found)
