"""Mutants of what becomes of a downscale: `controllers.downscales`, `guards`, `aftermath`."""

from typing import Final

from tests.mutants.entry import DOWNSCALES, WIDE, Mutant

DOWNSCALE_CONTROL: Final = (
    Mutant(
        name="claim-never-settled",
        file="controllers/downscales.py",
        old="                return await self._give_up(claim, sts, pods)\n",
        new="                return RESYNC\n",
        breaks="LI-05: a downscale that did not happen holds its group back for ever",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="claim-settled-too-early",
        file="guards/downscales.py",
        old="PERSIST_LIMIT: Final = timedelta(seconds=36)",
        new="PERSIST_LIMIT: Final = timedelta(seconds=3)",
        breaks="SI-10, SI-12: pods are told that they stay while the request may still persist",
        scenarios=DOWNSCALES,
        storm="slow reviews",
    ),
    Mutant(
        name="un-prepare-without-a-live-read",
        file="controllers/downscales.py",
        old="        live = decode_statefulset(body)\n",
        new="        live = sts\n",
        breaks="SI-10, SI-12: a cache that lags says that the downscale did not happen",
        scenarios=DOWNSCALES,
        storm="late controller",
        units="tests/controllers/test_downscales_doubt.py",
    ),
    Mutant(
        name="settled-on-an-old-view",
        file="controllers/downscales.py",
        old="        if is_older(sts.resource_version, than=claim.seen_version):\n",
        new=('        if is_older(sts.resource_version, than=""):\n'),
        breaks="SI-11, SI-12, LI-05: a view of before the downscale says what became of it",
        scenarios=DOWNSCALES,
        unseen=(
            "an old view that says it failed is checked by a live read; one that says it happened "
            "must be older than the review, whose own look is newer in nearly all runs"
        ),
        units="tests/controllers/test_downscales_doubt.py",
    ),
    Mutant(
        name="undo-of-the-whole-range",
        file="planning/aftermath.py",
        old="ordinal = sts.find_ordinal(pod.name, sts.ordinals)",
        new="ordinal = sts.ordinal_of(pod.name)",
        breaks="SI-12: pods that do go are told that they stay",
        scenarios=WIDE,
        units="tests/planning/test_planning_aftermath.py",
    ),
    Mutant(
        name="upscale-owes-nothing",
        file="controllers/downscales.py",
        old="        parts.downscales.close(claim, owed=[pod.uid for pod in staying])\n",
        new="        parts.downscales.close(claim, owed=())\n",
        breaks="LI-05: pods of a downscale that did not happen stay prepared",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="target-not-in-the-claim",
        file="model/downscale.py",
        old="            self.target is None or self.target == other.target\n",
        new="            self.target is None or bool(other.replicas_from)\n",
        breaks="SI-10: who was called elsewhere is not called where it is to be called now",
        scenarios=DOWNSCALES,
        units="tests/web/test_prepare_targets.py",
    ),
    Mutant(
        name="undone-where-the-set-says-now",
        file="controllers/cancellations.py",
        old="    target = told or plan_target(sts.annotations, sts.service_name)\n",
        new="    target = plan_target(sts.annotations, sts.service_name)\n",
        breaks="LI-05: pods wait for ever where they had been told to go",
        scenarios=DOWNSCALES,
        units="tests/web/test_prepare_targets.py",
    ),
    Mutant(
        name="told-once-is-told",
        file="controllers/cancellations.py",
        old="        told = [one for one in endpoints if one.uid not in failed]\n",
        new="        told, failed = endpoints, {}\n",
        breaks="LI-05: a pod that was out of reach is not told again",
        scenarios=DOWNSCALES,
        storm="lost pods",
    ),
    Mutant(
        name="second-telling-forgotten",
        file="guards/debts.py",
        old="            if debt is None or debt.again is None:\n",
        new="            if debt is None or debt.pod:\n",
        breaks="LI-05: a call that was slow to arrive makes a pod forget that it stays",
        scenarios=WIDE,
        units="tests/guards/test_guards_debts.py",
    ),
    Mutant(
        name="debt-kept-by-a-new-claim",
        file="guards/downscales.py",
        old="        self.debts.take_over(key.set_uid, told)\n",
        new="",
        breaks="SI-10, SI-12: an old debt is paid to pods that are to go now",
        scenarios=DOWNSCALES,
        storm="lost pods",
    ),
    Mutant(
        name="notes-not-read",
        file="controllers/downscales.py",
        old="        notes = self._read_notes(sts.uid, pods)\n",
        new="        notes = self._read_notes(sts.uid, pods)[:0]\n",
        breaks="LI-05: after a crash nobody asks which pods were told to go",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="notes-not-removed",
        file="controllers/downscales.py",
        old="error = await self._parts.notes.remove(noted)",
        new="error = await self._parts.notes.remove(noted[:0])",
        breaks="SI-12: the next process finds a story that is over",
        scenarios=DOWNSCALES,
        unseen=(
            "the next process finds what the set wants, and at most tells pods once more what they "
            "know"
        ),
        units="tests/controllers/test_downscales.py",
    ),
    Mutant(
        name="not-recorded",
        file="guards/records.py",
        old="        if is_annotated(sts, at):\n",
        new="        if not sts.is_terminating:\n",
        breaks="SI-11: a downscale by /scale leaves no time behind",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="happened-is-not-noted",
        file="controllers/downscales.py",
        old="                downscales.note_persisted(claim, self._parts.server_time())\n",
        new="                downscales.close(claim, owed=())\n",
        breaks="SI-11: what has happened is forgotten before it is recorded",
        scenarios=DOWNSCALES,
    ),
)
