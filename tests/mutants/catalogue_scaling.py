"""Mutants of replicas that move by themselves: `scaling` of `planning` and `controllers`."""

from typing import Final

from tests.mutants.entry import CONTESTED, EDITED, FOLLOWING, MIRRORING, Mutant

SCALING: Final = (
    Mutant(
        name="scaled-down-on-the-cache",
        old="            live = await self.observer.observe_live(group)\n",
        new="            live = group\n",
        breaks="SI-09, SI-02, SCALE-05: a downscale rests on a cache that lags",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="memory-outlives-its-record",
        old="        return since is not None and not is_older(version, than=since)\n",
        new="        return since is not None and not version\n",
        breaks="LI-01: a zone waits though a person has set the time of another one back (D-66)",
        scenarios=EDITED,
    ),
    Mutant(
        name="nothing-bridges-to-a-record",
        old="            if uid in self._times and not self._is_shown(uid, version)\n",
        new="            if uid in self._times and not version\n",
        breaks="SI-11: a view of before the record says that nothing was scaled down",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="contest-never-noticed",
        old="            self.contests.record(action)\n",
        new="            pass\n",
        breaks="LI-11: a count that something else puts back is written as fast as that allows",
        scenarios=CONTESTED,
    ),
    Mutant(
        name="contest-fought-for-ever",
        old="REWRITES: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))",
        new="REWRITES: Final = Backoff(first=timedelta(seconds=10), most=timedelta(seconds=10))",
        breaks="LI-11: it is written six times a minute, however long the contest lasts",
        scenarios=CONTESTED,
    ),
    Mutant(
        name="follows-in-a-rollout",
        old="        if readiness.unavailable and is_moving:\n",
        new="        if readiness.unavailable and is_moving and group.name is None:\n",
        breaks="SI-02: a zone goes down while another one is being rolled out (D-25)",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="follows-one-too-far",
        old="        replicas=count_replicas(leading, scaling),\n",
        new="        replicas=max(count_replicas(leading, scaling) - 1, 1),\n",
        breaks="SCALE-05, LI-01: a zone goes to a count that the leading one never had",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="pods-go-before-their-time",
        old="    left = delay.span - (now - answer.since)\n",
        new="    left = delay.span / 2 - (now - answer.since)\n",
        breaks="DELAY-08: pods go that were prepared for half of the delay",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="pods-without-a-word-go",
        old=(
            '        findings.problems.append(answer.problem or f"{name} gave no time")\n'
            "        return\n"
        ),
        new="        return\n",
        breaks="DELAY-08: a pod that answers nonsense holds nothing back",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="lost-cancellation-counts",
        old="            if error is None:\n",
        new="            if error is None or due.post is not None:\n",
        breaks="LI-05: a pod that was not reached is un-prepared ten minutes later",
        scenarios=MIRRORING,
        profile="lost pods",
    ),
    Mutant(
        name="unreached-pods-are-called-rarely",
        old="SOON_TRIES: Final = 5",
        new="SOON_TRIES: Final = 0",
        breaks="LI-05: a pod that the process before called, and that is deaf at first, waits long",
        scenarios=MIRRORING,
        profile="lost pods",
    ),
    Mutant(
        name="status-not-written-back",
        old="        if replicas != scale.status_replicas:\n",
        new="        if replicas > scale.status_replicas:\n",
        breaks="LI-01: the object that is mirrored does not show fewer replicas",
        scenarios=MIRRORING,
    ),
)
