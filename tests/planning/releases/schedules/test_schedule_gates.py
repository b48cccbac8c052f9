"""Which gates a schedule creates, corrects and deletes."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model import names
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.releases import (
    CLUSTER_SCHEDULE,
    KUBERIK,
    SCHEDULE,
    CorrectGate,
    CreateGate,
    DeleteGate,
    GatedRollout,
    GateOrigin,
    OwnerReference,
    ReleaseGate,
    ScheduleAction,
    ScheduleObject,
    SchedulePlan,
    ScheduleSnapshot,
)
from rollout_operator.planning.candidates import assess_gates
from rollout_operator.planning.schedules import list_by_gate, list_by_rollout
from tests.planning.releases.builders import at, gate, head, releases
from tests.planning.releases.schedules.schedule_builders import (
    ALLOW,
    DENY,
    gated,
    make_gates,
    plan,
    relabel,
    schedule,
    snapshot,
)

INVALID = schedule(schedule=None, problem="spec.rules: too long")

OWNER = OwnerReference(
    api_version="kuberik.com/v1alpha1", kind=SCHEDULE, name="nights", uid=Uid("1")
)
LABELS = {names.SCHEDULE_NAME: "freeze", names.SCHEDULE_KIND: CLUSTER_SCHEDULE}


def with_gates(of: ScheduleSnapshot, *gates: ReleaseGate) -> SchedulePlan:
    return plan(replace(of, gates=gates))


def test_a_gate_says_whose_it_is() -> None:
    """REL-98, REL-22: a name that follows from both, labels, display texts and owner."""
    known = snapshot(schedule(pretty_name="Nights", description="no releases at night"))
    found = plan(known)

    (action,) = found.actions
    assert isinstance(action, CreateGate)
    wanted = action.wanted
    assert (wanted.key, wanted.rollout, wanted.is_passing) == ("prod/nights-app", "app", False)
    assert wanted.origin == GateOrigin(
        labels={
            "gate.kuberik.com/schedule-name": "nights",
            "gate.kuberik.com/schedule-namespace": "prod",
            "gate.kuberik.com/schedule-kind": "RolloutSchedule",
            "gate.kuberik.com/rollout-name": "app",
            "app.kubernetes.io/managed-by": "rollout-schedule",
        },
        pretty_name="Nights",
        description="no releases at night",
        owners=(
            OwnerReference(
                api_version="kuberik.com/v1alpha1",
                kind="RolloutSchedule",
                name="nights",
                uid=Uid("uid-nights"),
                controller=True,
                block_owner_deletion=True,
            ),
        ),
    )
    assert (found.matching, found.problem) == (1, "")
    # REL-100
    assert found.requeue_after == timedelta(minutes=120, milliseconds=100)


def test_what_is_as_wanted_stays() -> None:
    known = snapshot()
    (own,) = make_gates(known)

    found = with_gates(known, own, gate("of a person"))

    assert (found.actions, found.kept) == ((), ("prod/nights-app",))


@pytest.mark.parametrize(
    ("action", "minutes", "is_passing"),
    [
        pytest.param(ALLOW, 60, True, id="RT-113 Allow, within"),
        pytest.param(ALLOW, 180, False, id="RT-113 Allow, outside"),
        pytest.param(DENY, 180, True, id="RT-113 Deny, outside"),
        pytest.param(DENY, 60, False, id="RT-113 Deny, within"),
    ],
)
def test_the_value_follows_and_the_name_stays(
    action: ScheduleAction, minutes: float, is_passing: bool
) -> None:
    """REL-97."""
    known = snapshot(schedule(action=action), now=at(minutes))
    (own,) = make_gates(known)
    assert own.is_passing is is_passing

    found = with_gates(known, replace(own, is_passing=not is_passing))

    (corrected,) = found.actions
    assert isinstance(corrected, CorrectGate)
    assert (corrected.head.name, corrected.wanted.is_passing) == (own.head.name, is_passing)


def test_several_schedules_of_one_rollout_must_all_let_it_pass() -> None:
    """REL-102: each keeps a gate of its own, and none takes that of another for its own."""
    nights, weekends = schedule(), schedule("weekends", action=ALLOW)
    gates = (*make_gates(snapshot(nights)), *make_gates(snapshot(weekends)))

    assert [(one.head.name, one.is_passing) for one in gates] == [
        ("nights-app", False),
        ("weekends-app", True),
    ]
    assert assess_gates(releases("2"), gates).passed == ()
    for one in (nights, weekends):
        assert with_gates(snapshot(one), *gates).actions == ()


PROD, DEV = gated(), gated(namespace="dev")
SPACES = {"prod": {"env": "prod"}, "dev": {"env": "dev"}}


def of_cluster(namespaces: LabelSelector | None = None) -> ScheduleObject:
    return schedule("freeze", namespace="", namespaces=namespaces)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(
            of_cluster(LabelSelector(labels={"env": "prod"})), ["prod/cluster-freeze-app"],
            id="RT-114 one namespace",
        ),
        pytest.param(
            of_cluster(), ["dev/cluster-freeze-app", "prod/cluster-freeze-app"],
            id="RT-115 all namespaces",
        ),
        pytest.param(
            of_cluster(LabelSelector()), ["dev/cluster-freeze-app", "prod/cluster-freeze-app"],
            id="RT-114 a selector of all",
        ),
        pytest.param(schedule(), ["prod/nights-app"], id="REL-98 its own namespace"),
        pytest.param(
            schedule(rollouts=LabelSelector(labels={"tier": "web"})), [], id="REL-98 no Rollout"
        ),
    ],
)  # fmt: skip
def test_rollouts_that_are_selected(of: ScheduleObject, expected: list[str]) -> None:
    found = plan(snapshot(of, PROD, DEV, namespaces=SPACES))

    created = [one.wanted for one in found.actions if isinstance(one, CreateGate)]
    assert [one.key for one in created] == expected
    assert not any(one.is_passing for one in created)
    assert found.matching == len(expected)


def test_without_a_selector_no_namespace_is_concerned_where_kuberiks_outcome_is_wanted() -> None:
    """RELB-31, RT-115: an empty selector still concerns all."""
    for selector, matching in ((None, 0), (LabelSelector(), 2)):
        known = snapshot(of_cluster(selector), PROD, DEV, namespaces=SPACES)
        assert plan(replace(known, compat=KUBERIK)).matching == matching


def test_gates_go_with_what_selected_them() -> None:
    """REL-99, RELB-31 (i): also in a namespace that is not selected any more."""
    known = snapshot(of_cluster(), PROD, DEV, namespaces=SPACES)
    gates = make_gates(known)
    narrow = replace(known, schedule=of_cluster(LabelSelector(labels={"env": "prod"})))

    found = with_gates(narrow, *gates)

    assert found.actions == (DeleteGate(head=head("cluster-freeze-app", "dev")),)
    assert found.kept == ("prod/cluster-freeze-app",)
    assert with_gates(
        snapshot(None, PROD), *make_gates(snapshot(None, PROD, gated("old")))
    ).actions == (DeleteGate(head=head("nights-old")),)


def test_what_people_changed_is_put_right_but_for_versions() -> None:
    """RELB-31 (k) and (l)."""
    known = snapshot()
    (own,) = make_gates(known)
    edited = replace(
        own,
        rollout="other",
        is_passing=True,
        allowed_versions=("1.0.0",),
        origin=replace(own.origin, labels={}, description="left over"),
    )

    (action,) = with_gates(known, edited).actions

    assert isinstance(action, CorrectGate)
    assert (action.wanted.rollout, action.wanted.is_passing) == ("app", False)
    assert action.wanted.origin == own.origin
    assert with_gates(known, replace(own, allowed_versions=("1.0.0",))).actions == ()


def test_gates_of_kuberiks_controller_are_taken_over() -> None:
    """REL-98: they are found by labels, whatever their names. A twin goes (RELB-31 (h))."""
    known = snapshot()
    (own,) = make_gates(known)
    labels = {key: own.origin.labels[key] for key in own.origin.labels if key != names.MANAGED_BY}
    theirs = relabel(replace(own, head=head("schedule-gate-x7k2p")), labels)

    (action,) = with_gates(known, theirs).actions
    assert isinstance(action, CorrectGate)
    assert action.wanted.name == "schedule-gate-x7k2p"
    assert with_gates(known, own, theirs).actions == (DeleteGate(head=theirs.head),)


def test_a_gate_of_another_owner_is_left_alone() -> None:
    """Labels alone take nothing away from another controller."""
    known = snapshot()
    (own,) = make_gates(known)
    other = OwnerReference(
        api_version="v1", kind="ConfigMap", name="x", uid=Uid("u"), controller=True
    )
    foreign = replace(own, origin=replace(own.origin, owners=(other,)))

    (action,) = with_gates(known, foreign).actions

    assert isinstance(action, CreateGate)
    assert action.wanted.name.startswith("nights-app-")


def test_a_schedule_that_was_created_anew_keeps_its_gates() -> None:
    """Between garbage collection and the next pass no gate would hold anything."""
    known = snapshot()
    (own,) = make_gates(
        replace(known, schedule=schedule(head=replace(head("nights"), uid=Uid("before"))))
    )

    (action,) = with_gates(known, own).actions

    assert isinstance(action, CorrectGate)
    assert [one.uid for one in action.wanted.origin.owners] == ["uid-nights"]


def test_other_owners_stay() -> None:
    known = snapshot()
    (own,) = make_gates(known)
    other = OwnerReference(api_version="v1", kind="ConfigMap", name="x", uid=Uid("u"))
    owned = replace(own, is_passing=True, origin=replace(own.origin, owners=(other,)))

    (action,) = with_gates(known, owned).actions

    assert isinstance(action, CorrectGate)
    assert [one.kind for one in action.wanted.origin.owners] == ["ConfigMap", "RolloutSchedule"]


@pytest.mark.parametrize("taken_by", ["a gate of a person", "another schedule"])
def test_no_two_share_a_name(taken_by: str) -> None:
    """RELB-31 (h): `a-b` and `c` are not `a` and `b-c`."""
    first = snapshot(schedule("a"), gated("b-c"))
    taken = make_gates(first) if taken_by == "another schedule" else (gate("a-b-c", rollout="b-c"),)
    known = snapshot(schedule("a-b"), gated("c"), gates=taken)

    (action,) = plan(known).actions
    assert isinstance(action, CreateGate)
    assert action.wanted.name.startswith("a-b-c-")
    again = with_gates(known, *taken, *make_gates(known))
    assert again.actions == ()
    # Nor does the other one's name become free for a twin.
    assert with_gates(known, *make_gates(known)).actions == ()


def test_names_and_labels_have_room() -> None:
    """RELB-31 (h): 253 characters for a name, 63 for a label."""
    long = "r" * 250
    known = snapshot(schedule("s" * 80), gated(long + "a"), gated(long + "b"))
    gates = make_gates(known)

    assert len({one.head.name for one in gates}) == 2
    assert all(len(one.head.name) <= 253 for one in gates)
    assert all(len(text) <= 63 for one in gates for text in one.origin.labels.values())
    assert with_gates(known, *gates).actions == ()


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        pytest.param(INVALID, "spec.rules: too long", id="a spec"),
        pytest.param(
            schedule(time_zone="Mars/Olympus"),
            'RolloutSchedule prod/nights: spec.timezone: no time zone is "Mars/Olympus"',
            id="a time zone",
        ),
    ],
)
def test_an_invalid_schedule_fails_closed(of: ScheduleObject, problem: str) -> None:
    """RELB-31 (f), REL-96: its gates stay as they are, and new ones do not pass."""
    valid = snapshot(schedule(action=ALLOW), gated(), gated("old"))
    known = replace(valid, schedule=of, rollouts=(gated(), gated("new")))

    found = with_gates(known, *make_gates(valid))

    assert (found.state, found.problem) == (None, problem)
    (action,) = found.actions
    assert isinstance(action, CreateGate)
    assert (action.wanted.rollout, action.wanted.is_passing) == ("new", False)
    assert found.kept == ("prod/nights-app", "prod/nights-old")


def test_without_a_selector_nothing_is_touched() -> None:
    """RELB-31 (f)."""
    gates = make_gates(snapshot())

    found = with_gates(snapshot(replace(INVALID, rollouts=None), gated("new")), *gates)

    assert (found.actions, found.kept, found.matching) == ((), ("prod/nights-app",), 0)


@pytest.mark.parametrize(
    ("of", "rollout"),
    [
        pytest.param(
            schedule(head=replace(head("nights"), is_terminating=True)), gated(), id="a schedule"
        ),
        pytest.param(schedule(), gated(is_terminating=True), id="a Rollout"),
    ],
)
def test_nothing_is_created_for_what_goes(of: ScheduleObject, rollout: GatedRollout) -> None:
    assert plan(snapshot(of, rollout)).actions == ()


def test_a_gate_that_goes_is_left_alone() -> None:
    """It is created anew once it is gone."""
    known = snapshot()
    (own,) = make_gates(known)
    going = replace(own, is_passing=True, head=replace(own.head, is_terminating=True))

    assert with_gates(known, going).actions == ()


@pytest.mark.parametrize(
    ("kind", "concerned"), [(SCHEDULE, ["nights"]), (CLUSTER_SCHEDULE, ["freeze"])]
)
def test_a_gate_concerns_those_that_it_names(kind: str, concerned: list[str]) -> None:
    """REL-101: its owner and its labels, each of the kind that is read."""
    origin = GateOrigin(labels=LABELS, owners=(OWNER,))
    gate = ReleaseGate(head=head("gate"), rollout="app", origin=origin)
    assert list(list_by_gate(kind, gate)) == concerned


def test_a_gate_names_a_schedule_once() -> None:
    labels = {names.SCHEDULE_NAME: "nights", names.SCHEDULE_KIND: SCHEDULE}
    origin = GateOrigin(labels=labels, owners=(OWNER,))
    gate = ReleaseGate(head=head("gate"), rollout="app", origin=origin)
    assert list(list_by_gate(SCHEDULE, gate)) == ["nights"]


def test_a_rollout_concerns_those_that_select_it() -> None:
    """REL-101: and those that cannot say what they select."""
    web = LabelSelector(labels={"tier": "web"})
    schedules = [
        schedule("web", rollouts=web),
        schedule("invalid", rollouts=None),
        schedule("all"),
    ]
    selected = gated(labels={"tier": "web"})
    assert list(list_by_rollout(schedules, [selected])) == ["web", "invalid", "all"]
    assert list(list_by_rollout(schedules, [gated()])) == ["invalid", "all"]
