"""Mutants of the decisions of a rollout: `model` and `planning`."""

from typing import Final

from tests.mutants.entry import Mutant

PLANNING: Final = (
    Mutant(
        name="budget-from-status-only",
        file="planning/readiness.py",
        old="return max(self.seen_down, self.status_short)",
        new="return self.status_short",
        breaks="SI-03, SI-04: a controller that lags counts pods that are gone",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="budget-from-pods-only",
        file="planning/readiness.py",
        old="return max(self.seen_down, self.status_short)",
        new="return self.seen_down",
        breaks="SI-02, SI-03: the more pessimistic of both views counts (D-11), the status as well",
        unseen=(
            "the live list of pods that precedes each delete never lacks a pod here: the status is "
            "a second witness against a list that does"
        ),
        units="tests/planning/test_planning_properties.py",
    ),
    Mutant(
        name="one-pod-more-than-the-limit",
        file="planning/pods.py",
        old="room = limit - look.unavailable\n",
        new="room = limit - look.unavailable + 1\n",
        breaks="SI-04: < for <=, in the room for healthy pods",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="fallen-pods-are-free",
        file="planning/pods.py",
        old="return _share(look, pods, limit - in_flight)",
        new="return _share(look, pods, len(pods))",
        breaks="SI-04: pods that broke by themselves are deleted beside those in flight",
        scenarios=("s4", "walk"),
        units="tests/planning/test_planning_broken.py",
    ),
    Mutant(
        name="broken-pods-cost-budget",
        file="planning/pods.py",
        old="elif below + one.gaps_below < limit:",
        new="elif look.unavailable < limit:",
        breaks="LI-10: a broken revision keeps its own fix away",
        scenarios=("s4",),
    ),
    Mutant(
        name="fix-waits-above-a-gap",
        file="planning/pods.py",
        old="return _is_in_flight(sts, one) and not is_gone and not is_broken",
        new="return _is_in_flight(sts, one) and not is_gone",
        breaks="LI-10: the lowest pod of an ordered set waits for one that nothing mends before it",
        unseen=(
            "in no scenario does a pod that was up break below a gap and one that never was ready"
        ),
        units="tests/planning/test_planning_every_state.py",
    ),
    Mutant(
        name="healthy-pods-beside-broken-ones",
        file="planning/pods.py",
        old="room = limit - look.unavailable\n",
        new="room = limit - (look.unavailable - len(broken))\n",
        breaks="SI-03: healthy pods go while broken ones use the budget up",
        scenarios=("s4",),
    ),
    Mutant(
        name="terminating-counts-as-ready",
        file="planning/readiness.py",
        old="        if why is not None:\n            gaps",
        new="        if why not in (None, Why.TERMINATING):\n            gaps",
        breaks="SI-01, SI-04: a pod on its way out is not missed",
        scenarios=("s1", "s2"),
    ),
    Mutant(
        name="missing-pods-ignored",
        file="planning/readiness.py",
        old="missing=sts.replicas - len(seats),",
        new="missing=0,",
        breaks="SI-02, SI-04: an ordinal without a pod is not missed",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="no-containers-is-ready",
        file="model/trouble.py",
        old='status.phase == "Running" and containers and all(',
        new='status.phase == "Running" and all(',
        breaks="SI-02, SI-03: a pod without container statuses counts as ready (D-11)",
        scenarios=("s1",),
        unseen=(
            "a kubelet writes condition and container statuses at once, and so does the simulated "
            "one: only other writers can leave a ready pod without them"
        ),
        units="tests/model/test_trouble.py",
    ),
    Mutant(
        name="pending-counts-as-ready",
        file="planning/readiness.py",
        old="    if not pod.is_ready:\n",
        new="    if not pod.is_ready and pod.was_ready:\n",
        breaks="SI-02, SI-04: a pod that has just been made counts as up",
        scenarios=("s3",),
    ),
    Mutant(
        name="min-ready-seconds-ignored",
        file="planning/readiness.py",
        old="    if not patience:\n        return None\n    since",
        new="    if patience >= timedelta(0):\n        return None\n    since",
        breaks="SI-02, SI-03: ready is not available (D-11)",
        scenarios=("s2", "s2-small"),
        unseen="the status counts available pods as well: a second witness, which lags little",
        units="tests/planning/test_planning_properties.py",
    ),
    Mutant(
        name="generation-check-off",
        file="planning/zones.py",
        old="        if sts.observed_generation < sts.generation:\n            text = (",
        new="        if sts.observed_generation < 0:\n            text = (",
        breaks="SI-08: the update revision is that of the template before",
        scenarios=("s2", "walk"),
        storm="late controller",
        units="tests/planning/test_planning_group.py",
    ),
    Mutant(
        name="paused-zone-skipped-before-its-ready-check",
        file="planning/group.py",
        old="for zone in zones)\n    steps = _plan_zones(looks)",
        new="for zone in zones)\n"
        "    steps = _plan_zones([look for look in looks if not is_paused(look.sts)])",
        breaks="SI-02: a paused zone that is short does not stop the others",
        scenarios=("walk",),
    ),
    Mutant(
        name="pause-ignored",
        file="planning/group.py",
        old="    if is_paused(sts):\n        return _Steps(waits=_find_paused([look]))\n",
        new="",
        breaks="SI-07: pods of a paused zone are deleted",
        scenarios=("walk",),
    ),
    Mutant(
        name="strategy-of-the-first-set-only",
        file="planning/zones.py",
        old="        for sts in sets\n        if sts.strategy != ON_DELETE",
        new="        for sts in tuple(sets)[:1]\n        if sts.strategy != ON_DELETE",
        breaks="SI-08: another set replaces its pods by itself at the same time",
        scenarios=("walk",),
    ),
    Mutant(
        name="two-short-zones-go-on",
        file="planning/group.py",
        old="if len(short) > 1:",
        new="if len(short) > 2:",
        breaks="SI-02: one of two short zones is worked on",
    ),
    Mutant(
        name="short-zone-without-work-ignored",
        file="planning/group.py",
        old="    if short:\n",
        new="    if short and count_outdated(short[0]):\n",
        breaks="SI-02: a zone that is short and rolled out does not hold the others back",
    ),
    Mutant(
        name="several-zones-at-once",
        file="planning/group.py",
        old="        if steps.stays:\n            break\n",
        new="",
        breaks="SI-01: all whole zones lose pods at the same time",
        scenarios=("s1", "s2"),
        unseen=(
            "each zone's deletes are compared with a live look of their own, and in it the zone "
            "before is short"
        ),
        units="tests/planning/test_planning_group.py",
    ),
    Mutant(
        name="rollback-not-seen",
        file="planning/pods.py",
        old="healthy = [pod for pod in look.standing if pod.revision != revision]",
        new="healthy = [pod for pod in look.standing if pod.revision == look.sts.current_revision]",
        breaks="SI-07: after a rollback the pods that are right are deleted",
        scenarios=("s2", "walk"),
    ),
    Mutant(
        name="revision-recorded-too-early",
        file="planning/group.py",
        old="    if not look.is_whole:\n        wait",
        new="    if not look.is_whole and sts.current_revision == sts.update_revision:\n"
        "        wait",
        breaks="ROLL-39: the revision is recorded while pods are still starting",
        units="tests/planning/test_planning_properties.py",
    ),
    Mutant(
        name="percentage-rounded-up",
        file="model/units.py",
        old="self.number * replicas // 100)",
        new="-(-self.number * replicas // 100))",
        breaks="SI-03: half of three pods are two",
        scenarios=("walk",),
    ),
    Mutant(
        name="ordinals-from-zero",
        file="model/objects.py",
        old="return range(self.first_ordinal, self.first_ordinal + self.replicas)",
        new="return range(self.replicas)",
        breaks="LI-01: with spec.ordinals.start the wrong pods are looked at",
        scenarios=("walk",),
    ),
    Mutant(
        name="downscale-does-not-hold-the-rollout-back",
        file="planning/zones.py",
        old="    if group.downscale is None:\n",
        new="    if group.downscale is None or group.zones:\n",
        breaks="SI-02: pods are replaced while a zone is about to lose others (D-25)",
        scenarios=("both", "both-small"),
        units="tests/planning/test_planning_group.py",
    ),
)
