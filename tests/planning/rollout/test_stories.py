"""What a rollout does next, from a view of its group: a case a line, in the texts beside this file.

Without a verb a case shows the whole plan in short; `say` shows it in its own words, and how loud.
"""

import re
import shlex
from typing import Final

import pytest

from rollout_operator.model.objects import Decrease, Target, parse_ordinal
from rollout_operator.model.outcome import (
    Action,
    EqualPods,
    Plan,
    Reason,
    RecordRevision,
    ReplacePods,
    Verdict,
)
from rollout_operator.planning.downscales import assess_neighbours, choose_pods_to_prepare
from rollout_operator.planning.readiness import choose_limit, count_used, measure_readiness
from rollout_operator.planning.rollout import RolloutZone, plan_group, walk_zones, would_replace
from rollout_operator.planning.scaling import plan_scaling
from rollout_operator.planning.wording import explain
from tests.builders import NOW, group, pod, prev, sts
from tests.planning.scalings import codes, counts, delayed, snapshot
from tests.planning.tables import BUDGET_SENTENCES, read_group, shorten
from tests.stories import by_verb, check_tables

TARGET: Final = Target(port=80, path="p", service="svc")
PLAIN: Final = {"budget_used", "pods_starting", "zone_left_short"}
"""Codes whose sentence shows how many pods are down; they end in `not_ready`, too."""
BRIEF: Final = {
    **BUDGET_SENTENCES,
    "zone-": "",
    "Unschedulable": "no node",
    "CrashLoopBackOff": "crash",
    "container app not ready": "unready",
    r"has (\d+) of (\d+) pods ready": r"\1/\2",
    r"; b was deleted or left while .*": "",
    "; ": ", ",
}


def show_plan(text: str) -> str:
    return digest(plan_group(read_group(text)))


def digest(plan: Plan) -> str:
    lines = [_digest_action(action) for action in plan.actions]
    lines += [_digest_wait(wait) for wait in plan.waits]
    lines += [f"problem {one.code} {one.zone}".replace("zone-", "") for one in plan.problems]
    if plan.requeue_after is not None:
        lines.append(f"again {plan.requeue_after.total_seconds():g}s")
    return "; ".join([*lines, "failed"] if plan.failed else lines)


def _digest_action(action: Action) -> str:
    name = action.zone.name.removeprefix("zone-")
    if isinstance(action, RecordRevision):
        return f"record {name}"
    return f"{name}: {' and '.join(map(_digest_share, action.shares))}"


def _digest_share(share: EqualPods) -> str:
    code = share.pods[0].reason.code
    ordinals = " ".join(one.pod.name.rpartition("-")[2] for one in share.pods)
    return f"{share.room} of {'' if code == 'pod_outdated' else 'broken '}{ordinals}"


def _digest_wait(wait: Reason) -> str:
    if wait.code in PLAIN or wait.code.endswith("not_ready"):
        [said] = shorten([f"{wait.code}: {wait.text}"], BRIEF)
        return said
    named = re.findall(r"zone-(\w)\b", wait.text)
    return " ".join(dict.fromkeys([wait.code, *named]))


def show_say(text: str) -> str:
    plan = plan_group(read_group(text))
    return "\n".join(
        f"{one.severity} {one.code} {one.zone or 'all'}: {one.text}"
        + f"; always: {one.stable_text}" * bool(one.stable_text)
        for one in (*plan.waits, *plan.problems)
    )


def show_pods(text: str) -> str:
    return "\n".join(
        f"{one.reason.code}: {one.reason.text}"
        for action in plan_group(read_group(text)).actions
        if isinstance(action, ReplacePods)
        for one in action.listed
    )


def show_explain(text: str) -> str:
    first, *more = explain(plan_group(read_group(text)))
    return "\n".join([first, *(["..", *more[-3:]] if len(more) > 4 else more)])


def show_counts(text: str) -> str:
    return ", ".join(
        f"{one.zone}: {one.ready}/{one.desired} ready, {one.updated} updated,"
        f" {one.outdated} outdated"
        for one in plan_group(read_group(text)).progress or ()
    )


def show_pause(text: str) -> str:
    plans = {value: plan_group(group(prev("a", paused=value))) for value in shlex.split(text)}
    return ", ".join(dict.fromkeys(digest(plan) for plan in plans.values()))


def show_limit(text: str) -> str:
    value, _, replicas = text.rpartition(" ")
    annotations = {"rollout-max-unavailable": value} if value else {}
    limit, problem = choose_limit(sts("a", int(replicas), annotations=annotations))
    return f"{limit}" if problem is None else f"{limit}; {problem.severity} {problem.text}"


def show_other(text: str) -> str:
    """Show whether a pod that another operator deleted would have been."""
    name, _, rest = text.partition("; ")
    letter, _, ordinal = name.partition("-")
    return (
        "would go" if would_replace(read_group(rest), pod(letter, int(ordinal))) else "would stay"
    )


def show_walk(text: str) -> str:
    """Show the walk of zones of several StatefulSets: ` / ` is between zones."""
    limit, _, rest = text.partition("; ")
    zones = [
        RolloutZone(
            name=f"zone {place}",
            readinesses=tuple(measure_readiness(one, {}, NOW) for one in read_group(members).zones),
        )
        for place, members in enumerate(rest.split(" / "))
    ]
    found = walk_zones(zones, lambda sts: int(limit))
    texts = [_digest_action(action) for action in found.actions]
    texts += [f"{one.code}: {one.text}".replace("zone-", "") for one in found.waits]
    return "; ".join(texts)


def show_used(text: str) -> str:
    [only] = read_group(text).zones
    return f"{count_used(only)}"


def _judge(verdict: Verdict) -> str:
    *_, end = re.split(r"because |shutdown\. |replicas; ", verdict.reason.text)
    return f"{verdict.code or 'no code'} {verdict.reason.code}: {end}"


def _decrease(to: int) -> Decrease:
    return Decrease(
        resource="statefulsets", namespace="test", name="zone-a", replicas_from=5, replicas_to=to
    )


def show_neighbours(text: str) -> str:
    """Show what other zones say to a downscale of zone a from 5."""
    to, _, rest = text.partition("; ")
    seen = read_group(rest)
    verdict = assess_neighbours(_decrease(int(to)), seen.zones[0].sts, seen, {})
    return "go" if verdict is None else _judge(verdict)


def show_prepare(text: str) -> str:
    plan = choose_pods_to_prepare(_decrease(3), read_group(text).zones[0], TARGET, "cluster.local.")
    return _judge(plan) if isinstance(plan, Verdict) else f"{len(plan.endpoints)} pods are called"


def show_scale(text: str) -> str:
    """Show what becomes of zone b, which follows a resource with a delay."""
    scale, _, rest = text.partition("; ")
    scale, _, force = scale.partition(" force=")
    base = delayed("b", 5, force=force or None)
    [zone] = read_group(rest, base).zones
    plan = plan_scaling(snapshot(zone, scale=scale))
    assert all(one.is_exact for one in plan.scale)  # SI-09: for this version of the set only
    lines = [*(f"{name} to {count}" for name, count in counts(plan).items()), *codes(plan)]
    if plan.requeue_after is not None:
        lines.append(f"again {plan.requeue_after.total_seconds():g}s")
    return "; ".join(lines)


show = by_verb(globals(), show_plan)

test_case = check_tables(
    __file__, groups=show, newcomers=show, sentences=show, table=show, zones=show
)


@pytest.mark.parametrize("states", ["lll", "ppp", "lLl"])
def test_li_11_a_plan_reads_the_ordinal_of_each_pod_once(
    states: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the plan of a large zone goes into it; few zones have pods that were never ready."""
    read: list[str] = []

    def count(digits: str) -> int | None:
        read.append(digits)
        return parse_ordinal(digits)

    monkeypatch.setattr("rollout_operator.model.objects.parse_ordinal", count)
    plan_group(group(prev("a", states)))

    assert sorted(read) == ["0", "1", "2"]


def test_progress_is_no_part_of_the_decision() -> None:
    short, shorter = plan_group(read_group("zone a ll")), plan_group(read_group("zone a ll"))

    assert short == shorter
    assert short.progress is not None
