"""Whether a pod or a zone may move now, and what has to happen first.

What a person reads stands in `explanations.txt`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from rollout_operator.model.description import Explanation
from rollout_operator.model.objects import Deletion, Group, Zone
from rollout_operator.model.outcome import Code, Plan, Reason
from rollout_operator.planning.explain import explain_pod, explain_set
from rollout_operator.planning.rollout import plan_group
from tests.builders import group, pod, unreadable, zone
from tests.goldens import Golden
from tests.planning.description.groups import STATES

KEPT: Final = Path(__file__).parent / "explanations.txt"
# By state, the pods and StatefulSets whose explanation is kept.
EXPLAINED: Final[Mapping[str, str]] = {
    "about to begin": "zone-a-0 zone-a-2 zone-b-0 zone-a zone-b",
    "no room": "zone-b-0",
    "starting": "zone-a-1",
    "paused": "zone-a-0",
    "paused and down": "zone-b-0",
    "wrong strategy": "zone-a-0",
    "several zones down": "zone-b-0",
    "several zones down by a bad revision": "zone-b-0 zone-b-1",
    "rolling": "zone-a-0",
    "a crash after the rollout": "zone-a-1 zone-a",
    "going": "zone-a-0",
    "a step that is done already": "zone-a-0",
    "no pods": "zone-a-1",
    "an unreadable pod": "zone-a-2",
    "pods that are wanted no more": "zone-a-3",
    "downscale underway": "zone-b",
    "an unreadable set": "zone-b",
    "rolled out": "zone-a",
}


def post(snapshot: Group, name: str) -> list[str]:
    plan = plan_group(snapshot)
    answer = explain_pod(snapshot, plan, name) or explain_set(snapshot, plan, name)
    return [] if answer is None else list(list_lines(answer))


def list_lines(answer: Explanation) -> Iterator[str]:
    """Yield an answer as `explanations.txt` has it."""
    yield f"{answer.answer} [{answer.code}]"
    yield from ["  first:"] if answer.conditions else []
    for one in answer.conditions:
        yield f"    {one.code}: {one.text}"
        yield from [f"      {one.remedy}"] if one.remedy else []


def _with_pods(base: Zone, *pods: object) -> Zone:
    return structs.replace(base, pods=pods)


def test_what_a_person_reads_of_pods_and_sets(golden: Golden) -> None:
    """Each condition that `plan_group` knows, with what a person can do."""
    reported = [
        [f"# {state}: {name}", *post(STATES[state], name), ""]
        for state, names in EXPLAINED.items()
        for name in names.split()
    ]

    golden.check(KEPT, "\n".join(chain(*reported)))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("zone-a-3", id="neither there nor wanted"),
        pytest.param("other-0", id="of no zone"),
        pytest.param("", id="no name"),
        pytest.param("zone-x", id="no member"),
    ],
)
def test_nothing_is_said_of_what_is_not_of_the_group(name: str) -> None:
    assert post(STATES["rolled out"], name) == []


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
    "unreadable and readable": structs.replace(
        zone("a", "p"), unreadable_pods=(unreadable("Pod", "zone-a-0", owner="a"),)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_has_an_answer(name: str) -> None:
    """D-68."""
    snapshot = group(HOSTILE[name], zone("b"), deletions={"zone-b-0": Deletion.UNKNOWN})

    assert post(snapshot, "zone-a-0") != []
    assert post(snapshot, "zone-a") != []
