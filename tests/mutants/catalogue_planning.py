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
        old="room = limit - look.unavailable\n",
        new="room = limit - look.unavailable + 1\n",
        breaks="SI-04: < for <=, in the room for healthy pods",
        scenarios=("s2", "s1"),
    ),
    Mutant(
        name="fallen-pods-are-free",
        old="return _share(look, pods, limit - in_flight)",
        new="return _share(look, pods, len(pods))",
        breaks="SI-04: pods that broke by themselves are deleted beside those in flight",
        scenarios=("s4", "walk"),
        units="tests/planning/rollout/test_broken.py",
    ),
    Mutant(
        name="broken-pods-cost-budget",
        old="elif below + one.gaps_below < limit:",
        new="elif look.unavailable < limit:",
        breaks="LI-10: a broken revision keeps its own fix away",
        scenarios=("s4",),
    ),
    Mutant(
        name="fix-waits-above-a-gap",
        old="return _is_in_flight(sts, one) and not is_gone and not is_broken",
        new="return _is_in_flight(sts, one) and not is_gone",
        breaks="LI-10: the lowest pod of an ordered set waits for one that nothing mends before it",
        unseen=(
            "in no scenario does a pod that was up break below a gap and one that never was ready"
        ),
        units="tests/planning/rollout/test_every_state.py",
    ),
    Mutant(
        name="newcomers-hold-everybody",
        old="return sts.replicas if sts.ready_replicas > used else used",
        new="return sts.replicas",
        breaks="LI-01, LI-02, LI-10: pods without room keep all zones from going back (D-67)",
        scenarios=("s12", "s12-small"),
        unseen="people do what the refusal says, and take the label off",
        units="tests/planning/rollout/test_newcomers.py",
    ),
    Mutant(
        name="unseen-pods-taken-for-newcomers",
        old="is_new = pod.uid in seen.pods",
        new="is_new = True",
        breaks="SI-02, SI-03: a pod that nothing is known of is taken for one that holds nothing",
        scenarios=("s12", "s12-small"),
        unseen="no pod comes between the cached and the live picture that is not seen soon",
        units="tests/planning/rollout/test_newcomers.py",
    ),
    Mutant(
        name="newcomers-without-settling",
        old="seen.used >= sts.replicas or seen.settles_in or",
        new="seen.used >= sts.replicas or",
        breaks="SI-02, SI-10: ordinals that come and go count as never used",
        scenarios=("s12", "s12-small"),
        unseen="the guard alone already counts what goes and comes back as used",
        units="tests/planning/rollout/test_newcomers.py",
    ),
    Mutant(
        name="ready-newcomers-stay-new",
        old="return isinstance(pod, Unreadable) or pod.is_ready or pod.was_ready",
        new="return isinstance(pod, Unreadable)",
        breaks="SI-02, SI-03: the successor of a new pod that was ready is taken for new",
        scenarios=("s12", "s12-small"),
        unseen="no successor of a pod that was ready waits for room in any scenario",
        units="tests/guards/downscales/test_newcomers.py",
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
        name="fights-make-newcomers",
        old="if now - seen.lost_at < SETTLING or",
        new="if now < seen.lost_at or",
        breaks="SI-02, SI-10: pods that come back a moment later are taken for new",
        scenarios=("s5-contested", "s12"),
        units="tests/guards/downscales/test_newcomers.py",
        unseen="nothing rests there for the settling time either",
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
        name="spoilt-events-are-no-gap",
        old="if is_renamed or isinstance(old, Unreadable) or not seen.is_next(new):",
        new="if is_renamed or not (isinstance(old, Unreadable) or seen.is_next(new)):",
        breaks="SI-02, SI-03: what a set wanted while it could not be read is taken for nothing",
        scenarios=("s14-watched",),
        unseen="no set changes twice while it cannot be read",
        units="tests/guards/downscales/test_newcomers_memory.py",
    ),
    Mutant(
        name="healthy-pods-beside-broken-ones",
        old="room = limit - look.unavailable\n",
        new="room = limit - (look.unavailable - len(broken))\n",
        breaks="SI-03: healthy pods go while broken ones use the budget up",
        scenarios=("s4",),
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
        name="min-ready-seconds-ignored",
        old="    if not patience:\n        return None\n    since",
        new="    if patience >= timedelta(0):\n        return None\n    since",
        breaks="SI-02, SI-03: ready is not available (D-11)",
        scenarios=("s2", "s2-small"),
        unseen="the status counts available pods as well: a second witness, which lags little",
        units="tests/planning/rollout/test_properties.py",
    ),
    Mutant(
        name="generation-check-off",
        old="        if is_behind(sts):\n            yield",
        new="        if sts.observed_generation < 0:\n            yield",
        breaks="SI-08: the update revision is that of the template before",
        scenarios=("s2", "walk"),
        storm="late controller",
        units="tests/planning/rollout/test_plan.py",
    ),
    Mutant(
        name="paused-zone-skipped-before-its-ready-check",
        old="for zone in zones)\n    steps = _plan_zones(looks)",
        new="for zone in zones)\n"
        "    steps = _plan_zones([look for look in looks if not is_paused(look.sts)])",
        breaks="SI-02: a paused zone that is short does not stop the others",
        scenarios=("walk",),
    ),
    Mutant(
        name="pause-ignored",
        old="    if is_paused(sts):\n        return _Steps(waits=_find_paused([look]))\n",
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
        old="    if short:\n",
        new="    if short and count_outdated(short[0]):\n",
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
        old="healthy = [pod for pod in look.standing if pod.revision != revision]",
        new="healthy = [pod for pod in look.standing if pod.revision == look.sts.current_revision]",
        breaks="SI-07: after a rollback the pods that are right are deleted",
        scenarios=("s2", "walk"),
    ),
    Mutant(
        name="revision-recorded-too-early",
        old="    if not look.is_whole or look.used < sts.replicas:\n",
        new="    is_settled = sts.current_revision == sts.update_revision\n"
        "    if (not look.is_whole and is_settled) or look.used < sts.replicas:\n",
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
)
