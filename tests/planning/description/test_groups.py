"""Groups, zones and pods as every outlet shows them, and whether one may move: `groups.txt`.

What else holds for all of them, whatever hostile objects hold, stands here.
"""

from dataclasses import replace as replace_plan
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest
from msgspec import structs

from rollout_operator.model.description import (
    GroupDescription,
    PodState,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Group, Zone
from rollout_operator.model.outcome import Code, Plan, Reason, Severity, render_path
from rollout_operator.planning.cards import build_group
from rollout_operator.planning.describe_groups import (
    MOST_LEFT,
    MOST_PODS,
    MOST_PODS_IN_ALL,
    MOST_REASONS,
    MOST_STEPS,
    describe_group,
    describe_zone,
    find_turn,
    measure_pace,
    share_pods,
)
from rollout_operator.planning.explain import explain_pod, explain_set
from rollout_operator.planning.readiness import Readiness, measure_readiness
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.wording import MAX_LINE
from tests.builders import NOW, group, pod, prev, unreadable, with_pods, zone
from tests.planning.description.card_stage import read_card
from tests.planning.tables import read_group
from tests.stories import Stage, check_stories

OLD: Final = NOW - timedelta(days=3)
BEFORE: Final = NOW - timedelta(minutes=1)
CODES: Final = {f"{code}": code for code in Code}
SIGNS: Final = {Severity.DEBUG: "~", Severity.INFO: ""}


class GroupStage(Stage):
    """A group; `old; ` before it makes its pods three days old, but for those with an age."""

    def __init__(self) -> None:
        self.seen, self.plan = group(), Plan(group=GroupName("ingester"))

    async def act(self, line: str) -> str:
        word, _, rest = line.partition(": ")
        match word:
            case "explain":
                return self._explain(rest)
            case "page":
                return "\n".join(read_card(build_group(describe(self.seen, self.plan))))
            case "later":  # it was decided before
                self.seen = read(rest)
            case "decided" | "alone":  # other waits, beside what goes or alone
                failed = rest.endswith(" failed")
                waits = [CODES[one] for one in rest.removesuffix(" failed").split()]
                texts = tuple(Reason(one, f"because of {one}") for one in waits)
                known = self.plan if word == "decided" else Plan(group=self.seen.name)
                self.plan = replace_plan(known, waits=texts, failed=failed)
            case "zone":
                found = (_describe_zone(one, self.seen) for one in self.seen.zones)
                return "; ".join(map(show_zone, found))
            case "turn":
                turn = find_turn([_measure(one, self.seen) for one in read(rest).zones])
                return "none" if turn is None else turn.sts.name
            case "pace":
                pace = measure_pace(read(rest))
                return " to ".join(map(_show_minutes, (pace.began, pace.expected_end)))
            case "share":
                shares = {zones: share_pods(zones) for zones in map(int, rest.split())}
                most = {many: max(MOST_PODS_IN_ALL, many) for many in shares}
                assert all(many * each <= most[many] for many, each in shares.items())
                return " ".join(map(str, shares.values()))
            case _:
                self.seen = read(line)
                self.plan = plan_group(self.seen)
                check(self.seen, self.plan)
        return show(describe(self.seen, self.plan))

    def _explain(self, name: str) -> str:
        found = explain_pod(self.seen, self.plan, name) or explain_set(self.seen, self.plan, name)
        if found is None:
            return "nothing"
        conditions = [f"first {one.code}: {one.text}" for one in found.conditions]
        return "; ".join([f"{found.answer} [{found.code}]", *conditions])


def read(text: str) -> Group:
    found = read_group(text.removeprefix("old; "))
    return _age(found) if text.startswith("old; ") else found


def _age(base: Group) -> Group:
    zones = (
        structs.replace(
            one, pods=tuple(structs.replace(each, created=each.created or OLD) for each in one.pods)
        )
        for one in base.zones
    )
    return structs.replace(base, zones=tuple(zones))


def describe(snapshot: Group, plan: Plan | None = None) -> GroupDescription:
    return describe_group(snapshot, plan or plan_group(snapshot), NOW)


def _measure(base: Zone, snapshot: Group) -> Readiness:
    return measure_readiness(base, snapshot.deletions, NOW)


def _describe_zone(base: Zone, snapshot: Group) -> ZoneDescription:
    return describe_zone(base, _measure(base, snapshot), snapshot, is_busy=False)


def check(snapshot: Group, plan: Plan) -> None:
    """Check what holds in every state (D-75).

    The same goes through JSON and back; the order of zones and pods does not matter; a pod goes
    exactly where the plan lets it, and one that waits has a condition.
    """
    described = describe(snapshot, plan)
    body = msgspec.json.encode(described)
    assert msgspec.json.decode(body, type=GroupDescription) == described
    zones = tuple(structs.replace(one, pods=one.pods[::-1]) for one in reversed(snapshot.zones))
    assert describe(structs.replace(snapshot, zones=zones)) == described
    going = {one.pod.name for action in plan.actions for one in getattr(action, "going", ())}
    for each in (one.name for member in snapshot.zones for one in member.pods):
        answer = explain_pod(snapshot, plan, each)
        assert answer is not None
        assert answer.may_go is (each in going)
        waits = answer.answer.endswith("it cannot go yet") or answer.code is Code.REVISION_EMPTY
        assert bool(answer.conditions) is waits, each


def show(found: GroupDescription) -> str:
    """Return phase, headline, zones, steps and waits, a `!` where a person can do something."""
    first = [f"{found.phase}: {found.code or found.headline}"]
    first += [_show_zone(one) for one in found.zones]
    if found.began or found.expected_end:
        first.append(f"from {_show_minutes(found.began)} to {_show_minutes(found.expected_end)}")
    first += [f"{'next' if one.is_waiting else 'now'} {one.pod or one.zone}" for one in found.steps]
    first += [_show_wait(one) for one in found.waits]
    first += [f"odd {_show_wait(one)}" for one in found.problems]
    first += [f"downscale of {found.downscale.zone}"] if found.downscale else []
    return "; ".join(first).replace("zone-", "")


def _show_wait(one: Waiting) -> str:
    sign = SIGNS.get(one.severity, f"{one.severity} ")
    return f"{sign}{one.code}{'!' * bool(one.remedy)} {one.zone}".rstrip()


def _show_zone(one: ZoneDescription) -> str:
    """Return a zone such as `a* 2/3 ready 1 new (1 starting)`."""
    pods = [f"{each.ordinal} {each.state}" for each in one.pods if each.state != "ready"]
    signs = "*" * one.is_busy + " paused" * one.is_paused
    counts = f"{one.ready}/{one.desired} ready {one.updated} new"
    more = ["more"] * (len(pods) > 3)
    down = f" ({', '.join([*pods[:3], *more])})" if pods else ""
    return f"{one.name}{signs} {counts}{down}"


def show_zone(one: ZoneDescription) -> str:
    """Return a zone with what is known of each of its pods."""
    pods = [
        " ".join(filter(None, [f"{each.ordinal}", each.revision, each.state, each.why]))
        + f" since {_show_minutes(each.since)}" * (each.since is not None)
        for each in one.pods
    ]
    counts = f"{one.ready}/{one.desired} ready, {one.updated} new, {one.outdated} outdated"
    return "; ".join([f"{counts}, at most {one.max_unavailable}", *pods])


def _show_minutes(time: datetime | None) -> str:
    return "?" if time is None else f"{(time - NOW) / timedelta(minutes=1):g}"


test_story = check_stories(__file__, groups=GroupStage)


def test_a_reason_comes_with_what_to_do_and_where_it_is_explained() -> None:
    [wait] = describe(group(prev("a", paused="true"), zone("b"))).waits
    assert (wait.remedy, wait.link) == (Code.PAUSED.remedy, render_path(Code.PAUSED))


def test_times_of_the_decision_are_kept() -> None:
    snapshot = group(prev("a"), prev("b"))
    wait = Reason(Code.ZONE_NOT_READY, "as it was before")
    plan = replace_plan(plan_group(snapshot), waits=(wait,))

    described = describe_group(snapshot, plan, NOW, BEFORE, is_underway=True)

    assert (described.since, described.looked, described.underway_since) == (BEFORE, NOW, NOW)
    text = "zone-a-0 is at revision prev, zone-a wants last"
    step = Step(code=Code.POD_OUTDATED, text=text, zone="zone-a", pod="zone-a-0")
    assert (described.steps, [one.text for one in described.waits]) == ((step,), [wait.text])
    stays = read_group("prev a -pp; prev b")  # a pod that does not come back
    shown = (describe_group(stays, plan_group(stays), NOW, since) for since in (BEFORE, OLD))
    assert [one.phase for one in shown] == ["rolling out", "waiting"]


def test_what_only_the_acting_process_knows_comes_with_its_plan() -> None:
    snapshot = group(prev("a"), prev("b"))
    refused = Reason(Code.DISRUPTION_BUDGET_USED, "1 pod of store is down", zone="zone-a")
    elsewhere = Reason(Code.DELETE_REFUSED, "refused", zone="zone-b")
    plan = Plan(group=snapshot.name, waits=(refused, elsewhere))

    answer = explain_pod(snapshot, plan, "zone-a-0")

    assert answer is not None
    assert not answer.may_go
    assert [one.text for one in answer.conditions] == ["1 pod of store is down"]


HOSTILE: Final = {
    "huge replicas": zone("a", "lL", replicas=2**31 - 1, first_ordinal=2**31 - 1),
    "pods of one name": structs.replace(
        zone("a", "l"), pods=tuple(pod("a", 0, "p", uid=f"uid-{n}") for n in range(300))
    ),
    "names that are none": structs.replace(
        zone("a", "l"),
        pods=tuple(pod("a", 0, name=name) for name in ("zone-a-", "zone-a-x", "", "zone-a-01")),
    ),
    "unreadable pods": structs.replace(
        zone("a", "-" * 300),
        unreadable_pods=tuple(unreadable("Pod", f"zone-a-{n}", owner="a") for n in range(300)),
    ),
    "long texts": with_pods(
        zone("a", "LLL", limit="\x00" * 10**5, paused="y" * 10**5), why_not_ready="\u202e" * 10**5
    ),
    "many outdated": zone("a", "p" * 300, limit="300", ready=300, current="prev"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_bounded(name: str) -> None:
    """D-68, SEC-13."""
    described = describe(group(HOSTILE[name], prev("b")))

    assert len(described.waits) <= MOST_REASONS + 1
    assert len(described.problems) <= MOST_REASONS + 1
    assert len(described.steps) <= MOST_STEPS
    texts = [described.headline, *(each.text for each in (*described.waits, *described.problems))]
    texts += [each.why for one in described.zones for each in one.pods]
    assert max(map(len, texts)) <= MAX_LINE + 1
    assert len(msgspec.json.encode(described)) < 200_000
    assert all(line.isprintable() for line in read_card(build_group(described)))


def test_of_many_reasons_the_rest_is_counted() -> None:
    described = describe(group(HOSTILE["unreadable pods"]))

    assert [one.text for one in described.problems][-1] == "and 200 more"


def test_a_huge_zone_is_cut() -> None:
    """D-68: neither size nor work goes with `spec.replicas`."""
    huge = group(zone("a", "ll", replicas=2**31 - 1, first_ordinal=7))
    found = _describe_zone(huge.zones[0], huge)

    assert found.desired == 2**31 - 1
    assert [one.ordinal for one in found.pods] == [*range(7, 7 + MOST_PODS)]
    assert {one.state for one in found.pods} == {PodState.MISSING}


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_impossible_ages_are_no_error(at: datetime) -> None:
    for old, new in ((at, NOW), (NOW, at), (at, at)):
        snapshot = group(
            with_pods(prev("a"), created=old), with_pods(zone("b", current="prev"), created=new)
        )
        end = measure_pace(snapshot).expected_end
        assert end is None or end - NOW <= MOST_LEFT
