"""Mutants of disruption budgets: the gate, the records, and what takes them back."""

from typing import Final

from tests.mutants.entry import EVICTING, Mutant

BUDGETS: Final = (
    Mutant(
        name="record-not-counted",
        file="guards/pending.py",
        old="    return record is not None and now - record.at < RECORD_COUNTS\n",
        new="    return False\n",
        breaks="SI-01, SI-03, SI-04, SI-05: what an earlier process allowed is forgotten",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="no-second-decision",
        file="guards/gate.py",
        old="            refusal = assess_disruption(live)\n",
        new="            refusal = None\n",
        breaks="SI-01, SI-02, SI-03, SI-04, SI-05: a grant rests on caches alone",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="record-without-version",
        file="guards/recording.py",
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
        file="guards/pending.py",
        old="        self._grants[pod.uid] = grant\n",
        new="",
        breaks="SI-01, SI-03, SI-04, SI-05: two asks of one moment are both granted",
        scenarios=EVICTING,
        units="tests/guards",
        unseen="records alone keep the budget where they may be written; memory saves calls",
    ),
    Mutant(
        name="dry-run-records",
        file="guards/gate.py",
        old="        if ask.dry_run:\n",
        new="        if ask.dry_run and ask.engine is Engine.ROLLOUT:\n",
        breaks="SI-15: a dry run leaves a record",
        scenarios=EVICTING,
        units="tests/guards",
    ),
    Mutant(
        name="taken-back-after-a-minute",
        file="controllers/disruptions.py",
        old="UNTOUCHED_FOR: Final = timedelta(seconds=8)\n",
        new="UNTOUCHED_FOR: Final = timedelta(seconds=60)\n",
        breaks="LI-07: a grant that is not used holds all others for a minute",
        scenarios=EVICTING,
        units="tests/controllers",
    ),
    Mutant(
        name="taken-back-at-once",
        file="controllers/disruptions.py",
        old="    return min(max(lasts, UNTOUCHED_FOR), LONGEST)\n",
        new="    return timedelta(0)\n",
        breaks="SI-17, SI-01, SI-03: a grant is taken back while its answer is on its way",
        scenarios=EVICTING,
        units="tests/controllers",
    ),
    Mutant(
        name="unused-grants-are-forgotten",
        file="guards/pending.py",
        old="            self.unused.note(grant.pod)\n",
        new="            pass\n",
        breaks="LI-09: a client whose evictions never happen holds all others",
        scenarios=EVICTING,
        units="tests/controllers/test_disruptions_unused.py",
        unseen="no client of the simulation asks for what it does not carry out for long enough",
    ),
    Mutant(
        name="rollout-does-not-record",
        file="guards/gate.py",
        old="        if ask.dry_run:\n",
        new="        if ask.dry_run or ask.engine is Engine.ROLLOUT:\n",
        breaks="SI-17, SI-01, SI-05: a rollout asks the caches and leaves no record",
        scenarios=EVICTING,
        units="tests/controllers/test_executor_budgets.py",
    ),
)
