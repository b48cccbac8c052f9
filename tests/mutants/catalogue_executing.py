"""Mutants of the effects of a rollout: `controllers.rollout`, `observe`, `retries`."""

from typing import Final

from tests.mutants.entry import Mutant

EXECUTING: Final = (
    Mutant(
        name="no-version-precondition",
        old="Precondition(uid=pod.uid, resource_version=pod.resource_version)",
        new="Precondition(uid=pod.uid, resource_version=None)",
        breaks="SI-07: a pod is deleted that has changed since the look",
        scenarios=("s1",),
    ),
    Mutant(
        name="live-look-off",
        old="live = await self._rule.observe_live(group)\n        expires_at",
        new="live = group\n        expires_at",
        breaks="SI-09: deletes rest on what a watch has brought",
        scenarios=("s1",),
    ),
    Mutant(
        name="look-not-compared",
        old="agreed = self._agree(action, live, reservations)",
        new="agreed = action",
        breaks="SI-02, SI-03, SI-04, SI-07: the look is made, and nothing follows from it",
        scenarios=("walk",),
        profile="old views",
    ),
    Mutant(
        name="look-lasts-a-minute",
        old="LIVE_READ_LASTS: Final = timedelta(seconds=5)",
        new="LIVE_READ_LASTS: Final = timedelta(minutes=1)",
        breaks="SI-09: deletes rest on a look older than five seconds",
        scenarios=("s3",),
    ),
    Mutant(
        name="live-look-may-be-old",
        old="limit=LIVE_PAGE,\n",
        new='limit=LIVE_PAGE,\n                resource_version="0",\n',
        breaks="SI-09: any API server's cache answers for the store",
        scenarios=("s1",),
    ),
    Mutant(
        name="lock-per-request",
        old="async with self._live_reads, self._locks.hold_all(self._rule.list_locks(group)):",
        new='async with self._locks.hold(f"request {self._clock.elapsed()}"):',
        breaks="SI-02: a downscale is granted between a rollout's look and its deletes (D-25)",
        units="tests/controllers/rollout/test_executor_lock.py",
        scenarios=("both", "both-small"),
        unseen=(
            "reservations and deletes are remembered in the same step of the loop in which a look"
            " ends: the lock is a second guard against what the memory shows"
        ),
    ),
    Mutant(
        name="own-deletes-off",
        old="return {own.pod.uid: own.state for own in self._of(owners)}",
        new="return {}",
        breaks="SI-01, SI-03, SI-04: a delete without an answer is forgotten before it is done",
        scenarios=("s2",),
        profile="late writes",
    ),
    Mutant(
        name="unknown-outcome-is-failure",
        old='            self._count(group, "unknown")\n            raise\n',
        new='            self._count(group, "unknown")\n'
        "            self._deletes.drop(pod)\n            raise\n",
        breaks="SI-01, SI-03, SI-04: a delete without an answer is taken back, and done later",
        scenarios=("s2",),
        profile="late writes",
    ),
    Mutant(
        name="unknown-outcome-is-success",
        old='            self._count(group, "unknown")\n            raise\n',
        new='            self._count(group, "unknown")\n'
        "            self._deletes.accept(pod)\n            raise\n",
        breaks="SI-18, LI-01: a pod counts as gone for ever that was never deleted",
    ),
    Mutant(
        name="retried-at-once",
        old='            self._count(group, "unknown")\n            raise\n',
        new="            await self._client.delete(\n"
        "                PODS, pod.namespace, pod.name, precondition=precondition\n"
        "            )\n",
        breaks="SI-18: a write without an answer is sent again, and nothing is read back",
    ),
    Mutant(
        name="outcome-not-read-back",
        old="        if context.deletes.list_unknown(group.owners):\n            step = ",
        new="        if context.deletes.list_unknown(()):\n            step = ",
        breaks="SI-18, LI-01: what became of a delete is never found out",
        scenarios=("s2",),
        unseen=(
            "a delete without an answer is sent once more by the same UID, after a new look, and "
            "that settles it, too"
        ),
        units="tests/controllers/rollout/test_controller.py",
    ),
)
