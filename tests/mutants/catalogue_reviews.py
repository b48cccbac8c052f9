"""Mutants of the reviews: `planning.requests`, `downscale`, `spacing`, `web`, `pods`."""

from typing import Final

from tests.mutants.entry import DOWNSCALES, WIDE, Mutant

REVIEWS: Final = (
    Mutant(
        name="min-time-by-the-local-clock",
        old="return client.server_time() or self.clock.now()",
        new="return self.clock.now()",
        breaks="SI-11: a machine's clock that runs fast lets the next zone go",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="min-time-off-by-five-seconds",
        old="if wait and now - last < wait\n",
        new="if wait and now - last < wait - timedelta(seconds=5)\n",
        breaks="SI-11: the time between zones is almost waited for",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="dry-run-prepares",
        old="    if review.dry_run:\n        return allow(Code.DRY_RUN)\n",
        new="",
        breaks="SI-15: a rehearsal prepares pods",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="decrease-by-one-not-seen",
        old="first_to + new >= first_from + old and",
        new="first_to + new >= first_from + old - 1 and",
        breaks="SI-10, SI-14: > for >=, so that one pod may always go",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="group-unread-is-no-group",
        old="return request.refuse(Code.GROUP_NOT_READ, why, status=RETRY)\n        if",
        new="return Verdict(is_allowed=True, reason=Reason(Code.GROUP_NOT_READ, why))\n        if",
        breaks="SI-13: a read that fails lets a guarded downscale pass",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="late-review-passes",
        old="return request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)\n        if failures:",
        new="return None\n        if failures:",
        breaks="SI-10: pods that have not answered in time go all the same",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="failed-pods-go",
        old="        if failures:\n            why = f",
        new="        if len(failures) > 99:\n            why = f",
        breaks="SI-10: a pod that did not confirm is taken away",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="repeated-review-prepares-again",
        old="for endpoint in pods.endpoints if endpoint.uid not in confirmed)",
        new="for endpoint in pods.endpoints)",
        breaks="SI-16: each round of one request calls the pods",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="other-downscale-underway-ignored",
        old="group, now=context.server_time(), downscale=underway)",
        new="group, now=context.server_time(), downscale=None)",
        breaks="SI-11: two zones are granted at once",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="same-set-underway-ignored",
        old="    if earlier is not None and not is_same and earlier.may_persist_beside(",
        new="    if earlier is None and is_same and bool(",
        breaks="SI-10, SI-12, LI-05: two ranges of one set are granted at once",
        scenarios=WIDE,
    ),
    Mutant(
        name="records-not-written",
        old="errors = await gather_all(self._put(pod, text) for pod in annotated)",
        new="errors = await gather_all(self._put(pod, text) for pod in annotated[:0])",
        breaks="LI-05: after a crash no process knows which pods were prepared",
        scenarios=DOWNSCALES,
    ),
    Mutant(
        name="undo-within-the-request-only",
        old="            downscales.close(reservation, un_prepare=reservation.pods, again=later)\n",
        new="            downscales.close(reservation, un_prepare=())\n",
        breaks="LI-05: pods stay prepared where the undo failed or came too late",
        scenarios=WIDE,
    ),
    Mutant(
        name="undo-once",
        old="            downscales.close(reservation, un_prepare=reservation.pods, after=later)\n",
        new="            downscales.close(reservation, un_prepare=())\n",
        breaks="LI-05: a call that was slow to arrive makes a pod forget that it stays",
        scenarios=WIDE,
    ),
)
