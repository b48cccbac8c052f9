"""When a batch is complete, how long the pause after it lasts, and when it has stalled."""

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Revision
from rollout_operator.model.objects import Pod, Zone
from rollout_operator.model.policy import Batch, PolicyPlan, PolicySnapshot
from rollout_operator.model.units import IntOrPercent
from rollout_operator.planning.policies import plan_policy
from tests.builders import NOW, prev, zone
from tests.planning.policies.snapshots import batch, outline, read_policy, seconds, snapshot
from tests.planning.tables import read_table

B = zone("b")
OPEN = batch("a-2")
V3 = Revision("v3")


def plan(*zones: Zone, last: Batch | None = None, **fields: Any) -> PolicyPlan:
    return plan_policy(snapshot(*zones, batch=last, **fields))


def at(base: Zone, *ordinals: int, ready: float = 0, created: float | None = None) -> Zone:
    """Return the zone with pods that are ready, or were created, so many seconds from now."""

    def change(one: Pod) -> Pod:
        times = {} if created is None else {"created": NOW + seconds(created)}
        since = NOW + seconds(ready) if one.is_ready else None
        is_meant = base.sts.ordinal_of(one.name) in ordinals
        return replace(one, ready_since=since, **times) if is_meant else one

    return structs.replace(base, pods=tuple(map(change, base.pods)))


def times(found: PolicyPlan) -> list[float | None]:
    """Return, in seconds from now, completion of the batch and end of the pause."""
    last = found.batch.completion if found.batch else None
    both = (last, found.next_batch)
    return [None if one is None else (one - NOW).total_seconds() for one in both]


PAUSES = """
MAZ-40 complete, the pause begins
  prev a ppl; zone b; batch a-2 | interval_wait 0 30
MAZ-40 not ready
  prev a ppL; zone b; batch a-2 | batch_open - -
MAZ-40 not there
  prev a pp-; zone b; batch a-2 | batch_open - -
MAZ-40 going
  prev a ppt; zone b; batch a-2 | batch_open - -
MT-30 MAZ-43 a new process counts from the record
  prev a ppl; zone b; batch a-2 completion=-20 | interval_wait -20 10
MT-28 the pause is over
  prev a ppl; zone b; batch a-2 completion=-30 | a-1
MAZ-38 an outdated one that breaks in the pause goes
  prev a pPl; zone b; batch a-2 completion=-10 | a-1
MT-28 MAZ-40 one that fails in the pause opens the batch again
  prev a ppL; zone b; batch a-2 completion=-10 | batch_open - -
MAZ-40 nothing does after the pause
  prev a plL; zone b; batch a-2 completion=-31 | budget_used -31 -
MT-28 MAZ-40 it recovered unseen
  prev a ppl; zone b; pod zone-a-2 ready_for=5; batch a-2 completion=-20 | interval_wait -20 25
MAZ-32 MAZ-40 it recovers when it is available: ready for 15 s, of which 10 are wanted
  prev a ppl min_ready_seconds=10; zone b; pod zone-a-0 zone-a-1 ready_for=99;
    pod zone-a-2 ready_for=15; batch a-2 completion=-20
  | interval_wait -20 25
MAZ-43 the kubelet's clock is ahead
  prev a ppl; zone b; pod zone-a-2 ready_for=-7; batch a-2 completion=-20 | interval_wait -20 10
MAZ-43 a completion in the future is now
  prev a ppl; zone b; batch a-2 completion=3600 | interval_wait 0 30
MAZ-41 the first batch does not wait
  prev a; zone b | a-2
MAZ-41 nor for outdated pods that are new
  prev a; zone b; pod zone-a-* ready_for=5 | a-2
MAZ-43 the status is lost
  prev a ppl; zone b; pod zone-a-2 ready_for=5 | interval_wait - 25
MAZ-43 the status is lost, and the kubelet's clock is ahead
  prev a ppl; zone b; pod zone-a-2 ready_for=-7 age=5 | interval_wait - 25
MAZ-40 the last batch of a rollout
  zone a; zone b; batch a-2 | up_to_date 0 -
MAZ-41 it lies between zones as well
  zone a; prev b; batch a-0 completion=-29 | interval_wait -29 1
MAZ-41 and ends there
  zone a; prev b; batch a-0 completion=-30 | b-2
MAZ-41 it lies between rollouts as well: the batch was for another revision, and complete
  prev a; zone b; batch a-0 completion=-29 revision=v3 | interval_wait -29 1
MAZ-40 MAZ-41 a failure in it counts anew, though nothing of that batch is left to wait for
  prev a; zone b llL ready=2; batch a-0 completion=-29 revision=v3 | zone_not_ready 0 -
MT-31 MAZ-46 it has not ended
  prev a ppl; zone b; batch a-2 completion=-6 | interval_wait -6 24
MT-31 MAZ-46 a shorter one takes effect at once
  prev a ppl; zone b; batch a-2 completion=-6; spec interval=5 | a-1
MT-29 MAZ-42 without a pause two may be down
  prev a pppLL; zone b; batch a-4 a-3; spec interval=0 max_unavailable=2 | batch_open - -
MT-29 MAZ-42 and the window slides: one is back, the next goes
  prev a pppLl; zone b; batch a-4 a-3; spec interval=0 max_unavailable=2 | a-2
MAZ-43 a batch for a revision that no StatefulSet ever had, written by hand, saves no pause
  prev a ppl; zone b; pod zone-a-2 ready_for=1; batch a-2 revision=v3 | interval_wait - 29
MAZ-47 excepts the StatefulSet of a superseded batch, and no other
  zone a; prev b; pod zone-a-2 ready_for=1; batch a-2 revision=v3 | interval_wait - 29
MAZ-43 MAZ-40 a batch of a broken pod that is up again waits
  prev a ppp; zone b; pod zone-a-2 ready_for=5; batch a-2 uids=same | interval_wait - 25
MAZ-40 also where another pod is
  prev a ppp; zone b; pod zone-b-1 ready_for=1; batch a-2 uids=same | interval_wait - 29
MAZ-46 it goes on after the pause
  prev a ppp; zone b; pod zone-a-2 ready_for=30; batch a-2 uids=same | a-2
MAZ-46 one that has begun goes on
  prev a ppl; zone b; pod zone-a-1 ready_for=5; batch a-1 a-2 uids=same | a-1
MAZ-46 so does one that was recorded since
  prev a ppp; zone b; pod zone-a-2 ready_for=5; batch a-2 uids=same start=-4 | a-2
MAZ-38 and one of a broken pod
  prev a ppP; zone b; pod zone-b-1 ready_for=5; batch a-2 uids=same | a-2
MAZ-42 none waits where no pause is wanted
  prev a ppp; zone b; pod zone-a-2 ready_for=5; batch a-2 uids=same; spec interval=0 | a-2
MAZ-41 a batch of a StatefulSet that left is over, and the pause begins
  prev b; batch a-2 | interval_wait 0 30
MAZ-41 also where another StatefulSet of its zone is left
  prev b; zone c; batch a-2; shared a=b c=c | interval_wait 0 30
SI-26 not while that counts still
  left a ppL ready=2; prev b; batch a-2 | zone_left_short - -
MAZ-41 it lasts as long as any other
  prev b; batch a-2 completion=-29 | interval_wait -29 1
MAZ-41 and ends
  prev b; batch a-2 completion=-30 | b-2
MAZ-40 not while a pod of another StatefulSet is not available
  prev b; zone c llL ready=2; batch a-2 | zone_not_ready - -
MAZ-42 none follows where none is wanted
  prev b; batch a-2; spec interval=0 | b-2
"""


@pytest.mark.parametrize(("case", "expected"), read_table(PAUSES, read_policy))
def test_the_pause(case: PolicySnapshot, expected: list[str]) -> None:
    """What goes, or what it waits for, when the batch was complete and when the pause ends."""
    found = plan_policy(case)
    ends = [] if found.action else [f"{'-' if one is None else int(one)}" for one in times(found)]

    assert [" ".join([outline(found), *ends])] == expected


@pytest.mark.parametrize(
    ("a", "last", "ends"),
    [
        pytest.param(prev("a", "ppl"), OPEN, [1, 31], id="MAZ-40 it begins at the latest time"),
        pytest.param(
            prev("a", "ppl"), batch("a-2", completion=1), [1, 31],
            id="MAZ-43 what was recorded so is not in the future",
        ),
        pytest.param(
            prev("a", "ppl"), batch("a-2", completion=9), [1, 31],
            id="MAZ-43 what is later than the latest is",
        ),
        pytest.param(
            at(prev("a", "ppl"), 2, ready=-5), None, [None, 26],
            id="MAZ-43 times of pods have whole seconds",
        ),
    ],
)  # fmt: skip
def test_no_error_of_the_clock_shortens_a_pause(
    a: Zone, last: Batch | None, ends: list[float | None]
) -> None:
    """The server's clock is known up to a second too early, by a new process."""
    case = structs.replace(snapshot(a, B, batch=last), clock_error=seconds(1))

    assert times(plan_policy(case)) == ends


def test_no_error_of_the_clock_makes_a_pause() -> None:
    """MAZ-40: an interval of 0 is none; each batch would wait for a second."""
    complete = snapshot(prev("a", "ppl"), B, batch=OPEN, interval=seconds(0))

    assert outline(plan_policy(structs.replace(complete, clock_error=seconds(1)))) == "a-1"


def test_what_goes_is_recorded_before() -> None:
    """Step 12: with its number, its pods by UID, its revision, on the server's clock."""
    found = plan(prev("a", "ppl"), B, last=batch("a-2", completion=-60))

    assert found.batch == batch("a-1", uids="same", start=0, number=5)
    assert found.is_open


@pytest.mark.parametrize(
    ("a", "last", "expected"),
    [
        pytest.param(prev("a"), batch("a-2", uids="same"), "a-2", id="none was deleted"),
        pytest.param(
            prev("a", "ppp"), batch("a-0", uids="same"), "a-0", id="in whatever order it is now"
        ),
        pytest.param(
            prev("a", "ppp", paused="true"), batch("a-2", uids="same"), "paused",
            id="MAZ-26 but not of a StatefulSet that is paused",
        ),
    ],
)  # fmt: skip
def test_a_batch_that_was_recorded_and_not_carried_out_goes_on(
    a: Zone, last: Batch, expected: str
) -> None:
    """A process may end between both; the batch is the same, not another."""
    found = plan(a, B, last=last)

    assert outline(found) == expected
    if found.action:
        assert found.batch == last


def test_the_rest_of_a_batch_waits_for_other_zones() -> None:
    """MAZ-32: zone b broke since; it has its turn first."""
    last = batch("a-2", uids="same")

    assert outline(plan(prev("a"), zone("b", "lLl", ready=2), last=last)) == "zone_not_ready"
    found = plan(prev("a"), prev("b", "pPp"), last=last)
    assert (outline(found), found.batch and found.batch.number) == ("b-1", 5)


def test_half_a_batch_goes_on_within_the_budget() -> None:
    """Of two, one is deleted and starts: the other goes, and no third one."""
    last = batch("a-2", "a-1", uids="same")
    found = plan(prev("a", "ppL"), B, last=last, max_unavailable=IntOrPercent(2))

    assert (outline(found), found.batch) == ("a-1", last)


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        pytest.param("ooO", "a-2", id="MT-47 the broken one is rolled back at once"),
        pytest.param("ooo", "a-2", id="MAZ-47 so is a healthy one"),
        pytest.param("pop", "a-2", id="MAZ-47 a new template: the next batch, no pause"),
    ],
)
def test_a_batch_for_another_revision_is_superseded(a: str, expected: str) -> None:
    last = batch("a-2", revision=V3)
    found = plan(at(prev("a", a), 0, 1, 2, ready=-1), B, last=last)

    assert (outline(found), found.batch and found.batch.number) == (expected, 5)


def test_a_batch_that_no_pod_bears_out_saves_no_pause() -> None:
    """MAZ-43: written by hand, for a revision that no StatefulSet ever had."""
    last = batch("a-2", revision=V3)
    a = at(prev("a", "ppl"), 2, ready=-1)

    assert times(plan(a, B, last=structs.replace(last, pods=()))) == [None, 29]


@pytest.mark.parametrize(
    ("a", "last", "left"),
    [
        pytest.param(prev("a", "pp-"), batch("a-2", start=-599), 1, id="nothing comes"),
        pytest.param(prev("a", "pp-"), batch("a-2", start=-600), None, id="MAZ-44 for too long"),
        pytest.param(
            at(prev("a", "ppL"), 2, created=-10), batch("a-2", start=-900), 590, id="a pod came"
        ),
        pytest.param(
            at(prev("a", "ppL"), 2, created=-600), batch("a-2", start=-900), None,
            id="MT-46 MAZ-44 and crashes since",
        ),
        pytest.param(
            prev("a", "pp-"), batch("a-2", start=3600), 600, id="a start in the future is now"
        ),
    ],
)  # fmt: skip
def test_a_batch_stalls(a: Zone, last: Batch, left: float | None) -> None:
    """It is reported, and it goes on waiting: other zones are left alone."""
    found = plan(a, prev("b"), last=last)

    assert outline(found) == "batch_open"
    assert found.is_stalled == (left is None)
    assert found.requeue_after == (None if left is None else seconds(left))
