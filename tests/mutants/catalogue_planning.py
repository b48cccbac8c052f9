"""Mutants of the decisions of a rollout: `model` and `planning`."""

from typing import Final

from tests.mutants.entry import Mutant

PLANNING: Final = (
    Mutant(
        name="budget-from-status-only",
        old="return max(self.seen_down, self.status_short)",
        new="return self.status_short",
        breaks="SI-03, SI-04: a controller that lags counts pods that are gone",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="budget-from-pods-only",
        old="return max(self.seen_down, self.status_short)",
        new="return self.seen_down",
        breaks="SI-02, SI-03: the more pessimistic of both views counts (D-11), the status as well",
        unseen=(
            "the live list of pods that precedes each delete never lacks a pod here: the status is "
            "a second witness against a list that does"
        ),
        units="tests/planning/rollout/test_properties.py",
    ),
    Mutant(
        name="one-pod-more-than-the-limit",
        old="room = limit - readiness.unavailable\n",
        new="room = limit - readiness.unavailable + 1\n",
        breaks="SI-04: < for <=, in the room for healthy pods",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="broken-pods-cost-budget",
        old="elif below + one.gaps_below < limit:",
        new="elif readiness.unavailable < limit:",
        breaks="LI-10: a broken revision keeps its own fix away",
        scenarios=("s4",),
    ),
    Mutant(
        name="gaps-are-not-seen",
        old="gap > LONGEST_GAP\n",
        new="gap < timedelta(0)\n",
        breaks="SI-02, SI-03: what came in a gap is taken for what follows an upscale",
        scenarios=("s12", "s12-small"),
        units="tests/guards/downscales/test_newcomers.py",
        unseen="no pod comes, becomes ready and goes while the watches are blind",
    ),
    Mutant(
        name="names-forgotten-with-their-set",
        old="end = self._past.take(sts.namespace, sts.name, now)",
        new="end = 0 * self._past.take(sts.namespace, sts.name, now)",
        breaks="SI-02, SI-03: what a deleted set had is taken for new when it is created again",
        scenarios=("s14-watched",),
        units="tests/guards/downscales/test_newcomers_memory.py",
    ),
    Mutant(
        name="terminating-counts-as-ready",
        old="        if why is not None:\n            gaps",
        new="        if why not in (None, DownCause.TERMINATING):\n            gaps",
        breaks="SI-01, SI-04: a pod on its way out is not missed",
        scenarios=("s1", "s2"),
    ),
    Mutant(
        name="missing-pods-ignored",
        old="missing=used - len(held),",
        new="missing=0,",
        breaks="SI-02, SI-04: an ordinal without a pod is not missed",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="no-containers-is-ready",
        old='status.phase == "Running" and containers and all(',
        new='status.phase == "Running" and all(',
        breaks="SI-02, SI-03: a pod without container statuses counts as ready (D-11)",
        scenarios=("s1",),
        unseen=(
            "a kubelet writes condition and container statuses at once, and so does the simulated "
            "one: only other writers can leave a ready pod without them"
        ),
        units="tests/model/decode/test_not_ready.py",
    ),
    Mutant(
        name="pending-counts-as-ready",
        old="    if not pod.is_ready:\n",
        new="    if not pod.is_ready and pod.was_ready:\n",
        breaks="SI-02, SI-04: a pod that has just been made counts as up",
        scenarios=("s3",),
    ),
    Mutant(
        name="generation-check-off",
        old="        if is_behind(sts):\n            yield",
        new="        if sts.observed_generation < 0:\n            yield",
        breaks="SI-08: the update revision is that of the template before",
        scenarios=("s2", "walk"),
        profile="late controller",
        units="tests/planning/rollout/test_plan.py",
    ),
    Mutant(
        name="paused-zone-skipped-before-its-ready-check",
        old="    steps = _plan_zones(readinesses)\n",
        new="    steps = _plan_zones([one for one in readinesses if not is_paused(one.sts)])\n",
        breaks="SI-02: a paused zone that is short does not stop the others",
        scenarios=("walk",),
    ),
    Mutant(
        name="pause-ignored",
        old="    if is_paused(sts):\n        return _Steps(waits=_find_paused([readiness]))\n",
        new="",
        breaks="SI-07: pods of a paused zone are deleted",
        scenarios=("walk",),
    ),
    Mutant(
        name="strategy-of-the-first-set-only",
        old="    for sts in sets:\n        if sts.strategy != ON_DELETE",
        new="    for sts in tuple(sets)[:1]:\n        if sts.strategy != ON_DELETE",
        breaks="SI-08: another set replaces its pods by itself at the same time",
        scenarios=("walk",),
    ),
    Mutant(
        name="short-zone-without-work-ignored",
        old="    if short:\n        return _plan_short_zone(",
        new="    if short and count_outdated(short[0]):\n        return _plan_short_zone(",
        breaks="SI-02: a zone that is short and rolled out does not hold the others back",
    ),
    Mutant(
        name="several-zones-at-once",
        old="        if steps.stays:\n            break\n",
        new="",
        breaks="SI-01: all whole zones lose pods at the same time",
        scenarios=("s1", "s2"),
        unseen=(
            "each zone's deletes are compared with a live look of their own, and in it the zone "
            "before is short"
        ),
        units="tests/planning/rollout/test_plan.py",
    ),
    Mutant(
        name="rollback-not-seen",
        old="healthy = [pod for pod in readiness.standing if pod.revision != revision]",
        new=(
            "healthy = [\n        pod for pod in readiness.standing"
            " if pod.revision == readiness.sts.current_revision\n    ]"
        ),
        breaks="SI-07: after a rollback the pods that are right are deleted",
        scenarios=("s2", "walk"),
    ),
    Mutant(
        name="revision-recorded-too-early",
        old="    if not readiness.is_whole or readiness.used < sts.replicas:\n",
        new="    is_settled = sts.current_revision == sts.update_revision\n"
        "    if (not readiness.is_whole and is_settled) or readiness.used < sts.replicas:\n",
        breaks="ROLL-39: the revision is recorded while pods are still starting",
        units="tests/planning/rollout/test_properties.py",
    ),
    Mutant(
        name="percentage-rounded-up",
        old="self.number * replicas // 100)",
        new="-(-self.number * replicas // 100))",
        breaks="SI-03: half of three pods are two",
        scenarios=("walk",),
    ),
    Mutant(
        name="ordinals-from-zero",
        old="return range(self.first_ordinal, self.first_ordinal + self.replicas)",
        new="return range(self.replicas)",
        breaks="LI-01: with spec.ordinals.start the wrong pods are looked at",
        scenarios=("walk",),
    ),
    Mutant(
        name="downscale-does-not-hold-the-rollout-back",
        old="if group.downscale is not None:\n        # A rollout",
        new="if group.downscale is not None and not group.zones:\n        # A rollout",
        breaks="SI-02: pods are replaced while a zone is about to lose others (D-25)",
        scenarios=("both", "both-small"),
        units="tests/planning/rollout/test_plan.py",
    ),
    Mutant(
        name="min-ready-seconds-ignored",
        old="    if not patience:\n        return None\n    since",
        new="    if patience >= timedelta(0):\n        return None\n    since",
        breaks="SI-02, SI-03: ready is not available (D-11)",
        scenarios=("s2", "s2-small"),
        unseen="the status counts available pods as well: a second witness, which lags little",
        units="tests/planning/rollout/test_properties.py",
    ),
)
