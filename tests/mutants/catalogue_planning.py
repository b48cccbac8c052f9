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
        name="one-pod-more-than-the-limit",
        old="room = limit - unavailable\n",
        new="room = limit - unavailable + 1\n",
        breaks="SI-04: < for <=, in the room for healthy pods",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="broken-pods-cost-budget",
        old="elif below + down_pod.gaps_below < limit:",
        new="elif readiness.unavailable < limit:",
        breaks="LI-10: a broken revision keeps its own fix away",
        scenarios=("s4",),
    ),
    Mutant(
        name="names-forgotten-with-their-set",
        old="end = self._past.take(sts.namespace, sts.name, now)",
        new="end = 0 * self._past.take(sts.namespace, sts.name, now)",
        breaks="SI-02, SI-03: what a deleted set had is taken for new when it is created again",
        scenarios=("s14-watched",),
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
    ),
    Mutant(
        name="paused-zone-skipped-before-its-ready-check",
        old="    short = [zone for zone in zones if not zone.is_whole]\n",
        new=(
            "    short = [\n        zone\n        for zone in zones\n        if not zone.is_whole\n"
            "        and not any(is_paused(one.sts) for one in zone.readinesses)\n    ]\n"
        ),
        breaks="SI-02: a paused zone that is short does not stop the others",
        scenarios=("walk",),
    ),
    Mutant(
        name="pause-ignored",
        old="return not is_paused(readiness.sts) and bool(count_outdated(readiness))",
        new="return bool(count_outdated(readiness))",
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
        old="    elif short:\n        _walk_short(",
        new=(
            "    elif short and any(map(count_outdated, short[0].readinesses)):\n"
            "        _walk_short("
        ),
        breaks="SI-02: a zone that is short and rolled out does not hold the others back",
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
        old="    elif not readiness.is_whole or readiness.used < sts.replicas:\n",
        new=(
            "    elif readiness.used < sts.replicas or (\n        not readiness.is_whole"
            " and sts.current_revision == sts.update_revision\n    ):\n"
        ),
        breaks="ROLL-39: the revision is recorded while pods are still starting",
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
        breaks="LI-01: with spec.ordinals.start the wrong pods are read",
        scenarios=("walk",),
    ),
    Mutant(
        name="downscale-does-not-hold-the-rollout-back",
        old="if group.downscale is not None:\n        # A rollout",
        new="if group.downscale is not None and not group.zones:\n        # A rollout",
        breaks="SI-02: pods are replaced while a zone is about to lose others (D-25)",
        scenarios=("both", "both-small"),
    ),
)
