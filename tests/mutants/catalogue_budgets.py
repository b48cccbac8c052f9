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
    ),
    Mutant(
        name="no-second-decision",
        old="            refusal = assess_disruption(live)\n",
        new="            refusal = None\n",
        breaks="SI-01, SI-02, SI-03, SI-04, SI-05: a grant rests on caches alone",
        scenarios=EVICTING,
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
    ),
    Mutant(
        name="dry-run-records",
        old="        if request.dry_run:\n",
        new="        if request.dry_run and request.engine is DisruptionSource.ROLLOUT:\n",
        breaks="SI-15: a dry run leaves a record",
        scenarios=EVICTING,
    ),
    Mutant(
        name="released-after-a-minute",
        old="UNTOUCHED_FOR: Final = timedelta(seconds=8)\n",
        new="UNTOUCHED_FOR: Final = timedelta(seconds=60)\n",
        breaks="LI-07: a grant that is not used holds all others for a minute",
        scenarios=EVICTING,
    ),
    Mutant(
        name="released-at-once",
        old="    return min(max(lasts, UNTOUCHED_FOR), LONGEST)\n",
        new="    return timedelta(0)\n",
        breaks="SI-17, SI-01, SI-03: a grant is released while its answer is on its way",
        scenarios=EVICTING,
    ),
    Mutant(
        name="rollout-lets-no-eviction-pass",
        old="        return self.free_until is None and engine is not self.side\n",
        new="        return False\n",
        breaks="LI-01: every free place is the rollout's before a drain tries again",
        scenarios=("s8-turns", "s8"),
    ),
    Mutant(
        name="rollout-does-not-record",
        old="        if request.dry_run:\n",
        new="        if request.dry_run or request.engine is DisruptionSource.ROLLOUT:\n",
        breaks="SI-17, SI-01, SI-05: a rollout trusts the caches and leaves no record",
        scenarios=EVICTING,
    ),
)
