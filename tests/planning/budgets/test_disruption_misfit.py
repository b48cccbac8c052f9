"""What is refused without counting a pod, in its order, and which budget rules over a pod."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.budgets.rule import (
    Refusal,
    Scene,
    assess_disruption,
    choose_budget,
)
from tests.builders import unreadable
from tests.planning.disruptions import answer, budget, by_partition, ingesters, scene

STALE = timedelta(seconds=61)
DOWNSCALE = Underway(zone="ingester-zone-b", replicas_from=3, replicas_to=2)
LOST = (unreadable("StatefulSet", "ingester-zone-d"),)
STRANGER = Uid("uid-of-another-set")
ALONE = (ingesters("a"),)
BEHIND = ingesters("c", generation=3, observed_generation=2)


def refused(case: Scene) -> Refusal:
    refusal = assess_disruption(case)
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(
    ("case", "code", "status", "text"),
    [
        pytest.param(
            scene(view_age=STALE),
            Code.VIEW_STALE,
            429,
            "the newest proof that the view is live is more than 60s old",
            id="SI-09 a frozen view",
        ),
        pytest.param(
            scene(rule=budget(0)),
            Code.BUDGET_ZERO,
            403,
            "max unavailable = 0; budget ingester",
            id="ZPDB-61 maximum 0",
        ),
        pytest.param(
            scene(unreadable=LOST),
            Code.OBJECT_UNREADABLE,
            500,
            "unable to determine pod status in related StatefulSet ingester-zone-d: it cannot be "
            'read: spec.replicas: expected int, got str: "x"; budget ingester',
            id="ZPDB-64 a zone that cannot be read is not taken for none",
        ),
        pytest.param(
            scene(zones=ALONE),
            Code.TOO_FEW_ZONES,
            400,
            "minimum number of StatefulSets not found: 1 StatefulSet has the labels "
            "name=ingester, 2 are needed; budget ingester",
            id="W-57 one StatefulSet",
        ),
        pytest.param(
            scene(zones=(), rule=budget(selector={"z": "1", "a": "2"})),
            Code.TOO_FEW_ZONES,
            400,
            "minimum number of StatefulSets not found: 0 StatefulSets have the labels "
            "a=2,z=1, 2 are needed; budget ingester",
            id="W-57 no StatefulSet",
        ),
        pytest.param(
            scene(zones=(), rule=budget(selector={})),
            Code.TOO_FEW_ZONES,
            400,
            "minimum number of StatefulSets not found: 0 StatefulSets have the labels "
            "{} (any), 2 are needed; budget ingester",
            id="W-57 a selector of everything",
        ),
        pytest.param(
            scene(owner=STRANGER),
            Code.OWNER_NOT_STATEFULSET,
            400,
            "pod ingester-zone-a-0 belongs to none of the 3 StatefulSets with the labels "
            "name=ingester; budget ingester",
            id="W-10 ZPDB-87 the owner is outside of the selector",
        ),
        pytest.param(
            scene(owner=STRANGER, rule=budget(0, percentage=50)),
            Code.OWNER_NOT_STATEFULSET,
            400,
            "pod ingester-zone-a-0 belongs to none of the 3 StatefulSets with the labels "
            "name=ingester; budget ingester",
            id="W-10 a share of a zone that is not there",
        ),
        pytest.param(
            scene(rule=by_partition(pattern="store-([0-9]+)")),
            Code.PARTITION_UNKNOWN,
            400,
            "failed to extract partition from pod Name regular expression: group 1 of "
            '"store-([0-9]+)" finds nothing in ingester-zone-a-0; budget ingester',
            id="ZPDB-63 the pattern does not match",
        ),
        pytest.param(
            scene(rule=by_partition(pattern="ingester(-x)?-zone-a-0")),
            Code.PARTITION_UNKNOWN,
            400,
            "failed to extract partition from pod Name regular expression: group 1 of "
            '"ingester(-x)?-zone-a-0" finds nothing in ingester-zone-a-0; budget ingester',
            id="W-28 an optional group captures nothing",
        ),
        pytest.param(
            scene(downscale=DOWNSCALE),
            Code.DOWNSCALE_UNDERWAY,
            429,
            "ingester-zone-b is being scaled down from 3 to 2 replicas; no pod may go until that "
            "has happened or failed; budget ingester",
            id="D-25 a downscale",
        ),
        pytest.param(
            scene("a-0", BEHIND),
            Code.STATUS_BEHIND,
            429,
            "the status of ingester-zone-c is of generation 2, its spec of generation 3; "
            "budget ingester",
            id="D-12 the status is behind",
        ),
        pytest.param(
            scene("a-0", BEHIND, rule=by_partition()),
            Code.STATUS_BEHIND,
            429,
            "the status of ingester-zone-c is of generation 2, its spec of generation 3; "
            "budget ingester",
            id="D-12 the status is behind, by partition",
        ),
    ],
)
def test_refused_before_counting(case: Scene, code: Code, status: int, text: str) -> None:
    refusal = refused(case)

    assert (refusal.reason.code, refusal.status, refusal.reason.text) == (code, status, text)
    # The rollout is bound by the same, also for a pod that is down.
    down = ingesters("a", "Crr").pods[0]
    assert assess_disruption(replace(case, engine=DisruptionSource.ROLLOUT, pod=down)) == refusal


ALL_AT_ONCE = scene(
    "a-0",
    ingesters("b", "CCC", observed_generation=0),
    view_age=STALE,
    rule=budget(0),
    unreadable=LOST,
    owner=STRANGER,
    downscale=DOWNSCALE,
)


def test_the_first_obstacle_is_told() -> None:
    """The order of the checks: each one is what remains once those before it are gone."""
    case = replace(ALL_AT_ONCE, zones=ALONE)
    codes = [refused(case).reason.code]
    for change in [
        {"view_age": timedelta(0)},
        {"budget": by_partition(pattern="(x)")},
        {"unreadable": ()},
        {"zones": ALL_AT_ONCE.zones},
        {"budget": budget()},
        {"owner": scene().owner},
        {"downscale": None},
        {"zones": scene("a-0", ingesters("b", "CCC")).zones},
    ]:
        case = replace(case, **change)  # type: ignore[arg-type]  # fields of several types
        codes.append(refused(case).reason.code)

    assert codes == [
        Code.VIEW_STALE,
        Code.BUDGET_ZERO,
        Code.OBJECT_UNREADABLE,
        Code.TOO_FEW_ZONES,
        Code.PARTITION_UNKNOWN,
        Code.OWNER_NOT_STATEFULSET,
        Code.DOWNSCALE_UNDERWAY,
        Code.STATUS_BEHIND,
        Code.DISRUPTION_BUDGET_USED,
    ]


def test_of_several_zones_the_first_by_name_is_told() -> None:
    behind = [ingesters(letter, generation=3, observed_generation=2) for letter in "ba"]
    lost = tuple(unreadable("StatefulSet", name) for name in ["zone-f", "zone-e"])

    assert refused(scene(zones=tuple(behind))).reason.zone == "ingester-zone-a"
    assert refused(scene(unreadable=lost)).reason.zone == "zone-e"


def test_a_view_at_the_limit_is_live() -> None:
    assert answer(scene(view_age=timedelta(seconds=60))) == "allow"


def test_a_frozen_view_is_looked_at_again() -> None:
    """That it has come alive is announced by no event."""
    refusal = refused(scene(view_age=STALE))

    assert refusal.look_again == timedelta(seconds=5)
    assert refusal == refused(scene(view_age=10 * STALE))


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    budget: Budget | None
    problem: str = ""


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], None, id="ZPDB-56 none: not in scope"),
        pytest.param([Entry("ingester", budget(2))], budget(2), id="ZPDB-35 one"),
        pytest.param(
            [Entry("ingester", budget(2), "a later one is broken")],
            budget(2),
            id="ZPDB-31 the last valid one stays in force",
        ),
        pytest.param(
            [Entry("b", budget()), Entry("a", None, "x"), Entry("c", budget()), Entry("d", None)],
            "400 budgets_overlap multiple zoned pod disruption budgets found for pod "
            "ingester-zone-a-0: a, b, c and d",
            id="ZPDB-55 several, and not one of them wins",
        ),
        pytest.param(
            [Entry("ingester", None, "invalid value: selector is not found")],
            "403 budget_invalid budget ingester selects pod ingester-zone-a-0 and is not valid: "
            "invalid value: selector is not found",
            id="W-52 an invalid one is not taken for none",
        ),
    ],
)
def test_which_budget_rules(entries: Sequence[Entry], expected: object) -> None:
    chosen = choose_budget(entries, "ingester-zone-a-0")

    if isinstance(chosen, Refusal):
        reason = chosen.reason
        assert f"{chosen.status} {reason.code} {reason.text}" == expected
        assert (reason.severity, chosen.look_again) == (Severity.ERROR, None)
    else:
        assert chosen == expected
