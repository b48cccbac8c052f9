"""Whether a pod or a zone may move now, and what has to happen first."""

import dataclasses
from collections.abc import Iterator

import pytest

from rollout_operator.model.description import Explanation
from rollout_operator.model.group import Deletion, Group, Zone
from rollout_operator.model.outcome import Code, Plan, Reason
from rollout_operator.planning.description.explain import explain_pod, explain_set
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import group, pod, prev, unreadable, zone
from tests.planning.description.groups import STATES

PLAIN = "zone-a-0 is at revision prev, zone-a wants last"
LATER = "zone-b-0 is at revision prev, zone-b wants last: it cannot go yet [pod_outdated]"


def post(snapshot: Group, name: str) -> list[str]:
    plan = plan_group(snapshot)
    answer = explain_pod(snapshot, plan, name) or explain_set(snapshot, plan, name)
    return [] if answer is None else list(list_lines(answer))


def list_lines(answer: Explanation) -> Iterator[str]:
    """Yield an answer as the tables below have it."""
    yield f"{answer.answer} [{answer.code}]"
    yield from ["  first:"] if answer.conditions else []
    for one in answer.conditions:
        yield f"    {one.code}: {one.text}"
        yield from [f"      {one.remedy}"] if one.remedy else []


def _with_pods(base: Zone, *pods: object) -> Zone:
    return dataclasses.replace(base, pods=pods)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("snapshot", "name", "lines"),
    [
        pytest.param(
            STATES["about to begin"], "zone-a-0", [f"{PLAIN}: it goes now [pod_outdated]"], id="now"
        ),
        pytest.param(
            STATES["about to begin"],
            "zone-a-2",
            [
                "zone-a-2 is at revision prev, zone-a wants last: it cannot go yet [pod_outdated]",
                "  first:",
                "    budget_used: zone-a-0 and zone-a-1 go first",
            ],
            id="others of its zone before",
        ),
        pytest.param(
            STATES["about to begin"],
            "zone-b-0",
            [
                LATER,
                "  first:",
                "    another_zone_first: zone-a has outdated pods, which go first",
            ],
            id="another zone before",
        ),
        pytest.param(
            STATES["no room"],
            "zone-b-0",
            [
                LATER,
                "  first:",
                "    zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff)",
                "      when it stays, find out why the named pods are not ready",
                "    another_zone_first: zone-a has outdated pods, which go first",
            ],
            id="another zone is down",
        ),
        pytest.param(
            STATES["starting"],
            "zone-a-1",
            [
                "zone-a-1 is at revision prev, zone-a wants last: it cannot go yet [pod_outdated]",
                "  first:",
                "    pods_starting: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed "
                "(zone-a-0: ContainerCreating)",
            ],
            id="no room in its zone",
        ),
        pytest.param(
            STATES["paused"],
            "zone-a-0",
            [
                f"{PLAIN}: it cannot go yet [pod_outdated]",
                "  first:",
                "    paused: zone-a is paused",
                "      remove the annotation grafana.com/rollout-paused when the zone may go on",
            ],
            id="paused",
        ),
        pytest.param(
            STATES["paused and down"],
            "zone-b-0",
            [
                LATER,
                "  first:",
                "    paused_zone_not_ready: zone-a has 2 of 3 pods ready "
                "(zone-a-0: CrashLoopBackOff)",
                "      bring its pods back, or remove its annotation grafana.com/rollout-paused",
            ],
            id="a paused zone is down",
        ),
        pytest.param(
            STATES["wrong strategy"],
            "zone-a-0",
            [
                f"{PLAIN}: it cannot go yet [pod_outdated]",
                "  first:",
                "    wrong_strategy: StatefulSet zone-a has RollingUpdate update strategy while "
                "OnDelete is expected, skipping reconcile",
                "      set spec.updateStrategy.type of that StatefulSet to OnDelete",
            ],
            id="held",
        ),
        pytest.param(
            STATES["several zones down"],
            "zone-b-0",
            [
                "zone-b-0 is at revision prev, zone-b wants last (CrashLoopBackOff): "
                "it cannot go yet [pod_outdated]",
                "  first:",
                "    zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff)",
                "      when it stays, find out why the named pods are not ready",
            ],
            id="several zones are down",
        ),
        pytest.param(
            STATES["rolling"],
            "zone-a-0",
            [
                "zone-a-0 is at revision last, as zone-a wants: no rollout deletes it [up_to_date]",
            ],
            id="up to date",
        ),
        pytest.param(
            STATES["a crash after the rollout"],
            "zone-a-1",
            [
                "zone-a-1 is at revision last, as zone-a wants (CrashLoopBackOff): "
                "no rollout deletes it [up_to_date]",
            ],
            id="up to date and down",
        ),
        pytest.param(
            STATES["going"],
            "zone-a-0",
            ["zone-a-0 is on its way out (delete accepted) [zone_not_ready]"],
            id="going",
        ),
        pytest.param(
            group(prev("a", "tpp")),
            "zone-a-0",
            ["zone-a-0 is on its way out (terminating) [zone_not_ready]"],
            id="terminating",
        ),
        pytest.param(
            STATES["no pods"],
            "zone-a-1",
            [
                "zone-a-1 does not exist; zone-a wants it, and its controller creates it "
                "[zone_not_ready]"
            ],
            id="missing",
        ),
        pytest.param(
            STATES["an unreadable pod"],
            "zone-a-2",
            [
                "zone-a-2 cannot be read and counts as down: spec.replicas: expected int, "
                'got str: "x" [object_unreadable]'
            ],
            id="unreadable",
        ),
        pytest.param(
            STATES["pods that are wanted no more"],
            "zone-a-3",
            ["zone-a-3 is wanted no more: zone-a deletes it [scale_down]"],
            id="wanted no more",
        ),
        pytest.param(STATES["rolled out"], "zone-a-3", [], id="neither there nor wanted"),
        pytest.param(STATES["rolled out"], "other-0", [], id="of no zone"),
        pytest.param(STATES["rolled out"], "", [], id="no name"),
    ],
)
def test_a_pod(snapshot: Group, name: str, lines: list[str]) -> None:
    """Each condition that `plan_group` knows, with what a person can do."""
    assert post(snapshot, name) == lines


@pytest.mark.parametrize(
    ("snapshot", "name", "lines"),
    [
        pytest.param(
            STATES["about to begin"],
            "zone-a",
            ["it is the turn of zone-a: zone-a-0 goes now [pod_outdated]"],
            id="its turn",
        ),
        pytest.param(
            STATES["about to begin"],
            "zone-b",
            [
                "zone-b has 3 outdated pods, which cannot go yet [pod_outdated]",
                "  first:",
                "    another_zone_first: zone-a has outdated pods, which go first",
            ],
            id="another zone before",
        ),
        pytest.param(
            STATES["rolled out"],
            "zone-a",
            ["zone-a has 3 of 3 pods ready, none of them outdated: no pod goes [up_to_date]"],
            id="rolled out",
        ),
        pytest.param(
            STATES["a crash after the rollout"],
            "zone-a",
            [
                "zone-a has 2 of 3 pods ready (zone-a-1: CrashLoopBackOff), none of them outdated "
                "[zone_not_ready]"
            ],
            id="down",
        ),
        pytest.param(
            STATES["downscale underway"],
            "zone-b",
            [
                "zone-b has 3 of 3 pods ready, none of them outdated: no pod goes [up_to_date]",
                "  first:",
                "    downscale_underway: zone-b is being scaled down from 3 to 2 replicas; no pod "
                "is replaced until that has happened or failed",
                "      when it stays, see which pods do not answer, and whether scale_refused "
                "stands beside it",
            ],
            id="a downscale",
        ),
        pytest.param(
            STATES["an unreadable set"],
            "zone-b",
            [
                'zone-b cannot be read: spec.replicas: expected int, got str: "x" '
                "[object_unreadable]"
            ],
            id="unreadable",
        ),
        pytest.param(STATES["rolled out"], "zone-x", [], id="no member"),
    ],
)
def test_a_set(snapshot: Group, name: str, lines: list[str]) -> None:
    assert post(snapshot, name) == lines


def test_what_only_the_acting_process_knows_comes_with_its_plan() -> None:
    snapshot = STATES["about to begin"]
    refused = Reason(Code.DISRUPTION_BUDGET_USED, "1 pod of store is down", zone="zone-a")
    elsewhere = Reason(Code.DELETE_REFUSED, "refused", zone="zone-b")
    plan = Plan(group=snapshot.name, waits=(refused, elsewhere))

    answer = explain_pod(snapshot, plan, "zone-a-0")

    assert answer is not None
    assert not answer.may_go
    assert [one.text for one in answer.conditions] == ["1 pod of store is down"]


@pytest.mark.parametrize("name", STATES)
def test_a_pod_goes_exactly_where_the_plan_lets_it(name: str) -> None:
    """No pod that waits is without a condition, and none that goes has one."""
    snapshot = STATES[name]
    plan = plan_group(snapshot)
    going = {one.pod.name for action in plan.actions for one in getattr(action, "going", ())}
    for each in (one.name for member in snapshot.zones for one in member.pods):
        answer = explain_pod(snapshot, plan, each)
        assert answer is not None
        assert answer.may_go is (each in going)
        is_waiting = answer.answer.endswith("it cannot go yet")
        assert bool(answer.conditions) is is_waiting, each


HOSTILE = {
    "huge": zone("a", "lp", replicas=2**31 - 1),
    "two of one name": _with_pods(zone("a", "l"), pod("a", 0), pod("a", 0, uid="uid-other")),
    "no revision": zone("a", "p", update_revision=""),
    "unreadable and readable": dataclasses.replace(
        zone("a", "p"), unreadable_pods=(unreadable("Pod", "zone-a-0", owner="a"),)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_has_an_answer(name: str) -> None:
    """D-68."""
    snapshot = group(HOSTILE[name], zone("b"), deletions={"zone-b-0": Deletion.UNKNOWN})

    assert post(snapshot, "zone-a-0") != []
    assert post(snapshot, "zone-a") != []
