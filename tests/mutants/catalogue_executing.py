"""Mutants of the effects of a rollout: `controllers.rollout`, `observe`, `retries`."""

from typing import Final

from tests.mutants.entry import Mutant

EXECUTING: Final = (
    Mutant(
        name="no-version-precondition",
        old="Precondition(uid=pod.uid, resource_version=pod.resource_version)",
        new="Precondition(uid=pod.uid, resource_version=None)",
        breaks="SI-07: a pod is deleted that has changed since the read",
        scenarios=("s1",),
    ),
    Mutant(
        name="live-read-off",
        old="live = await self._rule.observe_live(group)\n        expires_at",
        new="live = group\n        expires_at",
        breaks="SI-09: deletes rest on what a watch has brought",
        scenarios=("s1",),
    ),
    Mutant(
        name="read-not-compared",
        old="agreed = self._agree(action, live, reservations)",
        new="agreed = action",
        breaks="SI-02, SI-03, SI-04, SI-07: the read is made, and nothing follows from it",
        scenarios=("walk",),
        profile="old views",
    ),
    Mutant(
        name="read-lasts-a-minute",
        old="LIVE_READ_LASTS: Final = timedelta(seconds=5)",
        new="LIVE_READ_LASTS: Final = timedelta(minutes=1)",
        breaks="SI-09: deletes rest on a read older than five seconds",
        scenarios=("s3",),
    ),
    Mutant(
        name="live-read-may-be-old",
        old="limit=_LIVE_PAGE,\n",
        new='limit=_LIVE_PAGE,\n                resource_version="0",\n',
        breaks="SI-09: any API server's cache answers for the store",
        scenarios=("s1",),
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
        breaks="SI-01, SI-03, SI-04: a delete without an answer is released, and done later",
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
)
