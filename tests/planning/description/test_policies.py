"""A MultiAZRollout as every outlet shows it: by its status, and by what was decided last."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.description import Phase, PolicyDescription
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.policy import (
    PolicyRefusal,
    PolicyRefusalCode,
    PolicyScope,
    PolicySetStatus,
    PolicyStatus,
    PolicyZoneStatus,
    RecordedBatch,
    RecordedPod,
    RefusedPolicy,
    SetCounts,
    WatchedPolicy,
    ZoneCounts,
)
from rollout_operator.planning.describe_policies import (
    DUE_AFTER,
    OBEYED_WITHIN,
    describe_idle,
    describe_policy,
    describe_unreadable_policy,
    find_disobedience,
    is_held,
    list_worst_policies,
)
from tests.planning.policies.snapshots import policy

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CREATED: Final = "it was created at 2026-01-02T03:02:05Z"
READY: Final = StatusCondition(
    type="Ready",
    status="False",
    reason="RollingOut",
    message="db-a waits for the end of a pause",
    last_transition_time="2026-01-02T03:04:05Z",
)
BATCH: Final = RecordedBatch(
    number=3,
    zone="a",
    stateful_set="db-a",
    update_revision="r2",
    pods=(RecordedPod(name="db-a-1", uid="u"),),
    start_time="2026-01-02T03:04:05Z",
)
STATUS: Final = PolicyStatus(
    observed_generation=1,
    phase="Waiting",
    updated_pods=1,
    total_pods=3,
    ready_pods=2,
    next_batch_time="2026-01-02T03:04:35Z",
    unknown_zones=("c",),
    zones=(
        PolicyZoneStatus(
            name="a",
            order=1,
            state="Updating",
            stateful_sets=(PolicySetStatus(name="db-a", source="Label", replicas=3),),
        ),
    ),
    last_batch=BATCH,
    conditions=(READY,),
)
SCOPE: Final = PolicyScope(policy=policy(), groups=frozenset({GroupName("y"), GroupName("x")}))


def watched(status: PolicyStatus = STATUS, **fields: Any) -> WatchedPolicy:
    return WatchedPolicy(resource_version="1", policy=policy(**fields), status=status)


def describe(
    *waits: Reason, status: PolicyStatus = STATUS, now: datetime = NOW
) -> PolicyDescription:
    return describe_policy(watched(status), SCOPE, waits, now=now)


def test_what_is_not_decided_here_is_said_by_the_status() -> None:
    found = describe()

    assert (found.title, found.phase, found.code) == ("prod/db", "Waiting", None)
    assert (found.headline, found.reason) == (READY.message, "RollingOut")
    assert (found.updated, found.desired, found.ready) == (1, 3, 2)
    assert (found.groups, found.unknown_zones) == (("x", "y"), ("c",))
    assert found.next_batch == NOW + timedelta(seconds=30)
    assert [(one.name, one.order, one.state) for one in found.zones] == [("a", 1, "Updating")]
    assert found.zones[0].sets[0].source == "Label"
    assert found.batch is not None
    assert (found.batch.number, found.batch.pods, found.batch.began) == (3, ("db-a-1",), NOW)
    assert found.batch.completed is None
    assert [(one.type, one.is_true, one.since) for one in found.conditions] == [
        ("Ready", False, NOW)
    ]


def test_newer_numbers_count_before_those_of_the_status() -> None:
    """A pod has gone since the status was written, and the sentence beside it says so."""
    sets = SetCounts(
        name=STATUS.zones[0].stateful_sets[0].name, replicas=3, updated=2, outdated=0, ready=1,
        unavailable=2, revision=Revision("last"),
    )  # fmt: skip
    newer = [ZoneCounts(name="a", sets=(sets,))]
    found = describe_policy(watched(STATUS), SCOPE, now=NOW, counts=newer)

    assert (found.updated, found.desired, found.ready) == (2, 3, 1)
    shown = found.zones[0].sets[0]
    assert (shown.desired, shown.updated, shown.outdated, shown.unavailable) == (3, 2, 0, 2)
    assert shown.source == "Label"


def test_what_was_decided_comes_first_with_what_a_person_can_do() -> None:
    paused = Reason(Code.POLICY_PAUSED, "the policy is paused")
    found = describe(paused)

    assert (found.headline, found.code) == ("the policy is paused", Code.POLICY_PAUSED)
    (wait,) = found.waits
    assert (wait.code, wait.remedy) == (
        Code.POLICY_PAUSED,
        "set spec.paused to false when it may go on",
    )


def test_being_up_to_date_is_nothing_to_wait_for() -> None:
    found = describe(Reason(Code.UP_TO_DATE, "all is updated"))

    assert (found.headline, found.code, found.waits) == ("all is updated", Code.UP_TO_DATE, ())


def test_a_refusal_is_the_headline_whatever_the_status_says() -> None:
    refusals = tuple(
        PolicyRefusal(code=PolicyRefusalCode.CONFLICT, field="spec", text=text)
        for text in ("one", "two")
    )
    refused = RefusedPolicy(head=policy().head, refusals=refusals)
    found = describe_policy(watched(), refused, now=NOW)

    assert (found.phase, found.headline, found.reason) == ("Invalid", "one; two", "Conflict")
    assert found.next_batch is None


def test_one_that_is_being_deleted_or_was_never_reconciled_says_so() -> None:
    assert (
        describe_policy(watched(), None, now=NOW).headline == "it is being deleted: no batch begins"
    )
    assert describe(status=PolicyStatus()).headline == "nothing has been decided yet"


def test_unreadable_times_are_left_out() -> None:
    bad = replace(
        STATUS, next_batch_time="soon", start_time="x", last_batch=replace(BATCH, start_time="")
    )
    found = describe(status=bad)

    assert (found.next_batch, found.began) == (None, None)
    assert found.batch is not None
    assert found.batch.began is None


def test_an_object_that_cannot_be_read_has_its_name_and_the_error() -> None:
    one = Unreadable(
        kind="MultiAZRollout",
        namespace="prod",
        name="db",
        uid=Uid("u"),
        resource_version="1",
        error="spec: expected object",
    )
    found = describe_unreadable_policy(one)

    assert (found.title, found.headline, found.code) == (
        "prod/db",
        "spec: expected object",
        Code.OBJECT_UNREADABLE,
    )


def named(name: str, phase: str, *waits: Reason, reason: str = "") -> PolicyDescription:
    conditions = (replace(READY, type="Progressing", reason=reason, status="True"),)
    status = replace(STATUS, phase=phase, conditions=conditions)
    return replace(describe(*waits, status=status), name=name)


def test_of_a_hundred_policies_those_come_first_that_do_not_go_on() -> None:
    """The page shows thirty: one that only a person can mend is among them, whatever its name."""
    refused = Reason(Code.DELETE_REFUSED, "no", Severity.WARN)
    policies = [
        named("a", "Idle"),
        named("b", "Progressing"),
        named("c", "Waiting", reason="IntervalWait"),
        named("d", "Paused"),
        named("e", "Waiting"),
        named("f", "Waiting", refused, reason="BatchOpen"),
        named("g", "Progressing", reason="ProgressDeadlineExceeded"),
        named("h", "Invalid"),
        named("i", "Blocked"),
    ]
    found = list_worst_policies(policies)

    assert "".join(one.name for one in found) == "fghiedbca"
    assert [is_held(one) for one in found] == [True] * 4 + [False] * 5


def test_a_pause_that_is_long_over_is_not_what_is_waited_for() -> None:
    """A process that shares few requests among many policies comes late."""
    pause = Reason(Code.INTERVAL_WAIT, "db-a waits for the end of a pause")
    progress = replace(READY, type="Progressing", reason="IntervalWait")
    status = replace(STATUS, conditions=(READY, progress))
    end = NOW + timedelta(seconds=30)
    soon = describe(pause, status=status, now=end + DUE_AFTER)
    late = describe(pause, status=status, now=end + DUE_AFTER + timedelta(seconds=1))

    paused = Reason(Code.POLICY_PAUSED, "the policy is paused")
    stopped = describe(paused, status=status, now=end + timedelta(minutes=1))

    assert (soon.code, stopped.code) == (Code.INTERVAL_WAIT, Code.POLICY_PAUSED)
    assert (late.code, late.headline) == (
        Code.BATCH_DUE,
        "the pause was over at 2026-01-02T03:04:35Z, and the next batch has not begun",
    )
    assert "-kubernetes.client-qps" in late.waits[0].remedy


@pytest.mark.parametrize(
    ("status", "age", "is_switched_off", "text"),
    [
        pytest.param(
            PolicyStatus(), OBEYED_WITHIN, False, f"no operator has looked at it since {CREATED}",
            id="never looked at",
        ),
        pytest.param(PolicyStatus(), OBEYED_WITHIN / 2, False, "", id="new"),
        pytest.param(
            PolicyStatus(), None, False, "no operator has looked at it", id="of unknown age"
        ),
        pytest.param(STATUS, OBEYED_WITHIN, False, "", id="looked at"),
        pytest.param(PolicyStatus(conditions=(READY,)), OBEYED_WITHIN, False, "", id="refused"),
        pytest.param(
            STATUS, timedelta(0), True, "the operator of the namespace obeys no MultiAZRollouts",
            id="switched off since",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_no_operator_obeys(
    status: PolicyStatus, age: timedelta | None, is_switched_off: bool, text: str
) -> None:
    """It is held for a person, in `wait` as well."""
    created = None if age is None else NOW - age
    own = policy()
    own = replace(own, head=replace(own.head, created=created))
    unobeyed = WatchedPolicy(resource_version="1", policy=own, status=status)
    lack = find_disobedience(unobeyed, NOW, is_switched_off=is_switched_off)

    assert (lack.text if lack else "") == text
    if lack is not None:
        found = describe_policy(unobeyed, SCOPE, (lack,), now=NOW)
        assert (found.headline, found.code, is_held(found)) == (text, Code.POLICY_NOT_OBEYED, True)
        assert describe_idle(found, NOW).phase is Phase.HELD
