"""Mutants of what becomes of a downscale: `downscales` of `controllers`, `guards`, `planning`."""

from typing import Final

from tests.mutants.entry import DOWNSCALES, WIDE, Mutant

DOWNSCALE_CONTROL: Final = (
    Mutant(
        name="reservation-never-settled",
        old="                return await self._give_up(reservation, sts, pods)\n",
        new="                return RESYNC\n",
        breaks="LI-05: a downscale that did not happen holds its group back for ever",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="reservation-settled-too-early",
        old="PERSIST_LIMIT: Final = timedelta(seconds=36)",
        new="PERSIST_LIMIT: Final = timedelta(seconds=3)",
        breaks="SI-10, SI-12: pods are told that they stay while the request may still persist",
        scenarios=DOWNSCALES,
        profile="slow reviews",
    ),
    Mutant(
        name="un-prepare-without-a-live-read",
        old="live = decode_statefulset(body)\n        if",
        new="live = sts\n        if",
        breaks="SI-10, SI-12: a cache that lags says that the downscale did not happen",
        scenarios=DOWNSCALES,
        profile="late controller",
    ),
    Mutant(
        name="late-cancels-do-not-count",
        old="    pods = [endpoint.pod for endpoint in endpoints if endpoint.uid in waits]\n",
        new="    pods = [endpoint.pod for endpoint in endpoints[:0] if endpoint.uid in waits]\n",
        breaks="SI-10: a call that a pod stays takes effect after it has confirmed that it goes",
        scenarios=DOWNSCALES,
        profile="late pods",
    ),
    Mutant(
        name="undo-of-the-whole-range",
        old="pod, ordinal = present.get(name), sts.find_ordinal(name, sts.ordinals)",
        new="pod, ordinal = present.get(name), sts.ordinal_of(name)",
        breaks="SI-12: pods that do go are told that they stay",
        scenarios=WIDE,
    ),
    Mutant(
        name="upscale-owes-nothing",
        old="        self.downscales.close(reservation, un_prepare=reservation.pods)\n",
        new="        self.downscales.close(reservation, un_prepare=())\n",
        breaks="LI-05: pods of a downscale that did not happen stay prepared",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="one-cancel-is-enough",
        old="[due_cancel for due_cancel, pod in here.items() if pod.uid not in failed]\n",
        new="list(here)\n        failed = {}\n",
        breaks="LI-05: a pod that was out of reach is not un-prepared again",
        scenarios=DOWNSCALES,
        profile="lost pods",
    ),
    Mutant(
        name="second-cancel-forgotten",
        old="            if entry is None or entry.again is None:\n",
        new="            if entry is None or entry.pod:\n",
        breaks="LI-05: a call that was slow to arrive makes a pod forget that it stays",
        scenarios=WIDE,
    ),
    Mutant(
        name="records-not-read",
        old="        records = self._read_records(sts, pods)\n",
        new="        records = self._read_records(sts, pods)[:0]\n",
        breaks="LI-05: after a crash it is not read which pods were prepared",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="not-recorded",
        old="        if is_annotated(sts, at):\n",
        new="        if not sts.is_terminating:\n",
        breaks="SI-11: a downscale by /scale leaves no time behind",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="happened-is-not-recorded",
        old="downscales.record_persisted(reservation, self.server_time())\n",
        new="downscales.close(reservation, un_prepare=())\n",
        breaks="SI-11: what has happened is forgotten before it is recorded",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="undone-where-the-set-says-now",
        old="    target = called_at or plan_target(sts.annotations, sts.service_name)\n",
        new="    target = plan_target(sts.annotations, sts.service_name)\n",
        breaks="LI-05: pods wait for ever where they had been prepared",
        scenarios=DOWNSCALES,
    ),
)
