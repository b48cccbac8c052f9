"""What holds for every plan, whatever the group looks like.

The checks count by themselves, naively and pod by pod, so that an error in the planner's own
counting is not repeated here.
"""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Deletion, Group, Pod, Zone
from rollout_operator.model.outcome import Code, Plan, Reason, RecordRevision, ReplacePods
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.wording import explain
from tests.builders import NOW, group, pod, shuffled, zone
from tests.examples import repeatable

pytestmark = pytest.mark.thorough

REPEATABLE = repeatable(250)

rarely = st.integers(0, 19).map(lambda number: number == 0)
# Mostly whole and outdated pods, so that a fair share of the groups may move.
states = st.text("ppppllllPLoOtTnNwW-", min_size=0, max_size=4)
whole_states = st.one_of(st.text("lp", max_size=4), st.text("l", max_size=4))


@st.composite
def zones(draw: st.DrawFn, letter: str) -> Zone:
    pods = draw(st.one_of(whole_states, whole_states, states))
    up = sum(state in "plo" for state in pods)
    base = zone(
        letter,
        pods,
        ready=draw(st.integers(0, len(pods))) if draw(rarely) else up,
        current=draw(st.sampled_from(["prev", "prev", "last", "old"])),
        limit=draw(st.sampled_from([None, "1", "2", "3", "50%", "x"])),
        paused=draw(st.sampled_from([None, None, None, "false", "No", "true", "TRUE", "yes"])),
        strategy="RollingUpdate" if draw(rarely) else "OnDelete",
        observed_generation=0 if draw(rarely) else 1,
        update_revision="" if draw(rarely) else "last",
        is_terminating=draw(rarely),
        is_ordered=draw(st.booleans()),
        first_ordinal=1 if draw(rarely) else 0,
        min_ready_seconds=draw(st.sampled_from([0, 0, 0, 30])),
    )
    return replace(base, pods=tuple(draw(change(one)) for one in base.pods))


@st.composite
def change(draw: st.DrawFn, one: Pod) -> Pod:
    ages = [None, *(timedelta(seconds=seconds) for seconds in (-5, 10, 30, 900, 900, 900))]
    age = draw(st.sampled_from(ages))
    return replace(
        one,
        owner_uid=Uid("stranger") if draw(rarely) else one.owner_uid,
        revision=None if draw(rarely) else one.revision,
        was_ready=not one.is_ready and not one.never_ready and draw(st.booleans()),
        ready_since=NOW - age if one.is_ready and age is not None else None,
    )


@st.composite
def groups(draw: st.DrawFn) -> Group:
    members = tuple(draw(zones(letter)) for letter in "abc"[: draw(st.integers(1, 3))])
    known = [one for member in members for one in member.pods if draw(rarely)]
    deletions = {one.uid: draw(st.sampled_from(Deletion)) for one in known}
    return replace(group(*members), deletions=deletions)


def own_pods(member: Zone) -> dict[int, Pod]:
    """Return the pods that the zone's StatefulSet owns and wants, by ordinal."""
    names = {f"{member.sts.name}-{ordinal}": ordinal for ordinal in member.sts.ordinals}
    return {
        names[one.name]: one
        for one in member.pods
        if one.name in names and one.owner_uid == member.sts.uid
    }


def is_up(case: Group, member: Zone, one: Pod) -> bool:
    long = member.sts.min_ready_seconds
    old_enough = long == 0 or (
        one.ready_since is not None and (case.now - one.ready_since).total_seconds() >= long
    )
    return one.is_ready and not one.is_terminating and one.uid not in case.deletions and old_enough


def count_unavailable(case: Group, member: Zone) -> int:
    pods = own_pods(member)
    down = sum(
        ordinal not in pods or not is_up(case, member, pods[ordinal])
        for ordinal in member.sts.ordinals
    )
    sts = member.sts
    counted = sts.available_replicas if sts.min_ready_seconds else sts.ready_replicas
    return max(down, sts.replicas - counted)


def collect_in_flight(case: Group, member: Zone) -> set[int]:
    """Return the ordinals that may be down because of us."""
    pods, sts = own_pods(member), member.sts
    found = set()
    for ordinal in sts.ordinals:
        one = pods.get(ordinal)
        if one is None or one.is_terminating or one.uid in case.deletions:
            found.add(ordinal)
        elif not one.is_ready:
            is_abandoned = one.revision != sts.current_revision and not one.was_ready
            # Its predecessor may have been evicted a moment ago, whatever its revision.
            is_new = one.never_ready or (one.phase == "Pending" and not one.ip)
            if one.revision == sts.update_revision or is_abandoned or is_new:
                found.add(ordinal)
    return found


def may_serve(one: Pod) -> bool:
    """Return whether a pod is up, or may come up again by itself."""
    return one.is_ready or not (one.never_ready or one.is_crash_looping)


def waits_for(case: Group, member: Zone, others: set[int], ordinal: int) -> bool:
    """Return whether nothing mends these ordinals of an ordered set before another is ready."""
    pods = own_pods(member)
    are_gone = all(
        other not in pods
        or pods[other].is_terminating
        or case.deletions.get(pods[other].uid) is Deletion.ACCEPTED
        or (not pods[other].is_ready and pods[other].revision != member.sts.update_revision)
        for other in others
    )
    is_alone = not pods[ordinal].is_ready and min(others) > ordinal
    return member.sts.is_ordered and are_gone and is_alone


def replacements(plan: Plan) -> Sequence[ReplacePods]:
    return [action for action in plan.actions if isinstance(action, ReplacePods)]


def zone_of(case: Group, action: ReplacePods | RecordRevision) -> Zone:
    return next(member for member in case.zones if member.sts.uid == action.zone.uid)


@REPEATABLE
@given(groups())
def test_pods_that_serve_go_in_one_zone_and_only_while_all_others_are_whole(case: Group) -> None:
    """SI-01, SI-02, SEED-056, SEED-057; D-88: pods that do not go in all zones that are short."""
    moving = replacements(plan_group(case))
    for action in moving:
        others = [member for member in case.zones if member.sts.uid != action.zone.uid]
        if len(moving) > 1 or any(count_unavailable(case, member) for member in others):
            assert count_unavailable(case, zone_of(case, action))
            assert not any(may_serve(one.pod) for one in action.listed)


@REPEATABLE
@given(groups())
def test_only_owned_outdated_standing_pods_of_unpaused_sets_go(case: Group) -> None:
    """SI-06, SI-07."""
    for action in replacements(plan_group(case)):
        member = zone_of(case, action)
        assert member.sts.annotations.get("grafana.com/rollout-paused") in (None, "false", "No")
        for one in action.listed:
            assert one.pod in own_pods(member).values()
            assert one.pod.revision != member.sts.update_revision
            assert not one.pod.is_terminating
            assert case.deletions.get(one.pod.uid) is not Deletion.ACCEPTED
        for one in action.listed:
            is_healthy = one.reason.code is Code.POD_OUTDATED
            has_no_answer = case.deletions.get(one.pod.uid) is Deletion.UNKNOWN
            assert one.pod.is_ready is is_healthy or has_no_answer
        uids = [one.pod.uid for one in action.listed]
        assert len(uids) == len(set(uids))


@REPEATABLE
@given(groups())
def test_nothing_goes_while_a_member_is_not_what_it_must_be(case: Group) -> None:
    """SI-08."""
    plan = plan_group(case)
    sets = [member.sts for member in case.zones]
    wrong = [sts for sts in sets if sts.strategy != "OnDelete" or not sts.update_revision]
    behind = [sts for sts in sets if sts.observed_generation < sts.generation]
    if wrong or behind or any(sts.is_terminating for sts in sets):
        assert not plan.actions
    assert plan.failed <= bool(wrong)


@REPEATABLE
@given(groups())
def test_the_limit_is_never_crossed(case: Group) -> None:
    """SI-03, SI-04: all that may go at once is counted as gone."""
    for action in replacements(plan_group(case)):
        member = zone_of(case, action)
        limit, _ = choose_limit(member.sts)
        assert all(0 < share.room <= len(share.pods) for share in action.shares)
        healthy = sum(one.reason.code is Code.POD_OUTDATED for one in action.going)
        if healthy:
            assert count_unavailable(case, member) + healthy <= limit
        spared = [
            one.pod.uid
            for one in action.going
            if one.pod.is_ready and case.deletions.get(one.pod.uid) is Deletion.UNKNOWN
        ]
        if spared:
            unsure = sum(
                one.is_ready
                and not one.is_terminating
                and one.revision != member.sts.update_revision
                and case.deletions.get(one.uid) is Deletion.UNKNOWN
                for one in own_pods(member).values()
            )
            assert count_unavailable(case, member) - unsure + len(spared) <= limit
        ordinals = {one.uid: ordinal for ordinal, one in own_pods(member).items()}
        before = collect_in_flight(case, member)
        going = {ordinals[one.pod.uid] for one in action.going}
        if len(before | going) > max(limit, len(before)):
            assert len(going) == 1
            assert waits_for(case, member, before, *going)


@REPEATABLE
@given(groups())
def test_candidates_are_all_listed_in_natural_order(case: Group) -> None:
    """D-15, SORT-02."""
    for action in replacements(plan_group(case)):
        for share in action.shares:
            ordinals = [int(one.pod.name.rpartition("-")[2]) for one in share.pods]
            assert ordinals == sorted(ordinals)
        last = action.shares[-1].pods
        if last[0].reason.code is Code.POD_OUTDATED:
            member = zone_of(case, action)
            healthy = [
                one.uid
                for _, one in sorted(own_pods(member).items())
                if one.is_ready
                and not one.is_terminating
                and one.uid not in case.deletions
                and one.revision != member.sts.update_revision
            ]
            assert [one.pod.uid for one in last] == healthy


@REPEATABLE
@given(groups())
def test_only_a_whole_zone_without_outdated_pods_is_recorded(case: Group) -> None:
    """ROLL-39."""
    for action in plan_group(case).actions:
        if isinstance(action, RecordRevision):
            member = zone_of(case, action)
            assert count_unavailable(case, member) == 0
            assert {one.revision for one in own_pods(member).values()} <= {action.revision}
            assert action.revision == member.sts.update_revision != member.sts.current_revision


@REPEATABLE
@given(groups())
def test_every_plan_says_why(case: Group) -> None:
    """D-40: no way of not acting is without a reason, and reasons are sentences for people."""
    plan = plan_group(case)
    assert plan.actions or plan.waits
    texts = explain(plan)
    assert all(text and not text.endswith(".") and "\n" not in text for text in texts)
    reasons: list[Reason] = [*plan.waits, *plan.problems]
    assert {reason.text for reason in reasons} <= set(texts)
    assert plan.requeue_after is None or plan.requeue_after > timedelta(0)


@REPEATABLE
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_zones_and_pods_does_not_matter(case: Group, rng: Random) -> None:
    assert plan_group(replace(case, zones=shuffled(case.zones, rng))) == plan_group(case)


@REPEATABLE
@given(st.integers(0, 3), st.integers(0, 6))
def test_pods_of_no_zone_are_never_seen(letter: int, ordinal: int) -> None:
    """SI-06: a pod of another owner changes nothing, whatever its name and state."""
    base = zone("a", "pll", current="prev")
    stranger = pod("abcd"[letter], ordinal, "P", owner_uid=Uid("other"), uid="stray")
    crowded = replace(base, pods=(stranger, *base.pods))
    assert plan_group(group(crowded)) == plan_group(group(base))
