"""Mutants of disruption budgets: the arbiter, the records, and what releases them."""

from typing import Final

from tests.mutants.entry import EVICTING, Mutant

BUDGETS: Final = (
    Mutant(
        name="record-not-counted",
        old="    return record is not None and now - record.at < RECORD_COUNTS\n",
        new="    return False\n",
        breaks="SI-01, SI-03, SI-04, SI-05: what an earlier process allowed is forgotten",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="no-second-decision",
        old="            refusal = assess_disruption(live)\n",
        new="            refusal = None\n",
        breaks="SI-01, SI-02, SI-03, SI-04, SI-05: a grant rests on caches alone",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="cache-instead-of-the-list",
        old="            live, pods = {}, await self._context.reader.fetch_pods(sets)\n",
        new=(
            "            owned = self._context.pods.list_by_owner\n"
            "            live, pods = {}, [one for each in sets for one in owned(each.uid)]\n"
            "            written = reserved.grant.record\n"
            "            if all(getattr(one, 'disruption', '') != written for one in pods):\n"
            "                pods = await self._context.reader.fetch_pods(sets)\n"
        ),
        breaks="SI-02: a cache that shows the record may have lost what came before it (FP-07)",
        scenarios=EVICTING,
        units="tests/guards/budgets",
        unseen="the one event that counts is lost too rarely",
    ),
    Mutant(
        name="record-without-version",
        old=(
            '            "resourceVersion": pod.resource_version,\n'
            '            "annotations": {DISRUPTION_RECORD: grant.record},\n'
        ),
        new='            "annotations": {DISRUPTION_RECORD: grant.record},\n',
        breaks="SI-17: a record is written over whatever the pod has become",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="nothing-reserved-in-memory",
        old="        self._grants[pod.uid] = grant\n",
        new="",
        breaks="SI-01, SI-03, SI-04, SI-05: two asks of one moment are both granted",
        scenarios=EVICTING,
        units="tests/guards",
        unseen="records alone keep the budget where they may be written; memory saves calls",
    ),
    Mutant(
        name="dry-run-records",
        old="        if ask.dry_run:\n",
        new="        if ask.dry_run and ask.engine is DisruptionSource.ROLLOUT:\n",
        breaks="SI-15: a dry run leaves a record",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="taken-back-after-a-minute",
        old="UNTOUCHED_FOR: Final = timedelta(seconds=8)\n",
        new="UNTOUCHED_FOR: Final = timedelta(seconds=60)\n",
        breaks="LI-07: a grant that is not used holds all others for a minute",
        scenarios=EVICTING,
        units="tests/controllers",
    ),
    Mutant(
        name="taken-back-at-once",
        old="    return min(max(lasts, UNTOUCHED_FOR), LONGEST)\n",
        new="    return timedelta(0)\n",
        breaks="SI-17, SI-01, SI-03: a grant is taken back while its answer is on its way",
        scenarios=EVICTING,
        units="tests/controllers",
    ),
    Mutant(
        name="rollout-lets-no-eviction-pass",
        old="        return self.free_until is None and engine is not self.side\n",
        new="        return False\n",
        breaks="LI-01: every free place is the rollout's before a drain asks again",
        scenarios=("s8-turns", "s8"),
        units="tests/planning/budgets/test_turns.py",
    ),
    Mutant(
        name="turn-of-no-use-lasts",
        old="        if now - self.held_since < self.patience:\n",
        new="        if now - self.held_since < 1000 * self.patience:\n",
        breaks="LI-09: evictions that cannot go hold a rollout for as long as they are asked for",
        scenarios=EVICTING,
        units="tests/planning/budgets/test_turns.py",
        unseen="no drain of the simulation waits for that long for what is no fault of the rollout",
    ),
    Mutant(
        name="rollout-does-not-record",
        old="        if ask.dry_run:\n",
        new="        if ask.dry_run or ask.engine is DisruptionSource.ROLLOUT:\n",
        breaks="SI-17, SI-01, SI-05: a rollout asks the caches and leaves no record",
        scenarios=EVICTING,
        units="tests/controllers/rollout/test_executor_budgets.py",
    ),
)
