"""Mutants of counts that move by themselves: `planning.replicas` and below, `counts`, `talks`."""

from typing import Final

from tests.mutants.entry import CONTESTED, FOLLOWING, MIRRORING, Mutant

SCALING: Final = (
    Mutant(
        name="scaled-down-on-the-cache",
        file="controllers/counts.py",
        old="            live = await self._observer.observe_live(group)\n",
        new="            live = group\n",
        breaks="SI-09, SI-02, SCALE-05: a downscale rests on a cache that lags",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="contest-never-noticed",
        file="controllers/scaling.py",
        old="            self._parts.contests.note(action)\n",
        new="            pass\n",
        breaks="LI-11: a count that something else puts back is written as fast as that allows",
        scenarios=CONTESTED,
    ),
    Mutant(
        name="contest-fought-for-ever",
        file="aio/rewrites.py",
        old="most=timedelta(minutes=5))",
        new="most=timedelta(seconds=10))",
        breaks="LI-11: it is written six times a minute, however long the contest lasts",
        scenarios=CONTESTED,
    ),
    Mutant(
        name="downscale-not-announced",
        file="controllers/counts.py",
        old="            self._downscales.announce(agreed.zone, agreed.replicas)\n",
        new="",
        breaks="SI-02: a rollout begins between the look of a downscale and its write (D-25)",
        scenarios=MIRRORING,
        units="tests/controllers",
    ),
    Mutant(
        name="follows-in-a-rollout",
        file="planning/permission.py",
        old="        if look.unavailable and is_moving:\n",
        new="        if look.unavailable and is_moving and group.name is None:\n",
        breaks="SI-02: a zone goes down while another one is being rolled out (D-25)",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="time-between-zones-forgotten",
        file="planning/permission.py",
        old="    if not case.aim.keeps_apart and not case.is_guarded:\n",
        new="    if not case.is_guarded:\n",
        breaks="SI-11: a zone that no webhook guards follows at once",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="follows-one-too-far",
        file="planning/following.py",
        old="        replicas=count_replicas(leading, scaling),\n",
        new="        replicas=max(count_replicas(leading, scaling) - 1, 1),\n",
        breaks="SCALE-05, LI-01: a zone goes to a count that the leading one never had",
        scenarios=FOLLOWING,
    ),
    Mutant(
        name="pods-go-before-their-time",
        file="planning/hearing.py",
        old="    left = delay.span - (now - word.since)\n",
        new="    left = delay.span / 2 - (now - word.since)\n",
        breaks="DELAY-08: pods go that were prepared for half of the delay",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="pods-without-a-word-go",
        file="planning/hearing.py",
        old=(
            '        notes.problems.append(word.problem or f"{name} gave no time")\n'
            "        return\n"
        ),
        new="        return\n",
        breaks="DELAY-08: a pod that answers nonsense holds nothing back",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="old-words-count",
        file="planning/hearing.py",
        old="FRESH: Final = timedelta(seconds=5)",
        new="FRESH: Final = timedelta(minutes=5)",
        breaks="DELAY-08: a pod that has started again, or was told otherwise, goes all the same",
        scenarios=MIRRORING,
        unseen=(
            "a pod is asked again in the moment in which it is due: it takes one that starts again "
            "in the very minute in which its group holds the zone back"
        ),
        units="tests/planning/test_planning_hearing.py",
    ),
    Mutant(
        name="lost-cancellation-counts",
        file="controllers/talks.py",
        old="            if error is None:\n",
        new="            if error is None or talk.ask is not None:\n",
        breaks="LI-05: a pod that did not hear that it stays is told ten minutes later",
        scenarios=MIRRORING,
        storm="lost pods",
        units="tests/controllers/test_talks.py",
    ),
    Mutant(
        name="unheard-pods-are-told-rarely",
        file="planning/delays.py",
        old="SOON_TRIES: Final = 5",
        new="SOON_TRIES: Final = 0",
        breaks="LI-05: a pod that the process before asked, and that is deaf at first, waits long",
        scenarios=MIRRORING,
        storm="lost pods",
        units="tests/planning/test_planning_delays.py",
    ),
    Mutant(
        name="recorded-though-scaled-since",
        file="controllers/executor.py",
        old="        is_resized = live.replicas != zone.replicas\n",
        new="        is_resized = False\n",
        breaks="ROLL-39: a revision is recorded while pods of an upscale are not ready",
        scenarios=MIRRORING,
        units="tests/controllers/test_executor.py",
        unseen="it takes an upscale that a frozen cache hides until the last pod is rolled out",
    ),
    Mutant(
        name="asked-pods-are-owed-nothing",
        file="planning/delays.py",
        old="            (routine if seat.talk.word is None else owed).append(endpoint)\n",
        new="            continue\n",
        breaks="LI-05: pods that were asked and stay are never told so",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="status-not-written-back",
        file="planning/publishing.py",
        old="        if last.count != reading.status_replicas:\n",
        new="        if last.count > reading.status_replicas:\n",
        breaks="LI-01: the object that is mirrored is not told of fewer replicas",
        scenarios=MIRRORING,
    ),
    Mutant(
        name="status-written-all-the-time",
        file="planning/publishing.py",
        old="        if last.count != reading.status_replicas:\n",
        new="        if last.count >= 0:\n",
        breaks="LI-01: what is there already is written again at each look",
        scenarios=MIRRORING,
    ),
)
