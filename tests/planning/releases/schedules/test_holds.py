"""What schedules say against a new version that no gate says: RELB-42."""

from datetime import timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
import pytest

from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.releases import KUBERIK, ReleaseGate, ScheduleObject
from rollout_operator.planning.schedules import (
    MOST_SCHEDULES,
    KnownSchedules,
    ScheduleReading,
    list_holds,
    read_schedule,
)
from tests.planning.releases.builders import START, head
from tests.planning.releases.schedules.schedule_builders import (
    ALLOW,
    gated,
    make_gates,
    schedule,
    snapshot,
)

CLOSED: Final = "RolloutSchedule prod/nights is closed, and its gate does not say so yet"
WIDE_CLOSED: Final = "ClusterRolloutSchedule freeze is closed, and its gate does not say so yet"
PROD: Final = LabelSelector(labels={"env": "prod"})
WEB: Final = LabelSelector(labels={"tier": "web"})
NO_ZONE: Final = schedule(time_zone="Atlantis")
NO_SELECTOR: Final = schedule(
    rollouts=None, schedule=None, problem="RolloutSchedule prod/nights: spec.rolloutSelector: no"
)
FREEZE: Final = schedule("freeze", namespace="")
PROD_FREEZE: Final = schedule("freeze", namespace="", namespaces=PROD)


def explain(
    *schedules: ScheduleObject,
    gates: tuple[ReleaseGate, ...] = (),
    labels: dict[str, str] | None = None,
    **more: Any,
) -> tuple[str, ...]:
    """Return what holds `prod/app` in the first minute, in which `nights` is closed."""
    now = more.pop("now", START)
    known = KnownSchedules(**{"schedules": schedules, **more})
    return list_holds(
        known, gated(labels=labels or {}), gates, lambda each: read_schedule(each, now, ZoneInfo)
    )


def make_gate(of: ScheduleObject, *, is_passing: bool) -> ReleaseGate:
    (gate,) = make_gates(snapshot(of))
    return msgspec.structs.replace(gate, is_passing=is_passing)


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        pytest.param(explain(), (), id="no schedule"),
        pytest.param(explain(schedule()), (CLOSED,), id="closed, without a gate"),
        pytest.param(explain(schedule(action=ALLOW)), (), id="open, without a gate"),
        pytest.param(
            explain(schedule(), now=START + timedelta(hours=2)), (), id="it has opened by the clock"
        ),
        pytest.param(
            explain(schedule(), gates=(make_gate(schedule(), is_passing=True),)),
            (CLOSED,), id="its gate is open still",
        ),
        pytest.param(
            explain(schedule(), gates=(make_gate(schedule(), is_passing=False),)),
            (), id="its gate says it",
        ),
        pytest.param(
            explain(schedule(), gates=(make_gate(schedule("days"), is_passing=False),)),
            (CLOSED,), id="the gate is that of another schedule",
        ),
        pytest.param(explain(schedule(rollouts=WEB)), (), id="it selects others"),
        pytest.param(
            explain(schedule(rollouts=WEB), labels={"tier": "web"}), (CLOSED,), id="it selects it"
        ),
        pytest.param(explain(schedule(namespace="dev")), (), id="of another namespace"),
        pytest.param(
            explain(schedule(head=msgspec.structs.replace(head("nights"), is_terminating=True))),
            (), id="it is being deleted",
        ),
    ],
)  # fmt: skip
def test_a_closed_schedule_holds_until_its_gate_does(
    found: tuple[str, ...], holds: tuple[str, ...]
) -> None:
    """RELB-42."""
    assert found == holds


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        pytest.param(
            explain(NO_ZONE),
            (
                'RolloutSchedule prod/nights: spec.timezone: no time zone is "Atlantis"; it has no'
                " gate here",
            ),
            id="no time zone",
        ),
        pytest.param(
            explain(NO_SELECTOR),
            ("RolloutSchedule prod/nights: spec.rolloutSelector: no; it has no gate here",),
            id="what it selects cannot be known",
        ),
        pytest.param(
            explain(NO_ZONE, gates=(make_gate(NO_ZONE, is_passing=True),)), (), id="with a gate"
        ),
        pytest.param(
            explain(NO_SELECTOR, gates=(make_gate(schedule(), is_passing=True),)),
            (), id="it had a gate before",
        ),
        pytest.param(
            explain(msgspec.structs.replace(NO_SELECTOR, head=head("nights", "dev"))),
            (), id="of another namespace",
        ),
    ],
)  # fmt: skip
def test_an_invalid_schedule_opens_nothing(found: tuple[str, ...], holds: tuple[str, ...]) -> None:
    """RELB-42, RELB-31 (f): where it has a gate, that stays as it is."""
    assert found == holds


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        pytest.param(explain(FREEZE), (WIDE_CLOSED,), id="of the cluster"),
        pytest.param(explain(FREEZE, compat=KUBERIK), (), id="kuberik's concerns no namespace"),
        pytest.param(
            explain(PROD_FREEZE, namespaces={"prod": {}}),
            (), id="other namespaces",
        ),
        pytest.param(
            explain(PROD_FREEZE, namespaces={"prod": {"env": "prod"}}),
            (WIDE_CLOSED,), id="its namespace",
        ),
        pytest.param(
            explain(PROD_FREEZE, namespaces_lack="Namespace: 403"),
            ("ClusterRolloutSchedule freeze: Namespace: 403; it has no gate here",),
            id="namespaces may not be read",
        ),
        pytest.param(
            explain(
                PROD_FREEZE,
                gates=(make_gate(FREEZE, is_passing=True),),
                namespaces_lack="Namespace: 403",
            ),
            (WIDE_CLOSED,), id="its gate was open when they were read last",
        ),
        pytest.param(
            explain(
                schedule("freeze", namespace="", namespaces=PROD, action=ALLOW),
                namespaces_lack="Namespace: 403",
            ),
            (), id="it is open, whatever it selects",
        ),
        pytest.param(
            explain(
                schedule("freeze", namespace="", namespaces=PROD, rollouts=WEB),
                namespaces_lack="Namespace: 403",
            ),
            (), id="it selects other Rollouts, wherever they are",
        ),
        pytest.param(explain(lacks=("no answer",)), ("no answer",), id="there may be others"),
    ],
)  # fmt: skip
def test_schedules_of_the_cluster(found: tuple[str, ...], holds: tuple[str, ...]) -> None:
    """RELB-42."""
    assert found == holds


def test_a_gate_without_an_owner_is_known_by_its_labels() -> None:
    """As gates of kuberik's controller may be."""
    gate = make_gate(schedule(), is_passing=False)
    orphan = msgspec.structs.replace(gate, origin=msgspec.structs.replace(gate.origin, owners=()))

    assert explain(schedule(), gates=(orphan,)) == ()


def test_thousands_of_schedules_make_a_pass_no_longer() -> None:
    """RELB-42: what is not read holds, since a closed schedule may be among it."""
    read: list[str] = []

    def load(schedule: ScheduleObject) -> ScheduleReading:
        read.append(schedule.head.name)
        return read_schedule(schedule, START, ZoneInfo)

    many = tuple(schedule(f"s{number}", time_zone="Atlantis") for number in range(1000))
    holds = list_holds(KnownSchedules(schedules=many), gated(labels={}), (), load)

    assert len(read) == MOST_SCHEDULES
    assert len(holds) == MOST_SCHEDULES + 1
    assert holds[-1] == "900 schedules beyond the 100 that are read"
