"""Mutants of what counts zones that have left: `guards.departed`, and who asks it."""

from typing import Final

from tests.mutants.entry import Mutant

LEAVING: Final = ("s1-left", "both-left")

DEPARTURES: Final = (
    Mutant(
        name="zone-that-left-forgotten",
        old="is_whole = ended is not None or self._is_whole(sts)",
        new="is_whole = True",
        breaks="SI-26: a zone that is deleted while it is short holds nothing",
        scenarios=LEAVING,
    ),
    Mutant(
        name="zone-that-left-counts-for-seconds",
        old="COUNTS_FOR: Final = timedelta(minutes=10)",
        new="COUNTS_FOR: Final = timedelta(seconds=10)",
        breaks="SI-26: others go on before its StatefulSet is back",
        scenarios=LEAVING,
    ),
    Mutant(
        name="zone-that-goes-with-its-pods-taken-for-whole",
        old="isinstance(old, StatefulSet) and new and self._is_whole(old):",
        new="isinstance(old, StatefulSet) and new:",
        breaks="SI-26: one that was short when its deletion began, and waits for its pods",
        scenarios=LEAVING,
    ),
    Mutant(
        name="zone-that-is-back-taken-for-whole",
        old="if present is None or not self._measure(present, has_newcomers=False).is_whole:",
        new="if present is None:",
        breaks="SI-26: a StatefulSet of its name is there, and pods of it are not ready",
        scenarios=LEAVING,
    ),
    Mutant(
        name="zone-that-left-not-counted-by-budgets",
        old="        zones += departed\n",
        new="",
        breaks="SI-26: evictions in another zone",
        scenarios=("s8-left", "s9-left"),
    ),
    Mutant(
        name="zone-that-left-not-counted-by-policies",
        old="    departed = measure_departed(snapshot.group)\n",
        new="    departed = ()\n",
        breaks="SI-26: the next zone of a policy",
        scenarios=("p1-left",),
    ),
)
